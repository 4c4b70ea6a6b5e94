"""Loading a model directory of 2.3 GB in bf16: safetensors with PyTorch beside ours."""

import shutil
import tempfile
from pathlib import Path

from harness import Entry
from tables import Section

SIZES = {"layers": 4, "d_model": 4096, "d_ff": 14336, "vocabulary": 32000}


def run(race, options):
    directory = Path(tempfile.mkdtemp(dir=race.folder)) / "model"
    settings = {"comparison": "load", "directory": str(directory)} | SIZES
    section = Section(
        "Loading a model of 2.3 GB in bf16, in the page cache",
        "Ours maps the files, checks every value for being finite, and leaves the weights where they are.",
    )
    try:
        section.add(
            race.run(
                options.chosen(
                    [
                        Entry("ours", settings, group="load"),
                        Entry("safetensors.torch", settings, "load", group="load"),
                    ]
                )
            )
        )
    finally:
        shutil.rmtree(directory.parent, ignore_errors=True)
    for measure in ("open, one tensor", "whole model, every page"):
        section.ratio(f"{measure}: safetensors.torch / ours", ("safetensors.torch", measure), ("ours", measure))
    yield section
