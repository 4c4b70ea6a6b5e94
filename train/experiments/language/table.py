"""Tables of `entities`, `documents` and `turns`, by the rule in the `[plan]` of their files.

    train report runs/entities-full --results results -o page.html
    python table.py results/entities-full.jsonl

Several files of one experiment are one table: rows that were run at a scale of their own stand beside the others. For every point of the grid and
row: means over seeds of the test split, beside the score on the validation split, whose texts are as long as those trained on. Then the differences
from HRM of both scores and of what was forgotten, paired by seed, with their 95 % intervals, their p, and Holm's correction over all of these; and that
of the loss of the answers beside it, whose p is not corrected.
A row that does not beat `none`, still learns, or diverged in a seed is named. Where a file has several learning rates, every row is at that of its
least validation loss, averaged over seeds.
"""

import argparse
import json
import math
import statistics
from collections import defaultdict

PRIMARY = {"jsonl": "exact_match", "quality": "accuracy", "qmsum": "rouge1"}
BASE = "hrm"
# Seeds of each scale.
SCALES = {"smoke": 1, "pilot": 1, "small": 3, "full": 3, "smollm2-pilot": 1, "smollm2": 3}
SCALES |= {"qmsum-pilot": 1, "qmsum": 3, "qmsum-rivals-pilot": 1, "qmsum-rivals": 3, "qmsum-nf4": 3, "nf4": 3, "quality": 5}


def load(paths):
    """Rows by point, name, rate and seed; the kind of task of each point; the scale, the rows that diverged, or the cells, and how many cells lack
    rows: those are left out."""
    rows, kinds = defaultdict(lambda: defaultdict(lambda: defaultdict(dict))), {}
    scale, diverged, lacking = None, [], 0
    for path in paths:
        with open(path) as lines:
            cells = [json.loads(line) for line in lines]
        for cell in cells:
            if cell.get("planned_rows"):
                lacking += 1
                continue
            axes = dict(cell["axes"])
            seed, rate, scale = axes.pop("seed"), axes.pop("lr", ""), cell.get("scale")
            point = ", ".join(f"{axis} {value}" for axis, value in axes.items())
            for row in (cell.get("result") or {"rows": []})["rows"]:
                rows[point][row["name"]][rate][seed] = row
            if cell.get("result"):
                kinds[point] = cell["result"]["task"]["kind"]
            where = ", ".join(f"{axis} {value}" for axis, value in cell["axes"])
            diverged += [((point, name, rate), f"{name} at {where}") for name in cell.get("diverged_rows", {})]
            if not cell.get("result"):
                diverged.append(((point, None, rate), where))
    return rows, kinds, scale, diverged, lacking


def at_its_own(rates):
    """The seeds of a row at the rate of its least validation loss."""
    loss = {rate: [finite(row["validation"]["metrics"]["loss"]) for row in seeds.values()] for rate, seeds in rates.items()}
    most = max(map(len, loss.values()))
    best = min((rate for rate in loss if len(loss[rate]) == most), key=lambda rate: statistics.fmean(loss[rate]))
    return best, rates[best]


def finite(value):
    """A loss that is not finite is null."""
    return math.inf if value is None else value


def figure(row, metric):
    """Of the test split; what is measured once for a row stands with the validation split."""
    split = row["validation"] if metric == "forgetting" or not row.get("test") else row["test"]
    return split["metrics"].get(metric)


def learning(seeds, none):
    """Whether the line through the last fifth of the curve, continued for as long, falls by 2 % of the gain over `none`, on average over
    seeds, of which none that rises makes up for one that falls; None where a curve is missing."""
    fall, gain = 0.0, 0.0
    for seed, row in seeds.items():
        training = row.get("training") or {}
        steps = training.get("steps", 0)
        last = [point for point in training.get("curve", []) if point[0] >= 0.8 * steps]
        if len(last) < 2:
            return None
        fall += max(0.0, -statistics.linear_regression(*zip(*last)).slope * 0.2 * steps)
        gain += none[seed]["validation"]["metrics"]["loss"] - row["validation"]["metrics"]["loss"]
    return fall >= 0.02 * gain


def student(difference):
    """Two-sided p of Student's t; of differences that are all the same, that of a sign test."""
    n, middle = len(difference), statistics.fmean(difference)
    sd = statistics.stdev(difference)
    if sd <= 1e-12 * abs(middle):
        return 0.5 ** (n - 1) if middle else 1.0
    return beyond(abs(middle) / (sd / math.sqrt(n)), n - 1)


def paired(of, seeds, base):
    """The mean difference from the seeds of `base` with its 95 % interval, and its p; None where there are too few."""
    known = [seed for seed in seeds if of and seed in base and of(seeds[seed]) is not None and of(base[seed]) is not None]
    difference = [of(seeds[seed]) - of(base[seed]) for seed in known]
    if len(difference) < 2:
        return None
    half = quantile(len(difference) - 1) * statistics.stdev(difference) / math.sqrt(len(difference))
    middle = statistics.fmean(difference)
    return f"{middle:+.3f} ({middle - half:+.3f} to {middle + half:+.3f})", student(difference)


