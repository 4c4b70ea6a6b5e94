"""Gates of the layers of an adapter while it trains, from the metrics of runs.

    train sweep train/experiments/paper/gates.toml --set scale=paper
    python train/experiments/gates_over_steps.py runs/gates-paper hrm > docs/results/gates-over-steps.json

One row per run: its seed, the steps at which layers were logged, and the gates there, one list per layer.
"""

import json
import sys
from pathlib import Path


def gates(run, adapter):
    result = json.loads((run / "result.json").read_text())
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    logged = {e["step"]: e["layers"] for e in events if e["event"] == "layers" and e["stage"] == adapter}
    steps = sorted(logged)
    if not steps:
        sys.exit(f"{run / 'metrics.jsonl'} has no layers of {adapter}")
    layers = [[round(layer["gate"], 6) for layer in logged[step]] for step in steps]
    return {
        "seed": result["seed"],
        "environment": {key: result["environment"][key] for key in ("hankel", "commit", "cpu", "threads", "device")},
        "steps": steps,
        "gates": [list(layer) for layer in zip(*layers)],
    }


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    directory, adapter = Path(sys.argv[1]), sys.argv[2]
    runs = sorted(path.parent for path in directory.glob("*/result.json"))
    if not runs:
        sys.exit(f"{directory} holds no finished runs")
    rows = [gates(run, adapter) for run in runs]
    print(json.dumps({"experiment": directory.name, "adapter": adapter, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
