"""A linear layer with a frozen weight in PyTorch: dense, or in 4 bits by bitsandbytes."""

import warnings

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from sides.common import begin, difference

__all__ = ["Program", "begin"]

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def packed(weight, dtype):
    """The layer of bitsandbytes. The values are 4-bit floats already but for the rounding to bf16."""
    import bitsandbytes

    layer = bitsandbytes.nn.Linear4bit(
        weight.shape[1],
        weight.shape[0],
        bias=False,
        compute_dtype=dtype,
        compress_statistics=False,
        quant_type="nf4",
    )
    layer.weight = bitsandbytes.nn.Params4bit(
        weight.to(dtype), requires_grad=False, compress_statistics=False, quant_type="nf4"
    )
    return layer.to("cpu")


class Program:
    def __init__(self, settings, inputs):
        warnings.simplefilter("ignore")
        tensors = load_file(inputs)
        dtype = TYPES[settings["type"]]
        self.x = tensors["x"].to(dtype).requires_grad_(True)
        self.g = tensors["g"].to(dtype)
        if settings["way"] == "bitsandbytes":
            self.forward = torch.nn.Sequential(packed(tensors["weight"], dtype))
        else:
            weight = tensors["weight"].to(dtype)
            self.forward = lambda x: F.linear(x, weight)

    def input_gradient(self, y):
        return torch.autograd.grad(y, self.x, self.g)[0]

    def compare(self, outputs):
        ours = load_file(outputs)
        y = self.forward(self.x)
        own = {"gradient/x": self.input_gradient(y), "y": y}
        return {name: difference(own[name], ours[name]) for name in own}

    def run(self, report):
        with torch.no_grad():
            report.time("forward", lambda: self.forward(self.x))
        y = self.forward(self.x)
        report.time("input gradient", lambda: self.input_gradient(y))
