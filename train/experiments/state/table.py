"""The table of `words`, by the rule in the `[plan]` of its file.

    train sweep words.toml && train report runs/words-small --results results -o page.html
    python table.py results/words-small.jsonl

Where a file has several learning rates, the validation loss at each and which one is best, for every group and row. Else:
how many seeds of every row are solved, with the mean accuracy; Fisher's exact tests of the pairs that the plan names, with Holm's correction
over those of groups that are complete; the accuracies over words of every length, mean and range over seeds.
"""

import json
import math
import statistics
import sys
from collections import defaultdict

SEEDS = 8
GROUPS = ["z2", "z3", "s3", "a5", "s5"]
LENGTHS = [32, 64, 128, 256, 512]
SOLVED = ("accuracy_to_128", 0.99)
# Group, the row that should solve more seeds, and the row that should solve fewer.
PAIRS = [
    ("z2", "selective-signed", "selective"),
    ("z2", "selective-signed", "hrm-signed"),
    ("z2", "householder", "delta"),
    ("z3", "rotation", "selective-signed"),
    ("z3", "rotation", "hrm-complex"),
    ("z3", "rotation", "lora"),
    ("s3", "householder-2", "rotation"),
    ("s3", "householder-2", "householder"),
    ("s3", "householder-2", "delta"),
    ("s3", "householder-2", "lora"),
    ("a5", "householder-2", "rotation"),
    ("s5", "householder-2", "rotation"),
]


def load(path):
    """Test metrics by group, row and seed, and the numbers of parameters. A row without figures, or a cell that diverged, has none."""
    figures, parameters = defaultdict(lambda: defaultdict(dict)), {}
    with open(path) as lines:
        for cell in map(json.loads, lines):
            axes = dict(cell["axes"])
            group = figures[axes["group"]]
            for row in cell.get("result", {"rows": []})["rows"]:
                group[row["name"]][axes["seed"]] = (row.get("test") or {"metrics": {}})["metrics"]
                parameters[row["name"]] = row["parameters"]["adapter"]
            group[None][axes["seed"]] = {}
    return figures, parameters


def rates(path):
    """The table of validation losses by learning rate, mean over seeds; None if the file has one rate."""
    losses = defaultdict(lambda: defaultdict(list))
    with open(path) as lines:
        for cell in map(json.loads, lines):
            axes = dict(cell["axes"])
            if "lr" not in axes:
                return None
            for row in cell.get("result", {"rows": []})["rows"]:
                if row.get("training"):
                    loss = row["validation"]["metrics"].get("loss")
                    losses[axes["group"], row["name"]][axes["lr"]].append(math.inf if loss is None else loss)
    names = sorted({rate for by_rate in losses.values() for rate in by_rate}, key=float)
    lines = ["| group | row | " + " | ".join(names) + " | best |", "| --- | --- |" + " --- |" * (len(names) + 1)]
    # By group, as the plan has them, and rows in their order.
    for (group, row), by_rate in sorted(losses.items(), key=lambda entry: GROUPS.index(entry[0][0])):
        means = {rate: statistics.fmean(values) for rate, values in by_rate.items()}
        columns = " | ".join(f"{means[rate]:.4f}" if rate in means else "" for rate in names)
        lines.append(f"| {group.upper()} | {row} | {columns} | {min(means, key=means.get)} |")
    return "\n".join(lines)


def fisher(more, fewer, n):
    """The probability of at least `more` successes in the first of two samples of `n`, given those of both together."""
    total, ways = more + fewer, math.comb(2 * n, more + fewer)
    return sum(math.comb(n, k) * math.comb(n, total - k) for k in range(more, min(n, total) + 1)) / ways


def holm(p):
    order, corrected, largest = sorted(range(len(p)), key=p.__getitem__), [0.0] * len(p), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p) - rank) * p[i]))
        corrected[i] = largest
    return corrected


def solved(cells):
    name, least = SOLVED
    return sum((metrics.get(name) or 0.0) > least for metrics in cells.values())


def mean(cells):
    values = [metrics.get(SOLVED[0]) for metrics in cells.values()]
    return f"{statistics.fmean(value for value in values if value is not None):.3f}"


def span(values):
    # A figure that is not finite is null.
    values = [value for value in values if value is not None]
    return f"{statistics.fmean(values):.3f} ({min(values):.3f} to {max(values):.3f})" if values else ""


def main():
    if table := rates(sys.argv[1]):
        print(table)
        return
    figures, parameters = load(sys.argv[1])
    groups = [group for group in GROUPS if group in figures]
    seeds = {group: len(figures[group].pop(None)) for group in groups}
    rows = list(figures[groups[0]])
    print("| row | parameters | " + " | ".join(f"{group.upper()}: solved, accuracy to 128" for group in groups) + " |")
    print("| --- | --- |" + " --- |" * len(groups))
    for row in rows:
        columns = [f"{solved(cells)} of {seeds[group]}, {mean(cells)}" for group in groups for cells in [figures[group][row]]]
        print(f"| {row} | {parameters[row]:,} | " + " | ".join(columns) + " |")
    pairs = [pair for pair in PAIRS if seeds.get(pair[0]) == SEEDS]
    counts = [(solved(figures[group][more]), solved(figures[group][fewer])) for group, more, fewer in pairs]
    p = [fisher(*count, SEEDS) for count in counts]
    print("\n| group | more | fewer | solved | p | Holm |\n| --- | --- | --- | --- | --- | --- |")
    for (group, more, fewer), count, raw, corrected in zip(pairs, counts, p, holm(p)):
        print(f"| {group.upper()} | {more} | {fewer} | {count[0]} to {count[1]} | {raw:.4f} | {corrected:.4f} |")
    for group in groups:
        if seeds[group] != SEEDS:
            print(f"\n{group} is not complete: no conclusion is drawn.")
    print("\n| group | row | " + " | ".join(f"to {length}" for length in LENGTHS) + " |")
    print("| --- | --- |" + " --- |" * len(LENGTHS))
    for group in groups:
        for row in rows:
            cells = figures[group][row].values()
            spans = [span([metrics.get(f"accuracy_to_{length}") for metrics in cells]) for length in LENGTHS]
            print(f"| {group.upper()} | {row} | " + " | ".join(spans) + " |")


if __name__ == "__main__":
    main()
