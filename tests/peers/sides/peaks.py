"""A large product and a large copy in PyTorch."""

import torch
from safetensors.torch import load_file

from sides.common import begin, difference

__all__ = ["Program", "begin"]


class Program:
    def __init__(self, settings, inputs):
        tensors = load_file(inputs)
        self.a, self.b = tensors["a"], tensors["b"]
        self.source = torch.ones(settings["megabytes"] * 1_000_000, dtype=torch.uint8)
        self.target = torch.empty_like(self.source)

    def compare(self, outputs):
        return {"product": difference(self.a @ self.b.T, load_file(outputs)["product"])}

    def run(self, report):
        report.time("product", lambda: self.a @ self.b.T)
        report.time("copy", lambda: self.target.copy_(self.source))
