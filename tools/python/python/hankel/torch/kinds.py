"""The kinds of adapters on the stream: HRM and the built-in others, as torch modules.

``forward`` maps what an adapter reads, ``x`` [batch, T, D], to ``gate * y``. It computes in the precision of ``x``, but not below single
precision; parameters keep the precision of their file.
"""

from __future__ import annotations

import copy
import math
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import scan

#: Bounds of the logarithm of selective rates, beyond which nothing is left of a state, or of its gradient.
FASTEST, SLOWEST = 4.4, -80.0
#: Bounds of the step of ``zoh-clamped``.
STEP_MIN, STEP_MAX = 1e-4, 0.1
#: Rates below ``exp`` of this forget nothing; its exponentials are far from the ends of single precision.
LOWEST = -40.0

#: Parameters whose last dimension is the width of the stream; every kind has one of them.
AS_WIDE = ("offset", "b", "b_real", "k")


class Site(nn.Module):
    """An adapter behind its gate, at one site of one layer."""

    #: Names of parameters of this kind that all layers share.
    shared: tuple[str, ...] = ()
    #: Whether it has a state, which a forward pass leaves to the next.
    remembers = True

    def __init__(self, tensors: dict[str, Tensor], owner: Site | None = None):
        super().__init__()
        # Not a submodule: a model that is saved has what is shared once, in the layer that owns it.
        self._owner = (owner,)
        for name, tensor in tensors.items():
            self.register_parameter(name, nn.Parameter(tensor.clone()))

    def __getattr__(self, name: str) -> Any:
        (owner,) = self.__dict__.get("_owner", (None,))
        return getattr(owner, name) if owner is not None and name in self.shared else super().__getattr__(name)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Site:
        """As that of ``nn.Module``, but ``model.half()`` does not round what was learnt; double precision is, on devices that have none."""

        def apply(tensor: Tensor) -> Tensor:
            try:
                moved = fn(tensor)
            except TypeError:
                if tensor.dtype != torch.float64:
                    raise
                return fn(tensor.float())
            rounded = tensor.is_floating_point() and moved.dtype.itemsize < tensor.dtype.itemsize
            return tensor.to(moved.device) if rounded else moved

        return super()._apply(apply, recurse)

    def forward(self, x: Tensor, keep: Tensor | None, memory: Tensor | None, path: str) -> tuple[Tensor, Tensor | None]:
        """``gate * y`` for ``x`` and the memory after it.

        Args:
            x: What is read, [batch, T, D].
            keep: 1 for tokens, 0 for padding before the first of them, [batch, T]; none where there is no padding.
            memory: What an earlier call gave.
            path: One of ``scan.PATHS``.
        """
        dtype = torch.promote_types(x.dtype, torch.float32)
        if memory is not None:
            memory = memory.to(x.device)
        with torch.autocast(x.device.type, enabled=False):
            y, memory = self.output(x.to(dtype), keep, memory, path)
            return self.value("gate", y) * y, None if memory is None else memory.detach()

    def output(self, x: Tensor, keep: Tensor | None, memory: Tensor | None, path: str) -> tuple[Tensor, Tensor | None]:
        """``y``, before the gate, and the memory."""
        raise NotImplementedError

    @property
    def width(self) -> int:
        """Width of the stream."""
        return next(getattr(self, name).shape[-1] for name in AS_WIDE if hasattr(self, name))

    def value(self, name: str, like: Tensor) -> Tensor:
        """A parameter where ``like`` is and in its type."""
        return getattr(self, name).to(like)

    def inputs(self, x: Tensor, keep: Tensor | None, b: Tensor) -> Tensor:
        """``B x``, zero for padding: from zero, a state that is fed nothing stays zero."""
        u = F.linear(x, b)
        return u if keep is None else u * keep[..., None].to(u)

    def freeze(self) -> None:
        """Takes what cannot be trained out of training."""


