"""Systems given by zeros, poles and gain, as cascades of sections of one or two states that have the poles as they were given.

Multiplied out, a narrow filter loses them: rounding in the last digit of a polynomial of degree 8 moves poles near the unit circle by a
thousandth, and out of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._hankel import HankelError

Array = NDArray[np.float64]
#: One root, or two that are both real or conjugates.
Group = list[complex]

#: How far from real a root may be, of its size, and how far a root from another one's conjugate.
REAL, CONJUGATE = 1e-14, 1e-12


def realization(zeros: ArrayLike, poles: ArrayLike, gain: Any) -> tuple[Array, Array, Array, Array]:
    """A, B, C and D of ``gain prod (s - zeros) / prod (s - poles)``.

    Raises:
        HankelError: More zeros than poles, several outputs, or complex roots without their conjugates.
    """
    if np.ndim(zeros) > 1 or np.size(gain) != 1:
        raise HankelError("a ZerosPolesGain of several outputs is not understood; give a StateSpace")
    sections, numerators = _groups("pole", poles), _groups("zero", zeros)
    if np.size(zeros) > np.size(poles):
        raise HankelError(f"{np.size(zeros)} zeros and {np.size(poles)} poles: a system has no more zeros than poles")
    A, B, C, D = np.zeros((0, 0)), np.zeros((0, 1)), np.zeros((1, 0)), np.ones((1, 1))
    for section, numerator in zip(sections, _assigned(numerators, sections)):
        a, b, c, d = _section(section, numerator)
        A = np.block([[A, np.zeros((len(A), len(a)))], [b @ C, a]])
        B, C, D = np.vstack([B, b @ D]), np.hstack([d * C, c]), d * D
    factor = float(np.real(np.ravel(gain)[0]))
    return A, B, factor * C, factor * D


def _groups(name: str, roots: ArrayLike) -> list[Group]:
    """Conjugates together, then real roots by twos, in order; one is left over where their number is odd."""
    left = [complex(root) for root in np.ravel(roots)]
    if not np.isfinite(left).all():
        raise HankelError(f"a {name} is not finite")
    real = sorted(root.real for root in left if abs(root.imag) <= REAL * abs(root))
    left = [root for root in left if abs(root.imag) > REAL * abs(root)]
    groups: list[Group] = []
    for root in [root for root in left if root.imag > 0]:
        others = [other for other in left if other.imag < 0]
        other = min(others, key=lambda other: abs(other - root.conjugate()), default=complex(np.inf))
        if not abs(other - root.conjugate()) <= CONJUGATE * abs(root):
            raise HankelError(f"the {name} {root} comes without its complex conjugate; a system has real matrices")
        left.remove(root)
        left.remove(other)
        groups.append([root, root.conjugate()])
    if left:
        raise HankelError(f"the {name} {left[0]} comes without its complex conjugate; a system has real matrices")
    return groups + [[complex(root) for root in real[i : i + 2]] for i in range(0, len(real), 2)]


def _assigned(numerators: list[Group], sections: list[Group]) -> list[Group]:
    """The zeros of each section: those that are nearest to its poles. Two zeros need two poles."""
    chosen: dict[int, Group] = {}
    # One that is alone takes the section of one pole, if there is one.
    for group in sorted(numerators, key=len, reverse=True):
        free = [i for i in range(len(sections)) if i not in chosen and len(sections[i]) >= len(group)]
        alone = [i for i in free if len(sections[i]) == len(group)]
        chosen[min(alone or free, key=lambda i: abs(sections[i][0] - group[0]))] = group
    return [chosen.get(i, []) for i in range(len(sections))]


def _section(poles: Group, zeros: Group) -> tuple[Array, Array, Array, float]:
    """With ``x = s - p`` of the first pole's real part p, the poles are the roots of ``x^2 - e x - q``, and the states the impulse
    responses of 1 and x over that."""
    p = poles[0].real
    shifted = [zero - p for zero in zeros]
    if len(poles) == 1:
        return np.array([[p]]), np.ones((1, 1)), np.array([[-shifted[0].real if zeros else 1.0]]), float(len(zeros))
    e, q = (0.0, -(poles[0].imag ** 2)) if poles[0].imag else (poles[1].real - p, 0.0)
    a, b = np.array([[p, 1.0], [q, p + e]]), np.array([[0.0], [1.0]])
    if len(zeros) == 2:
        product, total = (shifted[0] * shifted[1]).real, (shifted[0] + shifted[1]).real
        return a, b, np.array([[product + q, e - total]]), 1.0
    return a, b, np.array([[-shifted[0].real, 1.0] if zeros else [1.0, 0.0]]), 0.0
