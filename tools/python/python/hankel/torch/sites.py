"""Where adapters sit in the models of transformers: the end of a sub-layer, where its output joins the residual stream."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from .files import AdapterError


@dataclass(frozen=True)
class Layout:
    """Names of the modules of a family."""

    layers: str = "layers"
    """The list of layers in the decoder."""
    attention: str = "self_attn"
    """The attention in its layer."""
    mlp: str = "mlp"
    """The MLP in its layer."""
    attention_end: str = "self_attn"
    """The module whose output is added to the stream after the attention."""
    mlp_end: str = "mlp"
    """The same after the MLP."""
    stream: str | None = "input_layernorm"
    """The first module of a layer that gets the stream; none where that is the attention."""
    multiplier: str | None = None
    """What that output is multiplied by before: an attribute of the layer."""


_LLAMA = Layout()
_POST_NORMS = replace(_LLAMA, attention_end="post_attention_layernorm", mlp_end="post_feedforward_layernorm")

#: By ``model_type``.
LAYOUTS: dict[str, Layout] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "smollm3": _LLAMA,
    "olmo2": replace(_POST_NORMS, stream=None),
    "phi3": _LLAMA,
    "granite": replace(_LLAMA, multiplier="residual_multiplier"),
    "gemma2": _POST_NORMS,
    "gemma3_text": _POST_NORMS,
    "gpt2": replace(_LLAMA, layers="h", attention="attn", attention_end="attn", stream="ln_1"),
}


def backbone(model: nn.Module) -> tuple[nn.Module, nn.Module, Layout]:
    """The model of transformers in ``model`` (PEFT's wrapping taken off), its decoder, and the names of its modules.

    Raises:
        AdapterError: It is of no family that is known.
    """
    while hasattr(model, "get_base_model"):
        model = model.get_base_model()
    config: Any = getattr(model, "config", None)
    model_type = getattr(config, "model_type", None)
    if model_type not in LAYOUTS:
        raise AdapterError(f"model_type {model_type!r} is not supported; {', '.join(LAYOUTS)} are")
    decoder = getattr(model, getattr(model, "base_model_prefix", ""), model)
    return model, decoder, LAYOUTS[model_type]
