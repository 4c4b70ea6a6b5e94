"""What truncation costs by method, with and without knowledge of the inputs: the table of docs/truncation.md.

    cargo build --release --bins
    python train/experiments/weighted.py --bytes enwik8.gz

trains one adapter per seed on bytes (weighted.toml) and on the automaton (truncation.toml without its truncations), records what each
adapter reads on training data, truncates it by every method, and evaluates each on validation data. One line per figure is
appended to docs/results/weighted/small.jsonl; what is there already is not done again. `--table` prints the table.

Plan. Seeds 3, 4 and 5, each once, all methods at all orders, and nothing added or left out after a figure is seen. Seeds 0 to 2 were seen while the
fit of weights was chosen (order 0 or 1, about the mean) and while `--method h2` with a weight was written, so they are not in the table. Questions:
on bytes, is the better of `weighted` and `weighted-h2` at 16 and at 8 states at least as good as the best of `bt`, `svd`, `modal`, `hankel` and
`empirical`; on the automaton, is it no worse than `bt`? Told are means and ranges over the seeds, whatever they say.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
METHODS = {
    "bt": [],
    "svd": ["--method", "svd"],
    "modal": ["--method", "modal"],
    "energy": ["--method", "energy"],
    "hankel": ["--method", "hankel"],
    "h2": ["--method", "h2"],
    "empirical": ["--gramians", "empirical", "--states", "states.safetensors"],
    "weighted": ["--weight", "weights.safetensors"],
    "enns": ["--gramians", "enns", "--weight", "weights.safetensors"],
    "weighted-h2": ["--method", "h2", "--weight", "weights.safetensors"],
}
TASKS = {
    "bytes": {"config": "weighted.toml", "orders": [16, 8], "metric": "bits_per_character", "adapter": "hrm"},
    "automaton": {"config": "weighted_automaton.toml", "orders": [8, 4, 2], "metric": "loss", "adapter": "hrm"},
}


def call(*command, cwd):
    """Standard output of a command; its standard error is shown."""
    return subprocess.run([str(c) for c in command], cwd=cwd, check=True, stdout=subprocess.PIPE, text=True).stdout


def load(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def trained(arguments, task, seed, about):
    """The folder of a trained adapter, its run in `run`, and a function that gives the metric of an adapter on validation data."""
    train = arguments.programs / "train"
    folder = arguments.work / f"{task}-{seed}"
    if not (folder / "run" / "result.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        config = ROOT / "train" / "experiments" / about["config"]
        where = ["--set", f"task.path={arguments.bytes.resolve()}"] if task != "automaton" else []
        # A run that was cut off goes on where it was.
        more = ["--resume"] if (folder / "run").exists() else []
        call(train, "fit", config, "--out", "run", "--set", f"seed={seed}", *where, *more, cwd=folder)

    def evaluate(name, *options):
        text = call(train, "eval", "run", "--adapter", name, "--json", *options, cwd=folder)
        return json.loads(text)[0]["scores"]["metrics"][about["metric"]]

    return folder, evaluate


def measure(arguments, task, seed, done, write):
    """All figures of one adapter."""
    about, bt = TASKS[task], arguments.programs / "bt"
    folder, evaluate = trained(arguments, task, seed, about)
    adapter = folder / "run" / "adapters" / about["adapter"]

    def record(method, order, value, certificate=None):
        row = {"task": task, "seed": seed, "method": method, "order": order, "metric": about["metric"], "value": value}
        if certificate:
            row["layers"] = [
                {key: layer[key] for key in ("hinf_error", "hinf_norm", "h2_error", "h2_norm", "error_bound", "weighted") if key in layer}
                for layer in certificate["layers"]
            ]
        write(row)

    if (task, seed, "full", None) not in done:
        record("full", None, evaluate("hrm"))
    if not (folder / "weights.safetensors").exists():
        (folder / "states.safetensors").unlink(missing_ok=True)
        files = ["--record-states", "states.safetensors", "--record-inputs", "weights.safetensors"]
        evaluate("hrm", "--split", "train", "--sequences", "200", *files)
    for order in about["orders"]:
        for method, options in METHODS.items():
            if (task, seed, method, order) in done:
                continue
            out = f"{method}-{order}"
            # The weighted error of every method is measured.
            weight = [] if "--weight" in options else ["--weight", "weights.safetensors", "--gramians", "analytic"]
            weight = weight[:2] if "--gramians" in options else weight
            if not (folder / out).exists():
                call(bt, "reduce", adapter, "-o", out, "--order", order, *options, *weight, cwd=folder)
            certificate = json.loads((folder / out / "certificate.json").read_text())
            record(method, order, evaluate(out), certificate)


def table(rows):
    """Means over seeds, with the smallest and the largest."""
    for task, about in TASKS.items():
        of_task = [row for row in rows if row["task"] == task]
        if not of_task:
            continue
        seeds = sorted({row["seed"] for row in of_task})
        print(f"\n{task}: {about['metric']} on validation data, mean over seeds {seeds} (smallest to largest)\n")
        print("| method | " + " | ".join(f"{order} states" for order in about["orders"]) + " |")
        print("| --- |" + " --- |" * len(about["orders"]))
        for method in ["full", *METHODS]:
            cells = []
            for order in about["orders"]:
                asked = None if method == "full" else order
                values = [row["value"] for row in of_task if (row["method"], row["order"]) == (method, asked)]
                span = f"{statistics.mean(values):.4f} ({min(values):.4f} to {max(values):.4f})" if values else "-"
                cells.append(span)
            print(f"| `{method}` | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=Path, help="text of the byte task; left out, only the automaton is measured")
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 4, 5])
    parser.add_argument("--programs", type=Path, default=ROOT / "target" / "release", help="folder of train and bt")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "weighted", help="folder of the runs")
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "results" / "weighted" / "small.jsonl")
    parser.add_argument("--table", action="store_true", help="print the table of what was measured, and measure nothing")
    arguments = parser.parse_args()
    if not arguments.table:
        arguments.results.parent.mkdir(parents=True, exist_ok=True)
        done = {(row["task"], row["seed"], row["method"], row["order"]) for row in load(arguments.results)}

        def write(row):
            with arguments.results.open("a") as file:
                file.write(json.dumps(row) + "\n")

        tasks = ["automaton", "bytes"] if arguments.bytes else ["automaton"]
        for seed in arguments.seeds:
            for task in tasks:
                measure(arguments, task, seed, done, write)
    table(load(arguments.results))


if __name__ == "__main__":
    sys.exit(main())
