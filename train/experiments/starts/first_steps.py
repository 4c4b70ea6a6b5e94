"""What runs say of an adapter before its first step and after its last: JSON, one line a run.

    python first_steps.py RUN... > docs/results/starts/first-steps.jsonl

`before` are the losses of one batch of the validation split with the adapter as it begins and without it, `after` those of the whole split.
Exit code 1 when the adapter is worse than none before its first step by more than 1e-6, or not better at the end.
"""

import json
import sys
from pathlib import Path


def of_run(folder):
    result = json.loads((folder / "result.json").read_text())
    events = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    (initial,) = (event for event in events if event["event"] == "initial" and event["stage"] == "default")
    rows = {row["name"]: row for row in result["rows"]}
    after = {name: rows[name]["validation"]["metrics"]["loss"] for name in ("default", "none")}
    return {
        "model": result["backbone"].get("source") or result["backbone"]["kind"],
        "seed": result["seed"],
        "steps": rows["default"]["training"]["steps"],
        "before": {"default": initial["loss"], "none": initial["backbone_loss"]},
        "after": after,
    }


def main():
    failed = False
    for folder in map(Path, sys.argv[1:]):
        if not (folder / "result.json").is_file():
            continue
        found = of_run(folder)
        print(json.dumps(found))
        worse = found["before"]["default"] - found["before"]["none"]
        failed |= worse > 1e-6 or found["after"]["default"] >= found["after"]["none"]
    sys.exit(failed)


main()