class Recurrence(Site):
    """A linear recurrence with constant coefficients: ``s_t = A s_{t-1} + B x_t``, ``y_t = C s_t``."""

    def coefficients(self) -> tuple[scan.Poles, Tensor]:
        """The poles and the input matrix, in the precision of the parameters."""
        raise NotImplementedError

    def output(self, x: Tensor, keep: Tensor | None, memory: Tensor | None, path: str) -> tuple[Tensor, Tensor | None]:
        poles, b = self.coefficients()
        for name, value in vars(poles).items():
            setattr(poles, name, value.to(x.device))
        states = scan.scan(self.inputs(x, keep, b.to(x)), poles, memory, path)
        return F.linear(states, self.value("c", x)), states[:, -1]

    @torch.no_grad()
    def system(self) -> tuple[Tensor, Tensor, Tensor]:
        """A, B and C with the gate, computed in double precision from the parameters: what ``hankel.reduce`` takes."""
        twin = copy.deepcopy(self)
        for part in (twin, *twin._owner):
            if part is not None:
                part.cpu().double().requires_grad_(False)
        poles, b = twin.coefficients()
        return poles.matrix(), b, twin.gate * twin.c


def _lift(exponent: Tensor) -> Tensor:
    """What raises an exponent to ``LOWEST`` where it is below it, and 0 elsewhere; a constant to gradients."""
    exponent = exponent.detach()
    return exponent.clamp(min=LOWEST) - exponent


class Hrm(Recurrence):
    """HRM in every mode: positive, signed and complex poles as they are trained, modal and dense ones of reduced layers."""

    def __init__(self, tensors: dict[str, Tensor], config: dict[str, Any], form: str):
        if form == "modal":
            tensors, sign = _from_poles(tensors)
        else:
            d = tensors["b"].shape[0]
            signed = form == "diagonal" and config["mode"] == "signed"
            sign = torch.tensor([-1.0 if signed and i % 2 else 1.0 for i in range(0 if "angle" in tensors else d)])
        super().__init__(tensors)
        self.register_buffer("sign", sign, persistent=False)
        self.form = form
        self.discretization = config["discretization"]
        self.train_log_dt = config.get("train_log_dt", True)
        self.train_gate = config.get("train_gate", True)

    def freeze(self) -> None:
        for name, trained in [("a", False), ("log_dt", self.train_log_dt), ("gate", self.train_gate)]:
            if not trained and hasattr(self, name):
                getattr(self, name).requires_grad_(False)

    def coefficients(self) -> tuple[scan.Poles, Tensor]:
        if self.form == "dense":
            return scan.Dense(self.a), self.b
        b, none = self.b, self.b.new_zeros(0)
        if self.form == "modal":
            return scan.Modal(torch.exp(self.log_decay), self.angle, self.sign), b
        log_a, exponent = self.log_a, self.log_a + self.log_dt
        if self.discretization == "zoh-clamped":
            log_a = log_a + _lift(log_a)
            rate = torch.exp(log_a) * F.softplus(self.log_dt).clamp(STEP_MIN, STEP_MAX)
        elif self.discretization == "zoh":
            lift = _lift(exponent)
            log_a, rate = log_a + lift, torch.exp(exponent + lift)
        else:
            rate = torch.exp(exponent)
        if self.discretization != "free":
            b = b * (-torch.expm1(-rate) * torch.exp(-log_a))[:, None]
        return scan.Modal(rate, getattr(self, "angle", none), self.sign), b

    def stored(self) -> dict[str, Tensor]:
        """The tensors of the file."""
        tensors = {name: p.detach().cpu().clone() for name, p in self.named_parameters()}
        real = self.sign.shape[0]
        if "angle" in tensors:
            # Training may have moved an angle out of [0, pi]: the same two poles within, and the second state mirrored.
            angle = torch.remainder(tensors["angle"], 2 * math.pi)
            mirrored = angle > math.pi
            tensors["angle"] = torch.where(mirrored, 2 * math.pi - angle, angle)
            second = real + 2 * torch.arange(angle.shape[0])[mirrored] + 1
            tensors["b"][second] *= -1
            tensors["c"][:, second] *= -1
        if self.form == "diagonal" and "angle" in tensors:
            tensors["angle"] = tensors["angle"].clamp(1e-30, 3.1415925)
        if self.form == "modal":
            below_one = math.nextafter(1.0, 0.0)
            radius = torch.exp(-torch.exp(tensors.pop("log_decay").double())).clamp(max=below_one)
            signs = (self.sign.cpu() < 0).double() * math.pi
            # Two states stay two states: an angle of 0 or pi would be read as one real pole.
            angle = tensors.pop("angle").double().clamp(5e-324, math.nextafter(math.pi, 0.0))
            tensors |= {"pole_radius": radius, "pole_angle": torch.cat([signs, angle])}
        if self.form != "diagonal":
            tensors = {name: t.double() for name, t in tensors.items()}
        return tensors


