"""The table of `words`, by the rule in the `[plan]` of its file.

    train sweep words.toml && train report runs/words-small --results results -o page.html
    python table.py results/words-small.jsonl

Where a file has several learning rates, the validation loss at each, and every row is at its best one. Then
how many seeds of every row are solved, with the mean accuracy; Fisher's exact tests of the pairs that the plan names, with Holm's correction
over those of groups that are complete; the accuracies over words of every length, mean and range over seeds; the validation loss, and how many
seeds still learn when training ends.
"""

import argparse
import json
import math
import statistics
from collections import defaultdict

SEEDS = 8
GROUPS = ["z2", "z3", "s3", "a5", "s5"]
ORDERS = {"z2": 2, "z3": 3, "s3": 6, "a5": 60, "s5": 120}
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
# A scale with numbers of its own.
SCALES = {"smollm2-s3": (5, [("s3", "householder-2", "lora-all"), ("s3", "householder-2", "hrm-signed")])}


def load(path):
    """Test metrics by group, row, rate and seed, validation losses and whether it still learns likewise, numbers of parameters, and seeds
    by group, and the scale. A row without figures, or a cell that diverged, has no metrics."""
    figures, losses, learning = (defaultdict(lambda: defaultdict(lambda: defaultdict(dict))) for _ in range(3))
    parameters, seeds, scale = {}, defaultdict(lambda: defaultdict(set)), None
    with open(path) as lines:
        for cell in map(json.loads, lines):
            # Not all of its rows are there yet.
            if cell.get("planned_rows"):
                continue
            axes, scale = dict(cell["axes"]), cell.get("scale")
            group, rate, seed = axes["group"], axes.get("lr", ""), axes["seed"]
            seeds[group][rate].add(seed)
            for row in (cell.get("result") or {"rows": []})["rows"]:
                loss = row["validation"]["metrics"].get("loss")
                losses[group][row["name"]][rate][seed] = math.inf if loss is None else loss
                learning[group][row["name"]][rate][seed] = still_learning(row, group)
                figures[group][row["name"]][rate][seed] = (row.get("test") or {"metrics": {}})["metrics"]
                parameters[row["name"]] = row["parameters"]["adapter"]
    # A group is as complete as the rate with the fewest cells.
    return figures, losses, learning, parameters, {group: min(map(len, rates.values())) for group, rates in seeds.items()}, scale


def still_learning(row, group):
    """Whether the line through the validation losses of the last fifth of the steps, that of the end included, continued for as long, falls
    by 2 % of the loss of guessing; None where no two of them were measured."""
    training = row.get("training") or {"steps": 0}
    # Evaluations during training are on the same sequences as the one at the end.
    end = row["validation"]["metrics"].get("loss")
    curve = training.get("curve", []) + ([] if end is None else [[training["steps"], end]])
    last = [point for point in curve if point[0] >= 0.8 * training["steps"]]
    if len(last) < 2:
        return None
    slope = statistics.linear_regression(*zip(*(point[:2] for point in last))).slope
    return -slope * 0.2 * training["steps"] >= 0.02 * math.log(ORDERS[group])


def best(losses):
    """The rate of the least validation loss, averaged over seeds. A rate at which cells diverged is not compared by the others."""
    most = max(map(len, losses.values()))
    return min((rate for rate in losses if len(losses[rate]) == most), key=lambda rate: statistics.fmean(losses[rate].values()))


def rates(losses, parameters, groups):
    """The table of validation losses by rate."""
    names = sorted({rate for group in groups for by_rate in losses[group].values() for rate in by_rate}, key=float)
    print("| group | row | " + " | ".join(names) + " | best |")
    print("| --- | --- |" + " --- |" * (len(names) + 1))
    for group in groups:
        for row, by_rate in losses[group].items():
            if parameters[row] == 0:
                continue
            columns = [f"{statistics.fmean(by_rate[rate].values()):.4f}" if rate in by_rate else "" for rate in names]
            print(f"| {group.upper()} | {row} | " + " | ".join(columns) + f" | {best(by_rate)} |")


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
    values = [value for value in values if value is not None]
    return f"{statistics.fmean(values):.3f}" if values else "-"


def span(values):
    # A figure that is not finite is null.
    values = [value for value in values if value is not None]
    return f"{statistics.fmean(values):.3f} ({min(values):.3f} to {max(values):.3f})" if values else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results")
    figures, losses, learning, parameters, seeds, scale = load(parser.parse_args().results)
    planned, pairs = SCALES.get(scale, (SEEDS, PAIRS))
    groups = [group for group in GROUPS if group in figures]
    if any(rate for group in groups for by_rate in losses[group].values() for rate in by_rate):
        rates(losses, parameters, groups)
        if all(seeds[group] != planned for group in groups):
            return
        print()
    figures = {group: {row: of_row[best(losses[group][row])] for row, of_row in figures[group].items()} for group in groups}
    if not groups:
        print("Cells are missing: no conclusion is drawn.")
        return
    rows = list(figures[groups[0]])
    print("| row | parameters | " + " | ".join(f"{group.upper()}: solved, accuracy to 128" for group in groups) + " |")
    print("| --- | --- |" + " --- |" * len(groups))
    for row in rows:
        columns = [f"{solved(cells)} of {seeds[group]}, {mean(cells)}" for group in groups for cells in [figures[group][row]]]
        print(f"| {row} | {parameters[row]:,} | " + " | ".join(columns) + " |")
    pairs = [pair for pair in pairs if seeds.get(pair[0]) == planned]
    counts = [(solved(figures[group][more]), solved(figures[group][fewer])) for group, more, fewer in pairs]
    p = [fisher(*count, planned) for count in counts]
    print("\n| group | more | fewer | solved | p | Holm |\n| --- | --- | --- | --- | --- | --- |")
    for (group, more, fewer), count, raw, corrected in zip(pairs, counts, p, holm(p)):
        print(f"| {group.upper()} | {more} | {fewer} | {count[0]} to {count[1]} | {raw:.4f} | {corrected:.4f} |")
    for group in groups:
        if seeds[group] != planned:
            print(f"\n{group} is not complete: no conclusion is drawn.")
    print("\n| group | row | " + " | ".join(f"to {length}" for length in LENGTHS) + " |")
    print("| --- | --- |" + " --- |" * len(LENGTHS))
    for group in groups:
        for row in rows:
            cells = figures[group][row].values()
            spans = [span([metrics.get(f"accuracy_to_{length}") for metrics in cells]) for length in LENGTHS]
            print(f"| {group.upper()} | {row} | " + " | ".join(spans) + " |")
    print("\n| group | row | validation loss | still learning |\n| --- | --- | --- | --- |")
    for group in groups:
        for row in rows:
            rate = best(losses[group][row])
            still = list(learning[group][row][rate].values())
            told = "" if None in still else f"{sum(still)} of {seeds[group]}"
            print(f"| {group.upper()} | {row} | {span(losses[group][row][rate].values())} | {told} |")


if __name__ == "__main__":
    main()
