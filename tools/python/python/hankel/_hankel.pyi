"""The extension module: numpy arrays of float64 in and out. Use the functions of ``hankel``."""

import numpy as np
from numpy.typing import NDArray

_Array = NDArray[np.float64]
_System = tuple[_Array, _Array, _Array, _Array | None]

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
) -> tuple[_System, str]: ...
def singular_values(system: _System) -> _Array: ...
def gramians(system: _System) -> tuple[_Array, _Array]: ...
def hinf_norm(system: _System) -> tuple[float, float, float]: ...
def verify(full: _System, reduced: _System, claim: str | None) -> tuple[list[str], str]: ...
