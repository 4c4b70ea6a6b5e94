"""Linear recurrences ``s_t = A s_{t-1} + u_t`` on tensors [batch, T, d], with gradients by torch.

Two evaluations agree within rounding: step by step, and as a causal convolution by FFT. Recurrences whose poles change with the token have
no kernel; for them the second is a parallel prefix sum in ``log2 T`` rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

#: Evaluations: ``auto`` is ``fft`` for more than one step, on devices that have double precision.
PATHS = ("auto", "fft", "sequential")


class Poles(Protocol):
    """The state matrix of a recurrence with constant coefficients."""

    def step(self, s: Tensor) -> Tensor:
        """``A s`` for states [batch, d]."""

    def convolve(self, u: Tensor, initial: Tensor | None) -> Tensor:
        """All states by FFT."""

    def matrix(self) -> Tensor:
        """``A``, [d, d]."""


def check(path: str) -> str:
    """Refuses the name of an evaluation that there is not."""
    if path not in PATHS:
        raise ValueError(f"scan = {path!r} is unknown; there are {', '.join(PATHS)}")
    return path


def scan(u: Tensor, poles: Poles, initial: Tensor | None, path: str) -> Tensor:
    """All states [batch, T, d] for ``u`` [batch, T, d], from ``initial`` [batch, d]; from zero without."""
    by_steps = path == "sequential" or (path == "auto" and exact(u) != torch.float64)
    if by_steps or u.shape[1] == 1:
        return _step_by_step(u, initial, lambda s, _: poles.step(s))
    return poles.convolve(u, initial)


def exact(like: Tensor) -> torch.dtype:
    """Double precision, but for devices that have none."""
    return torch.float32 if like.device.type == "mps" else torch.float64


def varying_scan(a: Tensor, u: Tensor, initial: Tensor | None, path: str) -> Tensor:
    """All states of ``s_t = a_t * s_{t-1} + u_t``, everything [batch, T, d]."""
    if path == "sequential" or u.shape[1] == 1:
        return _step_by_step(u, initial, lambda s, t: a[:, t] * s)
    if initial is not None:
        u = torch.cat([u[:, :1] + a[:, :1] * initial[:, None], u[:, 1:]], dim=1)
    reach = 1
    while reach < u.shape[1]:
        # u holds the effect of the last `reach` steps, a the product of their poles.
        u = torch.cat([u[:, :reach], u[:, reach:] + a[:, reach:] * u[:, :-reach]], dim=1)
        a = torch.cat([a[:, :reach], a[:, reach:] * a[:, :-reach]], dim=1)
        reach *= 2
    return u


def delta_scan(k: Tensor, v: Tensor, beta: Tensor, initial: Tensor) -> Tensor:
    """All states [batch, T, h, m, n] of ``S_t = S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T``, step by step.

    Args:
        k: Keys, [batch, T, h, n].
        v: Values, [batch, T, h, m].
        beta: Shares, [batch, T, h].
        initial: The state before, [batch, h, m, n].
    """
    states, s = [], initial
    for t in range(k.shape[1]):
        wrong = v[:, t] - torch.einsum("bhmn,bhn->bhm", s, k[:, t])
        s = s + torch.einsum("bhm,bhn->bhmn", beta[:, t, :, None] * wrong, k[:, t])
        states.append(s)
    return torch.stack(states, dim=1)


def _step_by_step(u: Tensor, initial: Tensor | None, step) -> Tensor:
    states = []
    s = initial
    for t in range(u.shape[1]):
        s = u[:, t] if s is None else step(s, t) + u[:, t]
        states.append(s)
    return torch.stack(states, dim=1) if states else u


@dataclass
class Modal:
    """``real`` signed real poles, then pairs of complex ones, each a block ``radius [cos -sin; sin cos]`` of two states."""

    rate: Tensor
    """``-ln radius``, [real + pairs]."""
    angle: Tensor
    """Radians, [pairs]; may be empty."""
    sign: Tensor
    """1 or -1, [real]."""

    @property
    def real(self) -> int:
        """Number of real poles."""
        return self.sign.shape[0]

    def step(self, s: Tensor) -> Tensor:
        radius = torch.exp(-self.rate).to(s.dtype)
        real = self.sign.to(s) * radius[: self.real] * s[:, : self.real]
        if not self.angle.numel():
            return real
        one, two = _pairs(s[:, self.real :])
        cos = radius[self.real :] * torch.cos(self.angle).to(s.dtype)
        sin = radius[self.real :] * torch.sin(self.angle).to(s.dtype)
        return torch.cat([real, _interleave(cos * one - sin * two, sin * one + cos * two)], dim=-1)

    def convolve(self, u: Tensor, initial: Tensor | None) -> Tensor:
        steps = u.shape[1]
        cos, sin = self._kernels(steps + 1, u)
        real = self.real
        parts = [_causal(cos[:steps, :real], u[..., :real])] if real else []
        if self.angle.numel():
            one, two = _pairs(u[..., real:])
            c, s = cos[:steps, real:], sin[:steps]
            parts.append(_interleave(_causal(c, one) - _causal(s, two), _causal(s, one) + _causal(c, two)))
        states = torch.cat(parts, dim=-1) if parts else u
        if initial is None:
            return states
        before = initial[:, None].to(cos)
        parts = [cos[1:, :real] * before[..., :real]]
        if self.angle.numel():
            one, two = _pairs(before[..., real:])
            c, s = cos[1:, real:], sin[1:]
            parts.append(_interleave(c * one - s * two, s * one + c * two))
        return states + torch.cat(parts, dim=-1).to(states)

    def _kernels(self, steps: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Real and imaginary parts of the powers 0, 1 ... of the poles, [steps, poles] and [steps, pairs]."""
        # After a thousand steps an angle in single precision is off by 1e-4.
        t = torch.arange(steps, device=like.device, dtype=exact(like))[:, None]
        decay = torch.exp(-t * self.rate.to(t))
        turn = t * self.angle.to(t)
        signs = torch.where((t % 2 == 1) & (self.sign < 0), -1.0, 1.0)
        cos = torch.cat([signs * decay[:, : self.real], torch.cos(turn) * decay[:, self.real :]], dim=-1)
        sin = torch.sin(turn) * decay[:, self.real :]
        return cos, sin

    def matrix(self) -> Tensor:
        identity = torch.eye(self.real + 2 * self.angle.shape[0], dtype=self.rate.dtype, device=self.rate.device)
        return self.step(identity).T