def _from_poles(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
    """What is trained of a reduced layer, with the states of real poles first, and the signs of these."""
    tensors = dict(tensors)
    radius, angle = tensors.pop("pole_radius"), tensors.pop("pole_angle")
    is_real = (angle == 0) | (angle == math.pi)
    first = torch.cumsum(torch.where(is_real, 1, 2), 0) - torch.where(is_real, 1, 2)
    pairs = torch.stack([first[~is_real], first[~is_real] + 1], dim=-1).flatten()
    order = torch.cat([first[is_real], pairs])
    # A pole at 0 is stored as exp(-100).
    rate = (-torch.log(torch.cat([radius[is_real], radius[~is_real]]))).clamp(max=100.0)
    tensors |= {
        "b": tensors["b"][order],
        "c": tensors["c"][:, order],
        "log_decay": torch.log(rate),
        "angle": angle[~is_real],
    }
    return tensors, torch.where(angle[is_real] == 0, 1.0, -1.0)


class Stream(Site):
    """A kind of ``"peft_type": "STREAM"``."""

    def __init__(self, tensors: dict[str, Tensor], settings: dict[str, Any], train_gate: bool, owner: Site | None = None):
        super().__init__(tensors, owner)
        self.settings = settings
        self.train_gate = train_gate

    def freeze(self) -> None:
        self.gate.requires_grad_(self.train_gate and self.gate.requires_grad)

    def stored(self) -> dict[str, Tensor]:
        """The tensors of the file."""
        return {name: p.detach().cpu().clone() for name, p in self.named_parameters()}

    @classmethod
    def shapes(cls, settings: dict[str, Any], width: int) -> dict[str, list[int]]:
        """Shapes of the parameters, the gate's not among them."""
        raise NotImplementedError


class Selective(Stream):
    """``selective``: ``s_t = a_t * s_{t-1} + (B x_t) * (1 + S p_t)``, ``y_t = C (s_t * (1 + R p_t))`` with ``p_t = P x_t``."""

    def __init__(self, tensors: dict[str, Tensor], settings: dict[str, Any], train_gate: bool):
        tensors = dict(tensors)
        projections = {name: tensors.pop(name).double() for name in ("left", "right") if name in tensors}
        super().__init__(tensors, settings, train_gate)
        for name in ("left", "right"):
            self.register_buffer(name, projections.get(name), persistent=False)

    @classmethod
    def shapes(cls, settings: dict[str, Any], width: int) -> dict[str, list[int]]:
        d, r = settings["state_dim"], settings["selection_rank"]
        signed = {"sign": [d], "select_sign": [d, r]} if settings.get("mode") == "signed" else {}
        selection = {name: [d, r] for name in ("select_rate", "select_input", "select_output")}
        return {"b": [d, width], "c": [width, d], "log_a": [d], "log_dt": [d], "p": [r, width], **selection, **signed}

    def freeze(self) -> None:
        super().freeze()
        if self.left is not None:
            # Truncated along data, it is for use.
            self.requires_grad_(False)

    def stored(self) -> dict[str, Tensor]:
        projections = {name: t.cpu() for name in ("left", "right") if (t := getattr(self, name)) is not None}
        return super().stored() | projections

    def output(self, x: Tensor, keep: Tensor | None, memory: Tensor | None, path: str) -> tuple[Tensor, Tensor | None]:
        p = F.linear(x, self.value("p", x))

        def selected(name: str, base: Tensor) -> Tensor:
            return F.linear(p, self.value(name, x)) + base

        log_rate = selected("select_rate", self.value("log_a", x) + self.value("log_dt", x))
        a = torch.exp(-torch.exp(log_rate.clamp(SLOWEST, FASTEST)))
        if hasattr(self, "select_sign"):
            a = a * torch.tanh(selected("select_sign", self.value("sign", x)))
        u = self.inputs(x, keep, self.value("b", x)) * selected("select_input", x.new_ones(()))
        if self.left is not None:
            states, memory = self.truncated(a, u, memory)
        else:
            states = scan.varying_scan(a, u, memory, path)
            memory = states[:, -1]
        return F.linear(states * selected("select_output", x.new_ones(())), self.value("c", x)), memory

    def truncated(self, a: Tensor, u: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor]:
        """``z_t = L (a_t * (R z_{t-1}) + u_t)``, the states ``R z_t``, in double precision where there is one."""
        double = scan.exact(u)
        left, right = self.left.to(u.device, double), self.right.to(u.device, double)
        a, given = a.to(double), u.to(double)
        z = u.new_zeros(u.shape[0], left.shape[0], dtype=double) if memory is None else memory
        states = []
        for t in range(u.shape[1]):
            z = (a[:, t] * (z @ right.T) + given[:, t]) @ left.T
            states.append(z @ right.T)
        return torch.stack(states, dim=1).to(u.dtype), z


class HankelShared(Stream, Recurrence):
    """``hankel-shared``: one recurrence for all layers, behind a gate of its own in each."""

    shared = ("b", "c", "log_a", "log_dt")

    @classmethod
    def shapes(cls, settings: dict[str, Any], width: int) -> dict[str, list[int]]:
        d = settings["state_dim"]
        return {"b": [d, width], "c": [width, d], "log_a": [d], "log_dt": [d]}

    def coefficients(self) -> tuple[scan.Poles, Tensor]:
        rate = torch.exp(self.log_a + self.log_dt)
        return scan.Modal(rate, rate.new_zeros(0), torch.ones_like(rate)), self.b


class StateOffset(Stream):
    """``state-offset``: a learned constant."""

    remembers = False

    @classmethod
    def shapes(cls, settings: dict[str, Any], width: int) -> dict[str, list[int]]:
        return {"offset": [width]}

    def output(self, x: Tensor, keep: Tensor | None, memory: Tensor | None, path: str) -> tuple[Tensor, Tensor | None]:
        return self.value("offset", x).expand_as(x), None


class Rotation(Stream):
    """``rotation``: ``z_t = m a exp(i theta_t) * z_{t-1} + (B + i B') x_t`` with ``theta_t = W x_t + v``, ``y_t = C Re z_t + C' Im z_t``."""

    @classmethod
    def shapes(cls, settings: dict[str, Any], width: int) -> dict[str, list[int]]:
        p = settings["planes"]
        vectors = {name: [p] for name in ("log_a", "angle_bias", "start_real", "start_imaginary")}
        inward = {name: [p, width] for name in ("angle", "b_real", "b_imaginary")}
        return vectors | inward | {name: [width, p] for name in ("c_real", "c_imaginary")}

    def output(self, x: Tensor, keep: Tensor | None, memory: Tensor | None, path: str) -> tuple[Tensor, Tensor | None]:
        theta = F.linear(x, self.value("angle", x), self.value("angle_bias", x))
        modulus = self.settings.get("max_modulus", 1.0) * torch.exp(-torch.exp(self.value("log_a", x)))
        a = torch.polar(modulus.expand_as(theta), theta)
        u = torch.complex(self.inputs(x, keep, self.value("b_real", x)), self.inputs(x, keep, self.value("b_imaginary", x)))
        if keep is not None:
            # Padding turns nothing: the text begins with the learned states.
            a = torch.where(keep[..., None].bool(), a, torch.ones_like(a))
        if memory is None:
            memory = torch.complex(self.value("start_real", x), self.value("start_imaginary", x)).expand(x.shape[0], -1)
        z = scan.varying_scan(a, u, memory, path)
        y = F.linear(z.real, self.value("c_real", x)) + F.linear(z.imag, self.value("c_imaginary", x))
        return y, z[:, -1]


class Householder(Stream):
    """``householder``: each token reflects a state ``S`` [m, n] of every head ``reflections`` times, ``y_t = C S``."""

    @classmethod
    def shapes(cls, settings: dict[str, Any], width: int) -> dict[str, list[int]]:
        h, n, m, r = (settings[key] for key in ("heads", "state_dim", "value_dim", "reflections"))
        state = h * m * n
        inward = {"k": [r * h * n, width], "v": [r * h * m, width], "beta": [r * h, width]}
        return inward | {"beta_bias": [r * h], "c": [width, state], "start": [state]}

    def output(self, x: Tensor, keep: Tensor | None, memory: Tensor | None, path: str) -> tuple[Tensor, Tensor | None]:
        h, n, m, r = (self.settings[key] for key in ("heads", "state_dim", "value_dim", "reflections"))
        batch, steps, _ = x.shape
        # The reflections of a token are steps one after the other.
        k = _unit(F.linear(x, self.value("k", x)).reshape(batch, steps * r, h, n))
        v = F.linear(x, self.value("v", x)).reshape(batch, steps * r, h, m)
        beta = 2 * torch.sigmoid(F.linear(x, self.value("beta", x), self.value("beta_bias", x)))
        if keep is not None:
            beta = beta * keep[..., None].to(beta)
        if memory is None:
            memory = self.value("start", x).expand(batch, -1)
        states = scan.delta_scan(k, v, beta.reshape(batch, steps * r, h), memory.reshape(batch, h, m, n))
        last = states[:, r - 1 :: r].flatten(2)
        return F.linear(last, self.value("c", x)), last[:, -1]


class Delta(Stream):
    """``delta``: an associative memory ``S`` [m, n] of every head by the delta rule, ``y_t = C (S_t q_t)``."""

    @classmethod
    def shapes(cls, settings: dict[str, Any], width: int) -> dict[str, list[int]]:
        h, n, m = (settings[key] for key in ("heads", "state_dim", "value_dim"))
        inward = {"k": [h * n, width], "q": [h * n, width], "v": [h * m, width], "beta": [h, width]}
        return inward | {"beta_bias": [h], "c": [width, h * m]}

    def output(self, x: Tensor, keep: Tensor | None, memory: Tensor | None, path: str) -> tuple[Tensor, Tensor | None]:
        h, n, m = (self.settings[key] for key in ("heads", "state_dim", "value_dim"))
        batch, steps, _ = x.shape
        k, q = (_unit(F.linear(x, self.value(name, x)).reshape(batch, steps, h, n)) for name in ("k", "q"))
        v = F.linear(x, self.value("v", x)).reshape(batch, steps, h, m)
        beta = torch.sigmoid(F.linear(x, self.value("beta", x), self.value("beta_bias", x)))
        if keep is not None:
            beta = beta * keep[..., None].to(beta)
        before = x.new_zeros(batch, h, m, n) if memory is None else memory.reshape(batch, h, m, n)
        states = scan.delta_scan(k, v, beta, before)
        answer = torch.einsum("bthmn,bthn->bthm", states, q).flatten(2)
        return F.linear(answer, self.value("c", x)), states[:, -1].flatten(1)


def _unit(x: Tensor) -> Tensor:
    """Keys of norm 1; what keeps a key of zero from being divided by its norm is that of the program."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + x.shape[-1] * 1e-6)


#: Kinds of ``"peft_type": "STREAM"``.
STREAM_KINDS: dict[str, type[Stream]] = {
    "selective": Selective,
    "hankel-shared": HankelShared,
    "state-offset": StateOffset,
    "rotation": Rotation,
    "householder": Householder,
    "delta": Delta,
}
