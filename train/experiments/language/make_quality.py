"""Divides the questions of QuALITY that L-Eval has (15 articles, 202 questions of four options) into five folds for `documents`.

    python make_quality.py quality.jsonl DIRECTORY

quality.jsonl is LEval-data/Closed-ended-tasks/quality.jsonl of github.com/OpenLMLab/LEval, or articles in QuALITY's own form. By the order of
their words, every fifth article is in `test-0`, the ones behind them in `validation-0`, the others in `train-0`; `test-1` begins one later, and
so on, so that every article is in one test. The files have QuALITY's form.
"""

import argparse
import json
import re
from pathlib import Path

FOLDS = 5
OPTION = re.compile(r"\(([A-Z])\)")


def words(article):
    return " ".join(article["article"].split())


def article(record):
    """A line of L-Eval in QuALITY's form; one that has it already as it is."""
    if "questions" in record:
        return {"article": record["article"], "questions": record["questions"]}
    questions = []
    for asked, answer in zip(record["instructions"], record["outputs"]):
        question, *options = OPTION.split(asked)
        letters, texts = options[::2], [option.strip() for option in options[1::2]]
        right = OPTION.match(answer.strip())
        if not right or right[1] not in letters:
            print(f"left out, its answer is none of its options: {asked.strip()[:80]}")
            continue
        label = letters.index(right[1]) + 1
        questions.append({"question": question.strip(), "options": texts, "gold_label": label})
    return {"article": record["input"], "questions": questions}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    articles = {}
    with open(args.source) as lines:
        for one in (article(json.loads(line)) for line in lines if line.strip()):
            # QuALITY has some articles on several lines, with other questions on each.
            articles.setdefault(words(one), one | {"questions": []})["questions"].extend(one["questions"])
    articles = [articles[key] for key in sorted(articles)]
    args.folder.mkdir(parents=True, exist_ok=True)
    for fold in range(FOLDS):
        parts = {"test": [], "validation": [], "train": []}
        for place, one in enumerate(articles):
            parts[{0: "test", 1: "validation"}.get((place - fold) % FOLDS, "train")].append(one)
        for part, own in parts.items():
            path = args.folder / f"{part}-{fold}.jsonl"
            path.write_text("".join(json.dumps(one) + "\n" for one in own))
            print(f"{path}: {len(own)} articles, {sum(len(one['questions']) for one in own)} questions")


if __name__ == "__main__":
    main()
