"""Linear systems as users have them: arrays, and objects of python-control, scipy and harold.

No library is imported for a system of another one: an object is recognised by the module of its class.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._hankel import HankelError
from .zpk import realization

Array = NDArray[np.float64]
#: A, B, C and D as two-dimensional arrays of float64, and the sampling time: 0 for continuous time, none for steps of unknown length.
Matrices = tuple[Array, Array, Array, "Array | None", "float | None"]


@dataclass(frozen=True, eq=False)
class System:
    """``x[t+1] = A x[t] + B u[t]``, ``y[t] = C x[t] + D u[t]``; with ``dt=0``, ``dx/dt = A x + B u``."""

    A: Array
    """State matrix, [n, n]."""
    B: Array
    """Input matrix, [n, m], or [n]."""
    C: Array
    """Output matrix, [p, n], or [n]."""
    D: Array | None = None
    """Direct term, [p, m], or a number; none is zero."""
    dt: float | None = None
    """Sampling time; 0 for continuous time, none for steps of unknown length."""

    def __iter__(self):
        if self.dt == 0:
            raise HankelError("a system in continuous time is not its four matrices: hand it on as it is, or name A, B, C, D and dt")
        return iter((self.A, self.B, self.C, self.D))

    def frequency_response(self, omega: ArrayLike) -> NDArray[np.complex128]:
        """``G(z) = C (z I - A)^-1 B + D``, [len(omega), p, m]: at ``z = exp(i omega)``, ``omega`` in radians per step, or, with ``dt=0``, at
        ``z = i omega``, in radians per unit of time."""
        A, B, C, D, _ = from_arrays(self.A, self.B, self.C, self.D)
        z = 1j * np.atleast_1d(np.asarray(omega, dtype=np.float64))
        if self.dt != 0:
            z = np.exp(z)
        states = np.linalg.solve(z[:, None, None] * np.eye(len(A)) - A, B.astype(np.complex128))
        response = C @ states
        return response if D is None else response + D


def matrix(name: str, value: ArrayLike) -> Array:
    """A two-dimensional array of float64; the array itself where it is one."""
    try:
        array = np.asarray(value)
        if np.iscomplexobj(array):
            raise HankelError(f"{name} is complex; a system has real matrices")
        array = array.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, HankelError):
            raise
        raise HankelError(f"{name} is not a matrix of numbers: {error}") from None
    if array.ndim != 2:
        raise HankelError(f"{name} has shape {list(array.shape)}, expected two dimensions")
    # Fields of packed records lie between others.
    whole = array.flags.aligned and all(stride % array.itemsize == 0 for stride in array.strides)
    return array if whole else array.copy()


def from_arrays(A: ArrayLike, B: ArrayLike, C: ArrayLike, D: ArrayLike | None, dt: float | None = None) -> Matrices:
    """The arrays of a system, as numpy users write them: A may be the diagonal of a diagonal matrix, B of one input and C of one output a
    vector, and D a number."""
    if _dimensions(A) == 1:
        A = np.diag(matrix("A", np.atleast_2d(np.asarray(A)))[0])
    A = matrix("A", A)
    # Of a single state a vector is along the inputs or outputs, as bt reads it.
    one = A.shape == (1, 1)
    if _dimensions(B) == 1:
        B = np.asarray(B)[np.newaxis] if one else np.asarray(B)[:, np.newaxis]
    if _dimensions(C) == 1:
        C = np.asarray(C)[:, np.newaxis] if one else np.asarray(C)[np.newaxis]
    if D is not None and _dimensions(D) == 0:
        D = np.atleast_2d(np.asarray(D))
    return A, matrix("B", B), matrix("C", C), None if D is None else matrix("D", D), dt


def _dimensions(value: ArrayLike) -> int | None:
    """Those of an array; none for a ragged list."""
    try:
        return np.ndim(value)
    except ValueError:
        return None


def number(name: str, value: Any) -> float:
    """A real number; unlike ``float``, not what is written in a text."""
    try:
        return math.fsum([value])
    except (TypeError, ValueError):
        raise HankelError(f"{name} = {value!r} is not a number") from None
    except OverflowError:
        raise HankelError(f"{name} is out of range: it is too large") from None


def _sampling_time(dt: Any) -> float | None:
    """0 for continuous time; none for steps of unknown length, which python-control calls ``True``, too."""
    if dt is None or (isinstance(dt, (bool, np.bool_)) and dt):
        return None
    step = number("dt", dt)
    if not (math.isfinite(step) and step >= 0.0):
        raise HankelError(f"dt is {dt}; it must be a sampling time, 0 for continuous time, or None or True for steps of unknown length")
    return step


def _of_control(system: Any, base: type) -> tuple[Matrices, Callable[..., Any]]:
    def back(A: Array, B: Array, C: Array, D: Array) -> Any:
        labels = {"inputs": system.input_labels, "outputs": system.output_labels, "name": system.name}
        # Of the base: systems put together of others are made in another way.
        return base(A, B, C, D, system.dt, remove_useless_states=False, **labels)

    if system.dt is None and np.size(system.A):
        raise HankelError("its dt is None, which python-control takes for continuous time as well as for discrete: set dt to 0, a sampling time, or True")
    return from_arrays(system.A, system.B, system.C, system.D, _sampling_time(system.dt)), back


def _of_scipy(system: Any, base: type) -> tuple[Matrices, Callable[..., Any]]:
    from scipy import signal

    def back(A: Array, B: Array, C: Array, D: Array) -> Any:
        # What the certificate is about: coefficients, or poles and zeros, found from it would be another system. scipy has no sampling
        # time where time is continuous.
        return signal.StateSpace(A, B, C, D, **({} if system.dt is None else {"dt": system.dt}))

    if isinstance(system, signal.ZerosPolesGain):
        A, B, C, D = realization(system.zeros, system.poles, system.gain)
    else:
        state_space = system.to_ss()
        A, B, C, D = state_space.A, state_space.B, state_space.C, state_space.D
    if system.dt is None and not (A.any() or B.any() or C.any()):
        # scipy has no gain without a state, and in continuous time the one that it adds is not stable.
        A, B, C = A[:0, :0], B[:0], C[:, :0]
    return from_arrays(A, B, C, D, _sampling_time(0 if system.dt is None else system.dt)), back


def _of_harold(system: Any, base: type) -> tuple[Matrices, Callable[..., Any]]:
    continuous = system.SamplingSet != "Z"

    def back(A: Array, B: Array, C: Array, D: Array) -> Any:
        return base(A, B, C, D, None if continuous else system.SamplingPeriod)

    return from_arrays(system.a, system.b, system.c, system.d, 0.0 if continuous else _sampling_time(system.SamplingPeriod)), back


#: Libraries, by the first part of a class's module, and the classes in them that are understood.
LIBRARIES: dict[str, tuple[frozenset[str], Callable[[Any, type], tuple[Matrices, Callable[..., Any]]]]] = {
    "control": (frozenset({"StateSpace"}), _of_control),
    "scipy": (frozenset({"lti", "dlti"}), _of_scipy),
    "harold": (frozenset({"State"}), _of_harold),
}


def understand(system: Any) -> tuple[Matrices, Callable[..., Any]]:
    """The matrices of a system object, and the function that makes such an object of other matrices."""
    if isinstance(system, System):
        return from_arrays(system.A, system.B, system.C, system.D, _sampling_time(system.dt)), partial(System, dt=system.dt)
    if isinstance(system, (tuple, list)) and len(system) in (3, 4):
        A, B, C, *D = system
        return from_arrays(A, B, C, D[0] if D else None), System
    for base in type(system).__mro__:
        names, convert = LIBRARIES.get(base.__module__.partition(".")[0], (frozenset(), None))
        if convert is not None and base.__name__ in names:
            return convert(system, base)
    raise HankelError(
        f"a {type(system).__module__}.{type(system).__name__} is not a system; expected A, B, C, or a StateSpace of python-control, "
        "an lti or dlti of scipy, or a State of harold"
    )


def given(A: Any, B: Any, C: Any, D: Any) -> tuple[Matrices, Callable[..., Any]]:
    """What the functions of the package are called with: A, B, C and D, or a system alone."""
    if B is None and C is None and D is None:
        return understand(A)
    if B is None or C is None:
        raise HankelError(f"{'B' if B is None else 'C'} is missing; a system has A, B, C and possibly D")
    return from_arrays(A, B, C, D), System
