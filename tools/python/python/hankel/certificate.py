"""Results: dataclasses with what was measured and what is guaranteed."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from ._hankel import HankelError
from .systems import Array

#: Fields that may be infinite, which JSON has as ``null``.
_H2 = ("h2_error", "h2_norm")


@dataclass(frozen=True, eq=False)
class Certificate:
    """What is measured about a reduction, and what theory guarantees: ``certificate.json`` of ``bt`` has the same names."""

    method: str
    """How the system was reduced."""
    states: int
    """States of the full system."""
    order: int
    """States kept."""
    hankel_singular_values: Array = field(repr=False)
    """Those of the full system, descending."""
    numerical_rank: int
    """How many of them are above rounding."""
    lower_bound: float
    """``sigma[order]``: no system of this order comes closer than this in the H-infinity norm."""
    error_bound: float | None
    """Guaranteed bound of the H-infinity error; none where theory gives none."""
    hinf_error: float
    """Measured H-infinity norm of the difference of both systems."""
    hinf_error_frequency: float
    """Radians per step at which it is attained."""
    hinf_error_upper: float
    """No error is larger: what is guaranteed, rounding included, if it is ``proved``."""
    proved: bool
    """Whether ``hinf_error_upper`` is proved, for the matrices as they are."""
    proof: str
    """By what, or ``none:`` and what is missing."""
    hinf_norm: float
    """H-infinity norm of the full system."""
    h2_error: float
    """H2 norm of the difference; in continuous time infinite where the direct terms differ."""
    h2_norm: float
    """H2 norm of the full system; in continuous time infinite where it has a direct term."""
    spectral_radius: float
    """Modulus of the slowest pole of the full system."""
    reduced_spectral_radius: float
    """Modulus of the slowest pole of the reduced system."""
    holds: bool | None
    """Whether the measured error is within its bound; none where there is no bound."""
    details: dict[str, Any] = field(repr=False)
    """Everything else that ``bt`` writes: form, Gramians, residuals of the Lyapunov equations ..."""

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """The certificate in the text of one system's ``certificate.json``, or of :meth:`to_json`.

        Raises:
            HankelError: The text is something else.
        """
        try:
            facts = json.loads(text)
            if "layers" in facts:
                (facts,) = facts["layers"]
            # Certificates of before there were proofs.
            facts = {"proved": False, "proof": "none: written before upper ends were proved", **facts}
            names = [f.name for f in fields(cls) if f.name != "details"]
            own = {name: facts.pop(name) for name in names}
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise HankelError(f"this is not the certificate of a system: {error!r}") from None
        own["hankel_singular_values"] = np.asarray(own["hankel_singular_values"], dtype=np.float64)
        for name in _H2:
            own[name] = math.inf if own[name] is None else own[name]
        return cls(**own, details=facts)

    def __eq__(self, other: object) -> bool:
        return self.to_json() == other.to_json() if isinstance(other, Certificate) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.to_json())

    @property
    def weighted(self) -> dict[str, Any] | None:
        """The error under weights: ``hinf_error``, ``error_bound``, ``holds`` and more, named as those of the unweighted one; none without
        weights."""
        return self.details.get("weighted")

    def to_json(self) -> str:
        """The certificate as one object of ``bt``'s JSON."""
        facts = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "details"}
        facts["hankel_singular_values"] = self.hankel_singular_values.tolist()
        for name in _H2:
            facts[name] = None if facts[name] == math.inf else facts[name]
        return json.dumps({**facts, **self.details})


@dataclass(frozen=True, eq=False)
class Reduction:
    """A reduced system with its certificate."""

    A: Array
    """[r, r]"""
    B: Array
    """[r, m]"""
    C: Array
    """[p, r]"""
    D: Array | None
    """[p, m]; none where neither the system nor the method has a direct term."""
    system: Any = field(repr=False)
    """The reduced system as what was given: a ``StateSpace`` of python-control for one, a :class:`System` for arrays."""
    certificate: Certificate
    rate: float | None = None
    """In continuous time, of the bilinear map: frequencies in the certificate are angles, and ``rate * tan(angle / 2)`` is the angular
    frequency."""


@dataclass(frozen=True)
class HinfNorm:
    """``max over omega of sigma_max(G(exp(i omega)))``."""

    value: float
    """The norm, right to a relative 1e-6."""
    frequency: float
    """Radians per step, or per unit of time, at which it is attained."""
    upper: float
    """Upper end of the enclosure by the bounded-real test."""

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True)
class Verification:
    """What a fresh measurement says of a reduction."""

    passed: bool
    """Whether there are no problems."""
    problems: list[str]
    """False claims, in words."""
    measured: Certificate
    """Everything measured afresh."""

    def __bool__(self) -> bool:
        return self.passed
