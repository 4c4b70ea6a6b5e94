"""Certified model reduction of discrete-time linear systems, and HRM adapters in transformers.

``hankel.reduce`` and its companions compute on numpy arrays and on the systems of python-control, scipy and harold;
``hankel.torch`` runs and trains adapters of the ``train`` program in transformers.
"""

from ._hankel import METHODS, HankelError, __version__
from .certificate import Certificate, HinfNorm, Reduction, Verification
from .reduction import gramians, hinf_norm, reduce, singular_values, verify
from .systems import System

__all__ = [
    "METHODS",
    "Certificate",
    "HankelError",
    "HinfNorm",
    "Reduction",
    "System",
    "Verification",
    "__version__",
    "gramians",
    "hinf_norm",
    "reduce",
    "singular_values",
    "verify",
]
