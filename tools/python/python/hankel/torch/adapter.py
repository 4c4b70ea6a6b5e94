"""Adapters attached to a model of transformers by forward hooks."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any, Iterator

import torch
from torch import Tensor, nn

from ..systems import System
from . import files, scan, states
from .files import AdapterError, AdapterFiles, Place
from .kinds import Recurrence, Site
from .sites import Layout, backbone

_NUMBERS = itertools.count()


@dataclass
class _Call:
    """What a forward pass of the decoder reads and leaves behind."""

    before: dict[Place, Tensor] = field(default_factory=dict)
    after: dict[Place, Tensor] = field(default_factory=dict)
    keep: Tensor | None = None
    read: int = 0


class Adapter(nn.Module):
    """The sites of an adapter, which are the parameters that are trained; :func:`load_adapter` makes one.

    It is a submodule ``hankel_adapter`` of the model's decoder, so that ``model.parameters()`` has its parameters. They stay in the precision
    of their file, whatever the model's is.
    """

    def __init__(self, content: AdapterFiles, decoder: nn.Module, layout: Layout, path: str):
        super().__init__()
        self.files = content
        self.scan = scan.check(path)
        self.enabled = True
        self._number = next(_NUMBERS)
        self._call = _Call()
        self._handles: list[Any] = []
        # Not a submodule: the decoder holds this module.
        self._decoder = (decoder,)
        self._originals: dict[str, Tensor] = {}
        for (layer, site), module in content.sites.items():
            self.add_module(f"layer{layer}_{site}", module)
        layers = getattr(decoder, layout.layers)
        for layer, block in enumerate(layers):
            self._attach(layer, block, layout)
        self._handles.append(decoder.register_forward_pre_hook(self._begin, with_kwargs=True))
        self._handles.append(decoder.register_forward_hook(self._end))
        self._names = list(signature(decoder.forward).parameters)

    @property
    def kind(self) -> str:
        """``hrm``, or one of the other kinds: ``selective``, ``rotation`` ..."""
        return self.files.kind

    @property
    def sites(self) -> dict[Place, Site]:
        """The adapters by layer and site, ``"attention"`` or ``"mlp"``."""
        return self.files.sites

    def tensors(self) -> dict[str, nn.Parameter]:
        """The parameters by their names in ``train forward --gradients`` and, but for poles of reduced layers, in the file."""
        return {
            self.files.name(place, entry): parameter
            for place, site in self.sites.items()
            for entry, parameter in site.named_parameters()
        }

    def system(self, layer: int, site: str = "mlp") -> System:
        """The linear system of a layer with its gate, in double precision: ``hankel.reduce`` takes it.

        Raises:
            AdapterError: There is no adapter, or it is not a linear recurrence with constant coefficients.
        """
        module = self.sites.get((layer, site))
        if module is None:
            raise AdapterError(f"there is no adapter in layer {layer} at {site!r}; there are {sorted(self.sites)}")
        if not isinstance(module, Recurrence):
            raise AdapterError(f"{self.kind} is not a linear system with constant coefficients")
        return System(*(matrix.numpy() for matrix in module.system()))

    def train_again(self) -> None:
        """Makes everything trainable that can be trained: for after ``peft.get_peft_model``, which freezes all others' parameters."""
        self.requires_grad_(True)
        for site in self.sites.values():
            site.freeze()

    @contextmanager
    def disabled(self) -> Iterator[None]:
        """The model alone, inside a ``with``."""
        before, self.enabled = self.enabled, False
        try:
            yield
        finally:
            self.enabled = before

    def remove(self) -> None:
        """Takes the adapter off the model, and puts parameters of the model back that had been trained with it."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        (decoder,) = self._decoder
        if getattr(decoder, "hankel_adapter", None) is self:
            del decoder.hankel_adapter
        with torch.no_grad():
            for name, value in self._originals.items():
                self.files.backbone[name].copy_(value)

    def take_backbone(self, model: nn.Module) -> None:
        """Puts the parameters of the model in place that were trained with the adapter."""
        for name, value in self.files.backbone.items():
            parameter = dict(model.named_parameters(remove_duplicate=False)).get(name)
            if parameter is None:
                raise AdapterError(f"{files.BACKBONE}: {name} is not a parameter of this model")
            if parameter.shape != value.shape:
                raise AdapterError(
                    f"{files.BACKBONE}: {name} has shape {list(value.shape)}, in the model {list(parameter.shape)}"
                )
            self._originals[name] = parameter.detach().clone()
            self.files.backbone[name] = parameter
            with torch.no_grad():
                parameter.copy_(value)

    def _attach(self, layer: int, block: nn.Module, layout: Layout) -> None:
        """Hooks of one layer. What they tell each other lives in ``seen`` for one pass through it."""
        seen: dict[str, Tensor] = {}
        reads = self.files.input
        multiplier = 1.0 if layout.multiplier is None else float(getattr(block, layout.multiplier))

        def remember(key: str):
            def hook(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
                if self.enabled:
                    seen[key] = args[0] if args else kwargs["hidden_states"]

            return hook

        def after_attention(module: nn.Module, args: tuple, output: Any) -> Any:
            if not self.enabled:
                return None
            end = _first(output)
            x = {
                "residual": lambda: seen.pop("stream") + multiplier * end,
                "norm": lambda: seen.pop("attention"),
                "sublayer": lambda: multiplier * end,
            }[reads]()
            y = self._run((layer, "attention"), x)
            # The sum is made by the layer, in the precision of the model.
            return _replaced(output, (end.to(y) + y / multiplier).to(end.dtype))

        def after_mlp(module: nn.Module, args: tuple, output: Any) -> None:
            seen["sublayer"] = multiplier * _first(output)

        def after_layer(module: nn.Module, args: tuple, output: Any) -> Any:
            if not self.enabled:
                return None
            stream = _first(output)
            x = stream if reads == "residual" else seen.pop({"norm": "mlp", "sublayer": "sublayer"}[reads])
            y = self._run((layer, "mlp"), x)
            return _replaced(output, (stream.to(y) + y).to(stream.dtype))

        attention, mlp = getattr(block, layout.attention), getattr(block, layout.mlp)
        if (layer, "attention") in self.sites:
            if reads == "residual":
                self._handles.append(block.register_forward_pre_hook(remember("stream"), with_kwargs=True))
            elif reads == "norm":
                self._handles.append(attention.register_forward_pre_hook(remember("attention"), with_kwargs=True))
            self._handles.append(getattr(block, layout.attention_end).register_forward_hook(after_attention))
        if (layer, "mlp") in self.sites:
            if reads == "norm":
                self._handles.append(mlp.register_forward_pre_hook(remember("mlp"), with_kwargs=True))
            elif reads == "sublayer":
                self._handles.append(getattr(block, layout.mlp_end).register_forward_hook(after_mlp))
            self._handles.append(block.register_forward_hook(after_layer))

    def _run(self, place: Place, x: Tensor) -> Tensor:
        call, keep = self._call, self._call.keep
        if keep is not None:
            keep = keep.to(x.device)
        y, memory = self.sites[place](x, keep, call.before.get(place), self.scan)
        if memory is not None:
            call.after[place] = memory
        call.read = x.shape[1]
        return y

    def _begin(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        if not self.enabled:
            return
        given = dict(zip(self._names, args)) | kwargs
        before = states.of_cache(given.get("past_key_values"), self._number)
        self._call = _Call(before=before.memories)
        tokens = given.get("input_ids")
        tokens = given.get("inputs_embeds") if tokens is None else tokens
        if tokens is not None:
            self._call.keep = _padding(given.get("attention_mask"), tokens.shape[1], before.length)

    def _end(self, module: nn.Module, args: tuple, output: Any) -> None:
        if not self.enabled:
            return
        cache = getattr(output, "past_key_values", None)
        if cache is None and isinstance(output, tuple):
            cache = next((part for part in output if hasattr(part, "get_seq_length")), None)
        if cache is not None:
            states.put(cache, self._number, states.States(int(cache.get_seq_length()), self._call.after))
            # A layer that is computed again by gradient checkpointing begins where it began.
            self._call.after = {}


def _padding(mask: Any, steps: int, before: int) -> Tensor | None:
    """1 for tokens and 0 for padding, [batch, steps], of the ``steps`` after the first ``before``; none if none begins with padding."""
    if isinstance(mask, dict):
        mask = mask.get("full_attention", next(iter(mask.values()), None))
    if not isinstance(mask, Tensor):
        return None
    if mask.ndim == 4:
        # What the last token may see of the text: the mask of a static cache.
        seen = mask[:, 0, -1, before : before + steps]
        mask = seen if seen.dtype == torch.bool else seen == 0
    keep = mask[:, -steps:] != 0 if mask.ndim == 2 else None
    # Padding after a text is seen by no token of it.
    return keep if keep is not None and not bool(keep[:, 0].all()) else None


def _first(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple) else output


def _replaced(output: Any, value: Tensor) -> Any:
    return (value, *output[1:]) if isinstance(output, tuple) else value


def load_adapter(model: nn.Module, directory: str | Path, *, scan: str = "auto", trainable: bool = True) -> Adapter:
    """Attaches the adapter of a directory to a model of transformers, which may be wrapped by PEFT, spread over devices, or quantised.

    The model's own parameters stay as they are, trainable or not.

    Args:
        model: A causal language model of a family in ``hankel.torch.LAYOUTS``.
        directory: What ``train fit``, ``bt reduce`` or :func:`save_adapter` wrote.
        scan: ``"fft"``, ``"sequential"``, or ``"auto"``, which is FFT for more than one token.
        trainable: Whether the adapter's parameters get gradients.

    Raises:
        AdapterError: The directory is damaged, or the adapter was made for another model.
    """
    base, decoder, layout = backbone(model)
    if getattr(decoder, "hankel_adapter", None) is not None:
        raise AdapterError("the model has an adapter already; remove() takes it off")
    content = files.read(directory)
    layers, width = getattr(decoder, layout.layers), base.config.hidden_size
    if content.width() != width:
        raise AdapterError(f"the adapter has width {content.width()}, the model {width}")
    last = max(layer for layer, _ in content.sites)
    if last >= len(layers):
        raise AdapterError(f"layer {last} does not exist in a model of {len(layers)} layers")
    adapter = Adapter(content, decoder, layout, scan)
    try:
        adapter.take_backbone(base)
    except AdapterError:
        adapter.remove()
        raise
    devices = {layer: _device(layers[layer]) for layer, _ in content.sites}
    for (layer, _), site in content.sites.items():
        # What all layers share is copied to the device of each when it is used.
        if not site.shared or len(set(devices.values())) == 1:
            site.to(devices[layer])
    decoder.add_module("hankel_adapter", adapter)
    if trainable:
        adapter.train_again()
    else:
        adapter.requires_grad_(False)
    return adapter


def _device(layer: nn.Module) -> torch.device:
    """Where a layer computes; the CPU for one whose weights are brought in when they are needed."""
    return next((p.device for p in layer.parameters() if p.device.type != "meta"), torch.device("cpu"))


def save_adapter(adapter: Adapter | nn.Module, directory: str | Path) -> None:
    """Writes the directory of an adapter, or of the adapter of a model: what ``train eval``, ``train generate`` and ``bt`` read.

    A directory that is there is replaced, if it is one of an adapter.

    Raises:
        AdapterError: There is no adapter, or it holds values that are not finite.
    """
    if not isinstance(adapter, Adapter):
        found = getattr(backbone(adapter)[1], "hankel_adapter", None)
        if found is None:
            raise AdapterError("the model has no adapter")
        adapter = found
    files.write(adapter.files, directory)
