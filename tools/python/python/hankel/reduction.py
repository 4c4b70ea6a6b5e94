"""Model reduction, Gramians and norms. Every function takes ``A, B, C, D`` or a system alone, and none changes its arguments."""

from __future__ import annotations

import sys
from operator import index
from typing import Any

import numpy as np

from . import _hankel
from ._hankel import METHODS, HankelError
from .certificate import Certificate, HinfNorm, Reduction, Verification
from .systems import Array, Matrices, System, given, number, understand


def reduce(
    A: Any,
    B: Any = None,
    C: Any = None,
    D: Any = None,
    *,
    order: int | None = None,
    epsilon: float | None = None,
    energy: float | None = None,
    bound: float | None = None,
    method: str = "bt",
    weight: Any = None,
    output_weight: Any = None,
    force: bool = False,
) -> Reduction:
    """A smaller system with a certificate.

    Args:
        A: State matrix, [n, n] (or [n], its diagonal) of a stable discrete-time system; or a system of python-control, scipy
            or harold, a :class:`System` or a tuple of matrices, without B, C and D. Objects may run in continuous time (``dt`` of 0).
        B: Input matrix, [n, m] (or [n], of one input).
        C: Output matrix, [p, n] (or [n], of one output).
        D: Direct term, [p, m] (or a number).
        order: Keep so many states.
        epsilon: Keep states with a Hankel singular value of at least ``epsilon`` times the largest; 0.01 without another rule.
        energy: Keep this fraction of the sum of the Hankel singular values.
        bound: Keep the fewest states whose guaranteed H-infinity error is at most this.
        method: One of ``hankel.METHODS``.
        weight: V, a stable system in the time of the one to be reduced, as such a one is given, with as many outputs as it has inputs: the
            reduction is based on ``(G - G_r) V``, and ``bound`` is one of it. ``certificate.weighted`` says what it is.
        output_weight: W, with as many inputs as the system has outputs: ``W (G - G_r)``, or ``W (G - G_r) V``.
        force: Give the result even if its measured error exceeds its bound.

    Raises:
        HankelError: With the sentence that ``bt`` prints.
    """
    rules = {"order": order, "epsilon": epsilon, "energy": energy, "bound": bound}
    chosen = [name for name, value in rules.items() if value is not None]
    if len(chosen) > 1:
        raise HankelError(f"{' and '.join(chosen)} exclude each other: give one rule for the order")
    for name in chosen:
        rules[name] = (_count if name == "order" else number)(name, rules[name])
    if not isinstance(method, str):
        raise HankelError(f"method = {method!r} is not a name; there are {', '.join(METHODS)}")
    matrices, back = given(A, B, C, D)
    weights = {"weight": _weight(weight), "output_weight": _weight(output_weight)}
    (a, b, c, d), text, rate = _hankel.reduce(matrices, method=method, **rules, **weights)
    certificate = Certificate.from_json(text)
    broken = certificate.holds is False or (certificate.weighted or {}).get("holds") is False
    if broken and not force:
        raise HankelError(
            "the measured error exceeds the bound, so rounding has spoiled the reduction; choose another order or method, or "
            "take it with force=True"
        )
    direct = np.zeros((c.shape[0], b.shape[1])) if d is None else d
    return Reduction(a, b, c, d, back(a, b, c, direct), certificate, rate)


def singular_values(A: Any, B: Any = None, C: Any = None, D: Any = None) -> Array:
    """The Hankel singular values of a stable system, descending, [n].

    Raises:
        HankelError: With the sentence that ``bt`` prints.
    """
    return _hankel.singular_values(given(A, B, C, D)[0])


def gramians(A: Any, B: Any = None, C: Any = None, D: Any = None) -> tuple[Array, Array]:
    """The controllability and observability Gramians, both [n, n]: ``A Wc A^T - Wc + B B^T = 0``, ``A^T Wo A - Wo + C^T C = 0``; in
    continuous time ``A Wc + Wc A^T + B B^T = 0``, ``A^T Wo + Wo A + C^T C = 0``.

    Raises:
        HankelError: With the sentence that ``bt`` prints.
    """
    return _hankel.gramians(given(A, B, C, D)[0])


def hinf_norm(A: Any, B: Any = None, C: Any = None, D: Any = None) -> HinfNorm:
    """The H-infinity norm of a stable system, by a sweep over frequencies and the bounded-real test.

    Raises:
        HankelError: With the sentence that ``bt`` prints.
    """
    return HinfNorm(*_hankel.hinf_norm(given(A, B, C, D)[0]))


def verify(
    full: Any, reduced: Any, certificate: Certificate | None = None, *, weight: Any = None, output_weight: Any = None
) -> Verification:
    """Measures a reduction again.

    Args:
        full: The full system: ``(A, B, C)``, ``(A, B, C, D)`` or an object.
        reduced: What it was reduced to, or a :class:`Reduction`, whose certificate is then checked.
        certificate: What is claimed of it. Without one the system is held to the bound of balanced truncation at its order.
        weight: V, if the certificate is about errors under it.
        output_weight: W, likewise.

    Raises:
        HankelError: The systems do not fit together.
    """
    if isinstance(reduced, Reduction):
        certificate = certificate or reduced.certificate
        reduced = System(reduced.A, reduced.B, reduced.C, reduced.D, None if reduced.rate is None else 0.0)
    if certificate is not None and not isinstance(certificate, Certificate):
        raise HankelError(f"a {type(certificate).__name__} is not a Certificate; Certificate.from_json reads the text of one")
    if certificate is not None:
        given = weight is not None or output_weight is not None
        # Of a band (`bt reduce --band`) the certificate has the frequencies itself.
        of_band = "band" in (certificate.weighted or {})
        if certificate.weighted is not None and not given and not of_band:
            raise HankelError("the certificate is about errors under weights: give weight= or output_weight=, as to hankel.reduce")
        if (certificate.weighted is None or of_band) and given:
            raise HankelError("the certificate claims nothing under a weight: leave out weight= and output_weight=")
    claim = None if certificate is None else certificate.to_json()
    problems, measured = _hankel.verify(understand(full)[0], understand(reduced)[0], claim, _weight(weight), _weight(output_weight))
    return Verification(not problems, problems, Certificate.from_json(measured))


def _weight(weight: Any) -> Matrices | None:
    return None if weight is None else understand(weight)[0]


def _count(name: str, value: Any) -> int:
    try:
        count = index(value)
    except TypeError:
        raise HankelError(f"{name} = {value!r} is not a whole number") from None
    if count < 0:
        raise HankelError(f"{name} = {count} is out of range: it must not be negative")
    if count > sys.maxsize:
        raise HankelError(f"{name} is out of range: no system has so many states")
    return count
