"""Sharing states out over layers by what they cost a task, beside sharing them out by the sum of bounds: a table of docs/truncation.md.

    cargo build --release --bins
    python train/experiments/budget.py --bytes enwik8.gz

The plan, written before anything was run. Adapters: HRM on the automaton (weighted_automaton.toml, 2 layers of 16 states) and on the
bytes of a text (budget.toml, 4 layers of 32 states), seeds 3, 4 and 5. `train eval --record-gradients` measures the sensitivities on
200 training sequences. Each adapter is then reduced to a half, a quarter, an eighth
and a sixteenth of its states, shared out in three ways:

    even      --order N: as many in every layer
    bounds    --budget N: the sum of the bounds is least
    task      --budget N --task: the sum of sensitivities times bounds is least

and evaluated on validation data. Told are the metric, the loss it costs against the full adapter, the first-order bound of that loss
(sensitivities times measured errors), and the orders. `task` does what it is for where its mean over seeds is below that of `bounds`;
it is told whatever comes out. One line per figure is appended to docs/results/budget/small.jsonl; what is there already is not done
again. `--table` prints the table.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

from weighted import ROOT, call, load, trained

WAYS = ["even", "bounds", "task"]
TASKS = {
    "automaton": {"config": "weighted_automaton.toml", "metric": "loss", "adapter": "hrm", "layers": 2, "states": 16},
    "text": {"config": "budget.toml", "metric": "bits_per_character", "adapter": "hrm", "layers": 4, "states": 32},
}
SHARES = [2, 4, 8, 16]


def measure(arguments, task, seed, done, write):
    """All figures of one adapter."""
    about = TASKS[task]
    folder, evaluate = trained(arguments, task, seed, about)
    adapter = folder / "run" / "adapters" / about["adapter"]
    layers, states = about["layers"], about["states"]
    row = {"task": task, "seed": seed, "metric": about["metric"]}
    if (task, seed, "full", layers * states) not in done:
        write(row | {"way": "full", "budget": layers * states, "value": evaluate("hrm")})
    gradients = folder / "gradients.json"
    if not gradients.exists():
        evaluate("hrm", "--split", "train", "--sequences", "200", "--record-gradients", gradients.name)
    measured = json.loads(gradients.read_text())
    sensitivities = [layer["sensitivity"] for layer in measured["layers"]]
    for share in SHARES:
        budget = layers * states // share
        for way in WAYS:
            if (task, seed, way, budget) in done:
                continue
            options = ["--order", states // share] if way == "even" else ["--budget", budget]
            options += ["--task", gradients.name] if way == "task" else []
            out = f"{way}-{budget}"
            if not (folder / out).exists():
                call(arguments.programs / "bt", "reduce", adapter, "-o", out, *options, cwd=folder)
            facts = json.loads((folder / out / "certificate.json").read_text())["layers"]
            first_order = sum(s * layer["hinf_error"] for s, layer in zip(sensitivities, facts))
            write(
                row
                | {
                    "way": way,
                    "budget": budget,
                    "value": evaluate(out),
                    "orders": [layer["order"] for layer in facts],
                    "sum_of_bounds": sum(layer["error_bound"] for layer in facts),
                    "sensitivities": sensitivities,
                    "change_of_loss_first_order": first_order,
                }
            )


def table(rows):
    """Means over seeds, with the smallest and the largest: the metric lost against the full adapter of the same seed."""
    for task, about in TASKS.items():
        layers, states = about["layers"], about["states"]
        of_task = {(r["seed"], r["way"], r["budget"]): r for r in rows if r["task"] == task}
        if not of_task:
            continue
        seeds = sorted({seed for seed, _, _ in of_task})
        print(f"\n{task}: {about['metric']} above the full adapter's, mean over seeds {seeds} (smallest to largest)\n")
        print("| states | " + " | ".join(WAYS) + " | orders by bounds | by task |")
        print("| --- |" + " --- |" * (len(WAYS) + 2))
        for share in SHARES:
            budget = layers * states // share
            cells = []
            for way in WAYS:
                present = [s for s in seeds if (s, way, budget) in of_task]
                lost = [of_task[s, way, budget]["value"] - of_task[s, "full", layers * states]["value"] for s in present]
                cells.append(f"{statistics.mean(lost):.4f} ({min(lost):.4f} to {max(lost):.4f})" if lost else "-")
            orders = [str(of_task.get((seeds[0], way, budget), {}).get("orders", "-")) for way in WAYS[1:]]
            print(f"| {budget} | " + " | ".join(cells + orders) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=Path, help="text of the byte task; left out, only the automaton is measured")
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 4, 5])
    parser.add_argument("--programs", type=Path, default=ROOT / "target" / "release", help="folder of train and bt")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "budget", help="folder of the runs")
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "results" / "budget" / "small.jsonl")
    parser.add_argument("--table", action="store_true", help="print the table of what was measured, and measure nothing")
    arguments = parser.parse_args()
    if not arguments.table:
        arguments.results.parent.mkdir(parents=True, exist_ok=True)
        done = {(row["task"], row["seed"], row["way"], row["budget"]) for row in load(arguments.results)}

        def write(row):
            with arguments.results.open("a") as file:
                file.write(json.dumps(row) + "\n")

        for seed in arguments.seeds:
            for task in ["automaton", "text"] if arguments.bytes else ["automaton"]:
                measure(arguments, task, seed, done, write)
    table(load(arguments.results))


if __name__ == "__main__":
    sys.exit(main())
