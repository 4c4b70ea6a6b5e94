"""Divides MAESTRO by composer: one part to pretrain on, one to adapt to.

    python split_maestro.py data/maestro data

writes data/maestro-from-beethoven and data/maestro-to-mozart, each with a table of its pieces and copies of their files. Arrangements by
a second composer are in neither. The division into train, validation and test is that of the table.
"""

import csv
import shutil
import sys
from pathlib import Path

# Born before Beethoven (1770), among the composers of MAESTRO.
EARLIER = {
    "Antonio Soler",
    "Domenico Scarlatti",
    "George Frideric Handel",
    "Henry Purcell",
    "Jean-Philippe Rameau",
    "Johann Pachelbel",
    "Johann Sebastian Bach",
    "Joseph Haydn",
    "Muzio Clementi",
    "Orlando Gibbons",
    "Wolfgang Amadeus Mozart",
}


def pieces(directory):
    """The pieces of the table whose files are there, with their paths."""
    for table in sorted(directory.glob("*.csv")):
        with open(table, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        names = [row.get("file") or row["midi_filename"] for row in rows]
        if names and (directory / names[0]).is_file():
            return [(row, name) for row, name in zip(rows, names) if (directory / name).is_file()]
    sys.exit(f"{directory}: no table whose first piece is there")


def write(source, target, found):
    target.mkdir(parents=True, exist_ok=True)
    with open(target / "maestro.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["file", "split", "canonical_composer", "canonical_title"])
        for row, name in found:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, target / name)
            table.writerow([name, row["split"], row["canonical_composer"], row["canonical_title"]])
    print(f"{target}: {len(found)} pieces")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    found = [(row, name) for row, name in pieces(source) if "/" not in row["canonical_composer"]]
    earlier = [(row, name) for row, name in found if row["canonical_composer"] in EARLIER]
    later = [(row, name) for row, name in found if row["canonical_composer"] not in EARLIER]
    write(source, target / "maestro-from-beethoven", later)
    write(source, target / "maestro-to-mozart", earlier)
