"""The extension module: numpy arrays of float64 in and out. Use the functions of ``hankel``."""

import numpy as np
from numpy.typing import NDArray

_Array = NDArray[np.float64]
#: With the sampling time: 0 for continuous time, none for steps of unknown length.
_System = tuple[_Array, _Array, _Array, _Array | None, float | None]

METHODS: list[str]
__version__: str

class HankelError(ValueError): ...

def reduce(
    system: _System,
    *,
    order: int | None,
    epsilon: float | None,
    energy: float | None,
    bound: float | None,
    method: str,
    weight: _System | None,
    output_weight: _System | None,
) -> tuple[tuple[_Array, _Array, _Array, _Array | None], str, float | None]: ...
def singular_values(system: _System) -> _Array: ...
def gramians(system: _System) -> tuple[_Array, _Array]: ...
def hinf_norm(system: _System) -> tuple[float, float, float]: ...
def verify(
    full: _System,
    reduced: _System,
    claim: str | None,
    weight: _System | None,
    output_weight: _System | None,
) -> tuple[list[str], str]: ...
