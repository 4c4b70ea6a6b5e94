"""Writes entities-*.jsonl into a directory: things that change places between boxes, told in English, and a question where one is.

    python make_entities.py DIRECTORY

Five boxes hold a thing each. Every sentence swaps what is in two of them, and the last one asks what is in one: the product of transpositions
of five, as in the word problem of S5, so that the last sentence that names a box does not tell what is in it. `train` and `validation` have 1 to 8
sentences; `test-N` have N. Printed is what two rules without a memory know of each file: that nothing was moved, and that the last swap of the box
asked for was between things where they began.
"""

import argparse
import json
import random
from pathlib import Path

THINGS = "apple book candle coin comb cup fork glove hammer key knife lamp map mirror pen ring rope scarf spoon stone".split()
BOXES = "ABCDE"
SWAPS = [
    "Swap what is in box {x} and box {y}.",
    "Box {x} and box {y} exchange what they hold.",
    "What is in box {x} goes to box {y}, and the other way round.",
]


def record(draw, operations):
    things = draw.sample(THINGS, len(BOXES))
    sentences = ["Box A holds the {}, box B the {}, box C the {}, box D the {} and box E the {}.".format(*things)]
    now, asked, last = list(things), draw.randrange(len(BOXES)), None
    for _ in range(operations):
        x, y = draw.sample(range(len(BOXES)), 2)
        sentences.append(draw.choice(SWAPS).format(x=BOXES[x], y=BOXES[y]))
        now[x], now[y] = now[y], now[x]
        if asked in (x, y):
            last = y if asked == x else x
    prompt = " ".join(sentences) + f" Now box {BOXES[asked]} holds the"
    rules = (things[asked], things[asked if last is None else last])
    return {"prompt": prompt, "completion": f" {now[asked]}", "operations": operations}, rules


def write(path, seed, count, operations):
    draw = random.Random(seed)
    known = [0, 0]
    with open(path, "w") as file:
        for _ in range(count):
            line, rules = record(draw, operations(draw))
            file.write(json.dumps(line) + "\n")
            for rule, answer in enumerate(rules):
                known[rule] += line["completion"] == f" {answer}"
    print(f"{path}: {count} records; nothing moved {known[0] / count:.3f}, last swap alone {known[1] / count:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "entities-train.jsonl", 1, 8000, lambda draw: draw.randint(1, 8))
    write(folder / "entities-validation.jsonl", 2, 200, lambda draw: draw.randint(1, 8))
    for n, seed in ((8, 3), (16, 4), (32, 5), (64, 6)):
        write(folder / f"entities-test-{n}.jsonl", seed, 200, lambda _, n=n: n)


if __name__ == "__main__":
    main()