def quantile(f):
    """Quantile 0.975 of Student's t."""
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle, f) > 0.05 else (low, middle)
    return high


def beyond(t, f):
    """The probability of a larger |t|, by the incomplete beta function's closed forms."""
    theta = math.atan(t / math.sqrt(f))
    if f % 2:
        term, total = math.cos(theta), 0.0
        for k in range(1, f, 2):
            total += term
            term *= math.cos(theta) ** 2 * (k + 1) / (k + 2)
        inside = 2 / math.pi * (theta + math.sin(theta) * total)
    else:
        term, total = 1.0, 0.0
        for k in range(0, f, 2):
            total += term
            term *= math.cos(theta) ** 2 * (k + 1) / (k + 2)
        inside = math.sin(theta) * total
    return 1.0 - inside


def holm(p):
    order, corrected, largest = sorted(range(len(p)), key=p.__getitem__), [0.0] * len(p), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p) - rank) * p[i]))
        corrected[i] = largest
    return corrected


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+")
    rows, kinds, scale, diverged, lacking = load(parser.parse_args().results)
    complete = not lacking
    lines, differences = [], []
    for point, names in rows.items():
        metric = PRIMARY[kinds[point]]
        chosen = {name: at_its_own(rates) for name, rates in names.items()}
        # A pilot may have no `none`, and HRM may have diverged.
        none, base = (chosen.get(name, ("", {}))[1] for name in ("none", BASE))
        # In how many seeds a row diverged at its rate.
        ended = {name: sum(at in [(point, name, rate), (point, None, rate)] for at, _ in diverged) for name, (rate, _) in chosen.items()}
        for name, (rate, seeds) in chosen.items():
            values = {seed: figure(row, metric) for seed, row in seeds.items()}
            mean = statistics.fmean(values.values())
            trained = statistics.fmean(row["validation"]["metrics"][metric] for row in seeds.values())
            loss = statistics.fmean(figure(row, "loss") for row in seeds.values())
            forgotten = [figure(row, "forgetting") for row in seeds.values()]
            forgotten = statistics.fmean(f for f in forgotten if f is not None) if any(f is not None for f in forgotten) else math.nan
            notes = []
            if name != "none" and none:
                gains = [figure(row, metric) - figure(none[seed], metric) for seed, row in seeds.items() if seed in none]
                if statistics.fmean(gains) <= 0:
                    notes.append("no better than none")
                still = learning({seed: row for seed, row in seeds.items() if seed in none}, none)
                notes += ["still learning"] if still else ["no curve"] if still is None else []
            if name != BASE:
                trained_on = lambda row: row["validation"]["metrics"][metric]
                tested = lambda row: figure(row, metric)
                forgets = (lambda row: figure(row, "forgetting")) if name != "none" else None
                loses = lambda row: figure(row, "loss")
                tests = [paired(of, seeds, base) for of in (trained_on, tested, forgets, loses)]
                # What is left of rows that diverged shows neither side.
                lost = ended[name] or ended.get(BASE)
                differences.append((point, name, [(found[0], None) if found and lost else found for found in tests]))
            count = next(iter(seeds.values()))["parameters"]["adapter"]
            if ended[name]:
                notes.append(f"{ended[name]} diverged")
            if len(seeds) + ended[name] != SCALES.get(scale, 3):
                complete = False
                notes.append(f"{len(seeds)} seeds only")
            lines.append(
                [point, name, f"{count:,}", rate, f"{trained:.3f}", f"{mean:.3f}", f"{loss:.3f}", f"{forgotten:+.3f}", "; ".join(notes)]
            )
    print("| | row | parameters | rate | as trained | score | loss | forgetting | |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for line in lines:
        print("| " + " | ".join(line) + " |")
    corrected = iter(holm([found[1] for *_, tests in differences for found in tests[:3] if found and found[1] is not None]))
    print("\n| less hrm | row | as trained | p | Holm | score | p | Holm | forgetting | p | Holm | loss | p |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for point, name, tests in differences:
        cells = []
        for place, found in enumerate(tests):
            own = found[1] if found else None
            shown = "" if own is None else "< 0.0001" if own < 1e-4 else f"{own:.4f}"
            p = [shown] if place == 3 else [shown, "" if own is None else f"{next(corrected):.3f}"]
            cells += [found[0] if found else "", *(p if complete else [""] * len(p))]
        print("| " + " | ".join([point, name, *cells]) + " |")
    if diverged:
        print("\nDiverged: " + "; ".join(where for _, where in diverged) + ".")
    if not complete:
        print("\nCells are missing: no conclusion is drawn.")


if __name__ == "__main__":
    main()
