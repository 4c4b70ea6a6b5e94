"""Loading a model directory with safetensors."""

import json
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from sides.common import begin, difference

__all__ = ["Program", "begin"]


def touch(tensor):
    """One byte of every page, added up."""
    return int(tensor.view(torch.uint8).flatten()[::4096].sum(dtype=torch.int64))


class Program:
    def __init__(self, settings, inputs):
        self.directory = Path(settings["directory"])

    def open(self, name):
        shard = json.loads((self.directory / "model.safetensors.index.json").read_text())["weight_map"][name]
        with safe_open(self.directory / shard, "pt") as file:
            return file.get_tensor(name)

    def compare(self, outputs):
        name = "model.norm.weight"
        return {name: difference(self.open(name), load_file(outputs)[name])}

    def run(self, report):
        report.time("open, one tensor", lambda: touch(self.open("model.norm.weight")))

        def whole():
            index = json.loads((self.directory / "model.safetensors.index.json").read_text())
            shards = [load_file(self.directory / shard) for shard in sorted(set(index["weight_map"].values()))]
            return sum(touch(tensor) for shard in shards for tensor in shard.values())

        report.values["sum"] = report.time("whole model, every page", whole)