@dataclass
class Dense:
    """Any matrix. It runs step by step on every path."""

    a: Tensor
    """[d, d]"""

    def step(self, s: Tensor) -> Tensor:
        return s @ self.a.to(s).T

    def convolve(self, u: Tensor, initial: Tensor | None) -> Tensor:
        return _step_by_step(u, initial, lambda s, _: self.step(s))

    def matrix(self) -> Tensor:
        return self.a


def _causal(kernel: Tensor, u: Tensor) -> Tensor:
    """``y_t = sum_k kernel_k u_{t-k}`` along dimension 1; kernel [T, d], u [batch, T, d]."""
    # In single precision the error would be that of the largest input of the text, at every token: a stream has such inputs.
    double = exact(u)
    steps = u.shape[1]
    size = 2 * steps
    product = torch.fft.rfft(kernel.to(double), n=size, dim=0) * torch.fft.rfft(u.to(double), n=size, dim=1)
    return torch.fft.irfft(product, n=size, dim=1)[:, :steps].to(u.dtype)


def _pairs(s: Tensor) -> tuple[Tensor, Tensor]:
    return s[..., 0::2], s[..., 1::2]


def _interleave(one: Tensor, two: Tensor) -> Tensor:
    return torch.stack([one, two], dim=-1).flatten(-2)
