"""TinyGPT in PyTorch: what a careful user would write, without anything that the step does not need."""

import math

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from sides.common import Optimizer, begin, difference

__all__ = ["Program", "begin"]


def attention_sdpa(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def attention_eager(q, k, v):
    steps = q.shape[-2]
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    mask = torch.ones(steps, steps, dtype=torch.bool).triu(1)
    return scores.masked_fill_(mask, -math.inf).softmax(-1) @ v


def recurrence_fft(u, rate):
    """States of s_t = exp(-rate) s_{t-1} + u_t as a causal convolution; u [batch, T, d]."""
    steps = u.shape[1]
    kernel = torch.exp(-rate[:, None] * torch.arange(steps, dtype=u.dtype))
    spectrum = torch.fft.rfft(u.transpose(1, 2), n=2 * steps) * torch.fft.rfft(kernel, n=2 * steps)
    return torch.fft.irfft(spectrum, n=2 * steps)[..., :steps].transpose(1, 2)


def recurrence_loop(u, rate):
    """The same, step by step."""
    a = torch.exp(-rate)
    state = torch.zeros_like(u[:, 0])
    states = []
    for input in u.unbind(1):
        state = torch.addcmul(input, a, state)
        states.append(state)
    return torch.stack(states, 1)


ATTENTION = {"sdpa": attention_sdpa, "eager": attention_eager}
RECURRENCE = {"fft": recurrence_fft, "loop": recurrence_loop}


class Program:
    def __init__(self, settings, inputs):
        tensors = load_file(inputs)
        self.tokens = tensors.pop("tokens").to(torch.int64)
        self.targets = tensors.pop("targets").to(torch.int64)
        self.layers, self.heads = settings["layers"], settings["heads"]
        self.slice = settings.get("slice", len(self.tokens))
        self.attention = ATTENTION[settings["attention"]]
        self.recurrence = RECURRENCE[settings.get("recurrence", "fft")]
        self.trained = {name: t for name, t in tensors.items() if ".lora_" in name or ".hrm." in name}
        for tensor in self.trained.values():
            tensor.requires_grad_(True)
        matrices = ("lora_A.weight", "lora_B.weight", "hrm.b", "hrm.c")
        self.optimizer = Optimizer(
            [t for name, t in self.trained.items() if name.endswith(matrices)],
            [t for name, t in self.trained.items() if not name.endswith(matrices)],
        )
        self.parameters = tensors

    def linear(self, name, x):
        p = self.parameters
        y = F.linear(x, p[f"{name}.weight"], p[f"{name}.bias"])
        if f"{name}.lora_A.weight" in p:
            # The scale, lora_alpha / rank, is 1.
            y = y + F.linear(F.linear(x, p[f"{name}.lora_A.weight"]), p[f"{name}.lora_B.weight"])
        return y

    def norm(self, name, x):
        p = self.parameters
        return F.layer_norm(x, x.shape[-1:], p[f"{name}.weight"], p[f"{name}.bias"], 1e-5)

    def layer(self, name, x):
        batch, steps, width = x.shape
        n = self.norm(f"{name}.input_layernorm", x)
        q, k, v = (
            self.linear(f"{name}.self_attn.{part}_proj", n).view(batch, steps, self.heads, -1).transpose(1, 2) for part in "qkv"
        )
        mixed = self.attention(q, k, v).transpose(1, 2).reshape(batch, steps, width)
        x = x + self.linear(f"{name}.self_attn.o_proj", mixed)
        n = self.norm(f"{name}.post_attention_layernorm", x)
        x = x + self.linear(f"{name}.mlp.down_proj", F.gelu(self.linear(f"{name}.mlp.up_proj", n)))
        return self.adapt(f"{name}.mlp.hrm", x)

    def adapt(self, name, x):
        p = self.parameters
        if f"{name}.b" not in p:
            return x
        rate = torch.exp(p[f"{name}.log_a"] + p[f"{name}.log_dt"])
        states = self.recurrence(F.linear(x, p[f"{name}.b"]), rate)
        return x + F.linear(states, p[f"{name}.gate"] * p[f"{name}.c"])

    def losses(self):
        """Parts of the loss, of one slice of the batch after the other."""
        for tokens, targets in zip(self.tokens.split(self.slice), self.targets.split(self.slice), strict=True):
            yield self.loss(tokens, targets) * (len(tokens) / len(self.tokens))

    def loss(self, tokens, targets):
        p = self.parameters
        steps = tokens.shape[1]
        x = F.embedding(tokens, p["model.embed_tokens.weight"]) + p["model.embed_positions.weight"][:steps]
        for layer in range(self.layers):
            x = self.layer(f"model.layers.{layer}", x)
        logits = F.linear(self.norm("model.norm", x), p["lm_head.weight"])
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def compare(self, outputs):
        ours = load_file(outputs)
        own = {"loss": self.differentiate()}
        gradients = [tensor.grad for tensor in self.trained.values()]
        for tensor in self.trained.values():
            tensor.grad = None
        own |= {f"gradient/{name}": gradient for name, gradient in zip(self.trained, gradients, strict=True)}
        if own.keys() != ours.keys():
            raise ValueError(f"other results: {sorted(own.keys() ^ ours.keys())}")
        return {name: difference(own[name], ours[name]) for name in ours}

    def differentiate(self):
        """The loss; gradients are added to those of the parameters."""
        total = 0
        for loss in self.losses():
            loss.backward()
            total = total + loss.detach()
        return total

    def run(self, report):
        def step():
            loss = self.differentiate()
            return loss.item(), self.optimizer.step().item()

        report.values["loss"], report.values["gradient norm"] = report.time("step", step)
