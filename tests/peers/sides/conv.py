"""The diagonal recurrence and the causal convolution in PyTorch."""

import torch
from safetensors.torch import load_file

from sides.common import begin, difference
from sides.step import recurrence_fft, recurrence_loop

__all__ = ["Program", "begin"]


def convolution(u, kernel):
    """u [batch, T, d], kernel [d, T]."""
    steps = u.shape[1]
    spectrum = torch.fft.rfft(u.transpose(1, 2), n=2 * steps) * torch.fft.rfft(kernel, n=2 * steps)
    return torch.fft.irfft(spectrum, n=2 * steps)[..., :steps].transpose(1, 2)


class Program:
    def __init__(self, settings, inputs):
        tensors = load_file(inputs)
        self.u, self.g, self.filter = tensors["u"].requires_grad_(True), tensors["g"], tensors["filter"]
        self.filter.requires_grad_(True)
        self.way, self.calls = settings["way"], settings["calls"]

    def forward(self):
        match self.way:
            case "fft":
                return recurrence_fft(self.u, -torch.log(self.filter))
            case "loop":
                return recurrence_loop(self.u, -torch.log(self.filter))
            case "convolution":
                return convolution(self.u, self.filter)

    def differentiate(self):
        y = self.forward()
        return y, *torch.autograd.grad(y, [self.u, self.filter], self.g)

    def compare(self, outputs):
        ours = load_file(outputs)
        y, d_u, d_filter = self.differentiate()
        own = {"y": y, "gradient/u": d_u, "gradient/filter": d_filter}
        return {name: difference(own[name], ours[name]) for name in own}

    def run(self, report):
        with torch.no_grad():
            report.mean("forward", self.calls, self.forward)
        report.mean("forward and backward", self.calls, self.differentiate)
