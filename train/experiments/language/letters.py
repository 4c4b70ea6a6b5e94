"""How often each letter is the answer to a test question of QuALITY, by row and fold.

    python letters.py runs/documents-quality > results/documents-quality-letters.txt

Reads the answers that a run keeps in `predictions/`. What does not begin with a letter that a question has counts as "other". The row `right`
has the letters of the right answers.
"""

import json
import sys
from collections import Counter
from pathlib import Path


def letter(answer):
    answer = answer.strip()
    return answer[0] if answer[:1] in tuple("ABCD") and not answer[1:2].isalnum() else "other"


def main():
    right = {}
    for path in sorted(Path(sys.argv[1]).glob("*/*/predictions/*-test.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        row, fold = path.parts[-3], path.parts[-4].rsplit("-", 1)[1]
        right[fold] = [line["references"][0] for line in lines]
        show(row, fold, [line["prediction"] for line in lines])
    for fold, answers in right.items():
        show("right", fold, answers)


def show(row, fold, answers):
    print(json.dumps({"row": row, "fold": fold, "letters": dict(sorted(Counter(map(letter, answers)).items()))}))


if __name__ == "__main__":
    main()
