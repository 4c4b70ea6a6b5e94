"""Adapters of the ``train`` program in transformers: trained, generated with and saved, in pure PyTorch.

    model = AutoModelForCausalLM.from_pretrained("model")
    adapter = hankel.torch.load_adapter(model, "runs/mine/adapters/hrm")
    model.generate(...)
"""

from .adapter import Adapter, load_adapter, save_adapter
from .files import AdapterError
from .kinds import Delta, HankelShared, Householder, Hrm, Rotation, Selective, Site, StateOffset
from .sites import LAYOUTS, Layout

__all__ = [
    "LAYOUTS",
    "Adapter",
    "AdapterError",
    "Delta",
    "HankelShared",
    "Householder",
    "Hrm",
    "Layout",
    "Rotation",
    "Selective",
    "Site",
    "StateOffset",
    "load_adapter",
    "save_adapter",
]
