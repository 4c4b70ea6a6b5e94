"""The table of a study of starts, by the rule that stands at the head of its file.

    train sweep stories260k.toml && train report runs/starts_stories260k-small --results results -o page.html
    python table.py results/starts_stories260k-small.jsonl

Each row at the rate with the least mean validation loss (a row whose loss is not a number has none there): test loss, mean and range over
the seeds, and the difference from `default`, paired by seed, with its 95 % t interval. With two files the rates are those of the
first, the figures those of the second.
"""

import json
import math
import statistics
import sys
from collections import defaultdict

# Quantiles 0.975 of Student's t by degrees of freedom.
T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}


def load(path):
    """Validation and test loss by row, rate and seed, and the numbers of parameters."""
    losses, parameters = defaultdict(lambda: defaultdict(dict)), {}
    with open(path) as lines:
        for cell in map(json.loads, lines):
            # A cell that diverged has no figures.
            rate, result = dict(cell["axes"]).get("lr"), cell.get("result", {"rows": []})
            for row in result["rows"]:
                parts = [row[part]["metrics"]["loss"] for part in ("validation", "test")]
                losses[row["name"]][rate][result["seed"]] = parts
                parameters[row["name"]] = row["parameters"]["adapter"]
    return losses, parameters


def interval(differences):
    n, mean = len(differences), statistics.fmean(differences)
    if n < 2:
        return f"{mean:+.3f}"
    half = T[n - 1] * statistics.stdev(differences) / math.sqrt(n)
    return f"{mean:+.3f} ({mean - half:+.3f} to {mean + half:+.3f})"


def main():
    first, *rest = sys.argv[1:]
    grid, parameters = load(first)
    seeds = load(rest[0])[0] if rest else None

    def best(row):
        of = {rate: statistics.fmean(v for v, _ in cells.values()) for rate, cells in grid[row].items()}
        return min(of, key=of.get)

    def tested(row):
        cells = next(iter(seeds[row].values())) if seeds else grid[row][best(row)]
        return {seed: test for seed, (_, test) in cells.items()}

    reference = tested("default")
    print("| row | parameters | rate | test loss | range over seeds | less `default` |\n| --- | --- | --- | --- | --- | --- |")
    for row in sorted(parameters, key=lambda row: statistics.fmean(tested(row).values())):
        test = tested(row)
        values = list(test.values())
        rate = best(row) if parameters[row] else ""
        apart = "" if row == "default" else interval([test[seed] - reference[seed] for seed in sorted(test)])
        mean, low, high = statistics.fmean(values), min(values), max(values)
        print(f"| {row} | {parameters[row]:,} | {rate} | {mean:.3f} | {low:.3f} to {high:.3f} | {apart} |")


main()
