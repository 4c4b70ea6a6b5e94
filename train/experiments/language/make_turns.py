"""Writes turns-*.jsonl into a directory: conversations in whose first turn a code word is said, which is asked for in the last.

    python make_turns.py DIRECTORY

Between them lie turns of small talk: 1 to 4 in `train` and `validation`, 8 in `test`. Every turn begins with `User:`. Sixteen words, so that
guessing is right in 1 of 16 answers.
"""

import argparse
import json
import random
from pathlib import Path

WORDS = "amber bread cedar dragon eagle forest garden harbor island jacket kitten lemon marble needle ocean piano".split()
TALK = [
    ("The train was late today.", "That happens."),
    ("I had soup for lunch.", "Sounds good."),
    ("It may rain tonight.", "Take a coat."),
    ("My sister called again.", "How nice."),
    ("The shop is closed.", "Try tomorrow."),
    ("I lost a glove.", "What a pity."),
    ("The film was too long.", "I see."),
    ("We need more chairs.", "How many?"),
]


def record(draw, between):
    word = draw.choice(WORDS)
    turns = [(f"The code word is {word}.", "Noted.")] + [draw.choice(TALK) for _ in range(between)]
    said = "".join(f"User: {user}\nAssistant: {assistant}\n" for user, assistant in turns)
    prompt = f"{said}User: What is the code word?\nAssistant: The code word is"
    return {"prompt": prompt, "completion": f" {word}.", "turns": between}


def write(path, seed, count, between):
    draw = random.Random(seed)
    with open(path, "w") as file:
        for _ in range(count):
            file.write(json.dumps(record(draw, between(draw))) + "\n")
    print(f"{path}: {count} records")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "turns-train.jsonl", 1, 4000, lambda draw: draw.randint(1, 4))
    write(folder / "turns-validation.jsonl", 2, 100, lambda draw: draw.randint(1, 4))
    write(folder / "turns-test.jsonl", 3, 100, lambda _: 8)


if __name__ == "__main__":
    main()
