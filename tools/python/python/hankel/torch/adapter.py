"""Adapters attached to a model of transformers by forward hooks."""

from __future__ import annotations

import itertools
import threading
import weakref
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
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
#: All four make flash attention go by lengths.
FLASH_LENGTHS = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")


@dataclass
class _Call:
    """What a forward pass of the decoder reads and leaves behind."""

    before: dict[Place, Tensor] = field(default_factory=dict)
    after: dict[Place, Tensor] = field(default_factory=dict)
    keep: Tensor | None = None
    #: First token of every text but the first, by row: where several texts lie one after the other.
    borders: list[list[int]] = field(default_factory=list)
    #: A layer may be computed again after the adapter was turned on or off.
    enabled: bool = True


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
        self._mine = _Thread()
        self._calls = _Calls()
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
        self._handles.append(decoder.register_forward_hook(self._end, always_call=True))
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

        A layer adds ``C s_t`` after it has read ``x_t``; ``y`` of a :class:`~hankel.System` has ``x_t`` one step later. Norms and singular values
        are the same.

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
        """The model alone, inside a ``with``: for the forward passes that begin there, in any thread."""
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
        """Hooks of one layer. They are methods of this adapter, not closures: a copy of the model gets those of its own."""
        reads = self.files.input
        multiplier = 1.0 if layout.multiplier is None else float(getattr(block, layout.multiplier))
        attention, mlp = getattr(block, layout.attention), getattr(block, layout.mlp)
        remember: Any = self._remember
        if layout.stream is None:
            remember = partial(self._remember_normalised, getattr(block, layout.mlp_end).variance_epsilon)
        if any((layer, site) in self.sites for site in ("attention", "mlp")):
            # Of a layer that is computed again, transformers from 5.23 on calls the hooks of its parts alone.
            self._before(block, self._enter)
            self._before(attention, self._enter)
        if (layer, "attention") in self.sites:
            if reads == "residual":
                # The block's own hooks are not called where gradient checkpointing computes it again; those of its first part are.
                first = getattr(block, layout.stream) if layout.stream else attention
                self._before(first, self._remember, "stream")
            elif reads == "norm":
                self._before(attention, remember, "attention")
            self._after(getattr(block, layout.attention_end), self._after_attention, layer, multiplier)
        if (layer, "mlp") in self.sites:
            if reads == "norm":
                self._before(mlp, remember, "mlp")
            elif reads == "sublayer":
                self._after(getattr(block, layout.mlp_end), self._after_mlp, multiplier)
            self._after(block, self._after_layer, layer)

    def _before(self, module: nn.Module, hook: Any, *own: Any) -> None:
        self._handles.append(module.register_forward_pre_hook(partial(hook, *own), with_kwargs=True))

    def _after(self, module: nn.Module, hook: Any, *own: Any) -> None:
        self._handles.append(module.register_forward_hook(partial(hook, *own)))

    def _enter(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        """Finds the call that a layer belongs to, when gradient checkpointing computes it again: there may have been others since."""
        witness = _tensor(kwargs.get("position_embeddings")) if "position_embeddings" in kwargs else _tensor(kwargs)
        mine = self._mine
        if mine.inside:
            mine.current = mine.call
            self._calls.put(witness, mine.call)
        else:
            # Layers on a GPU are computed again by a thread of autograd, which has made no call.
            mine.current = self._calls.get(witness) or mine.call or self._calls.last

    def _remember(self, key: str, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        self._mine.seen[key] = args[0] if args else kwargs["hidden_states"]

    def _remember_normalised(self, eps: float, key: str, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        """The same of a sub-layer that reads the stream as it is, divided by its root mean square."""
        self._remember(key, module, args, kwargs)
        x = self._mine.seen[key]
        single = x.float()
        self._mine.seen[key] = (single * torch.rsqrt(single.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)

    def _after_attention(self, layer: int, multiplier: float, module: nn.Module, args: tuple, output: Any) -> Any:
        if not self._mine.current.enabled:
            return None
        end = _first(output)
        reads, seen = self.files.input, self._mine.seen
        if reads == "residual":
            x = seen.pop("stream").to(end.device) + multiplier * end
        else:
            x = seen.pop("attention") if reads == "norm" else multiplier * end
        y = self._run((layer, "attention"), x)
        # The sum is made by the layer, in the precision of the model.
        return _replaced(output, (end.to(y) + y / multiplier).to(end.dtype))

    def _after_mlp(self, multiplier: float, module: nn.Module, args: tuple, output: Any) -> None:
        self._mine.seen["sublayer"] = multiplier * _first(output)

    def _after_layer(self, layer: int, module: nn.Module, args: tuple, output: Any) -> Any:
        if not self._mine.current.enabled:
            return None
        stream = _first(output)
        reads, seen = self.files.input, self._mine.seen
        x = stream if reads == "residual" else seen.pop({"norm": "mlp", "sublayer": "sublayer"}[reads])
        if torch.is_grad_enabled() and stream.requires_grad and not x.requires_grad:
            raise AdapterError(
                "gradient checkpointing with use_reentrant=True cuts off what the adapter reads; call gradient_checkpointing_enable("
                "gradient_checkpointing_kwargs={'use_reentrant': False})"
            )
        y = self._run((layer, "mlp"), x)
        return _replaced(output, (stream.to(y) + y).to(stream.dtype))

    def _run(self, place: Place, x: Tensor) -> Tensor:
        call = self._mine.current
        keep = None if call.keep is None else call.keep.to(x.device)
        if any(call.borders):
            return self._run_texts(call, place, x, keep)
        y, memory = self.sites[place](x, keep, call.before.get(place), self.scan)
        if memory is not None:
            call.after[place] = memory
        return y

    def _run_texts(self, call: _Call, place: Place, x: Tensor, keep: Tensor | None) -> Tensor:
        """Of texts that lie one after the other, each from its own beginning. The memory is that of the last one of every row."""
        rows, memories = [], []
        for row, borders in enumerate(call.borders):
            ends = [0, *borders, x.shape[1]]
            parts = []
            memory = None
            for first, end in zip(ends, ends[1:]):
                one = slice(row, row + 1), slice(first, end)
                y, memory = self.sites[place](x[one], None if keep is None else keep[one], None, self.scan)
                parts.append(y)
            rows.append(torch.cat(parts, dim=1))
            memories.append(memory)
        if memories[0] is not None:
            call.after[place] = torch.cat(memories)
        return torch.cat(rows)

    def _begin(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        mine, call = self._mine, _Call(enabled=self.enabled)
        mine.call = self._calls.last = call
        mine.inside = True
        if isinstance(kwargs.get("position_ids"), Tensor):
            # GPT-2 hands on to its layers what it is given, which may be given to other passes too: see _enter.
            kwargs["position_ids"] = kwargs["position_ids"].view_as(kwargs["position_ids"])
        if not call.enabled:
            return
        given = dict(zip(self._names, args)) | kwargs
        before = states.of_cache(given.get("past_key_values"), self._number)
        call.before = before.memories
        tokens = given.get("input_ids")
        tokens = given.get("inputs_embeds") if tokens is None else tokens
        if tokens is None:
            return
        mask, positions, (rows, steps) = given.get("attention_mask"), given.get("position_ids"), tokens.shape[:2]
        if any(site.remembers for site in self.sites.values()):
            _check_readable(given)
        # A mask, like positions, may be one for all rows.
        keep = _padding(mask, steps, before.length)
        call.keep = None if keep is None else keep.expand(rows, -1)
        if before.length:
            return
        mask = _whole(mask)
        if rows == 1 and _is_packed_flash(module, mask) and all(given.get(key) is not None for key in FLASH_LENGTHS):
            borders = [given["cu_seq_lens_q"][1:-1].tolist()]
        elif mask is None or (rows == 1 and _is_packed_flash(module, mask)):
            borders = _restarts(positions) if isinstance(positions, Tensor) and positions.ndim == 2 else []
        else:
            borders = _blocks(mask, steps)
        if any(borders) and not (isinstance(mask, Tensor) and mask.ndim == 4) and _fills_cache(module, given):
            raise AdapterError(
                "position_ids or cu_seq_lens_q begin texts anew, but with a cache attention reads on from one text to the next; "
                "pass use_cache=False, or for one text an attention_mask"
            )
        call.borders = borders * rows if len(borders) == 1 else borders

    def _end(self, module: nn.Module, args: tuple, output: Any) -> None:
        mine, call = self._mine, self._mine.call
        mine.inside = False
        mine.seen.clear()
        # There is no output of a pass that has failed.
        if output is None or not call.enabled:
            return
        cache = getattr(output, "past_key_values", None)
        if cache is None and isinstance(output, tuple):
            cache = next((part for part in output if hasattr(part, "get_seq_length")), None)
        if cache is not None:
            states.put(cache, self._number, states.States(int(cache.get_seq_length()), call.after))
            # A layer that is computed again by gradient checkpointing begins where it began.
            call.after = {}


class _Anew:
    """Mixed into what a copy of a model, or one that is stored, begins without."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return type(self)()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return type(self), ()


class _Thread(_Anew, threading.local):
    """What the hooks of a forward pass tell each other, which is made by one thread, as others may be at the same time."""

    def __init__(self) -> None:
        #: That of the forward pass that is being made, or was made last, and that of the layer that is being run.
        self.call: _Call | None = None
        self.current = _Call()
        self.inside = False
        #: Inputs of the parts of the layer that is being run.
        self.seen: dict[str, Tensor] = {}


class _Calls(_Anew):
    """Calls by a tensor that a forward pass makes and gives to every layer, for as long as that lives; of all threads."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[weakref.ref[Tensor], _Call]] = {}
        self.last = _Call()

    def put(self, witness: Tensor | None, call: _Call) -> None:
        if witness is None:
            return
        key, of = id(witness), self._of
        if key not in of or of[key][0]() is not witness:
            of[key] = weakref.ref(witness, lambda _: of.pop(key, None)), call
        else:
            of[key] = of[key][0], call

    def get(self, witness: Tensor | None) -> _Call | None:
        ref, call = self._of.get(id(witness), (None, None))
        return call if ref is not None and ref() is witness else None


def _tensor(value: Any) -> Tensor | None:
    """The first tensor in a value."""
    if isinstance(value, Tensor):
        return value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return next((found for part in parts if (found := _tensor(part)) is not None), None)


def _whole(mask: Any) -> Any:
    """Of masks by kind of layer, that of layers that see everything."""
    return mask.get("full_attention", next(iter(mask.values()), None)) if isinstance(mask, dict) else mask


def _seen(mask: Tensor) -> Tensor:
    """Whether a query sees a key, [batch, queries, keys], from a mask that says so or is added."""
    return mask[:, 0] if mask.dtype == torch.bool else mask[:, 0] == 0


def _padding(mask: Any, steps: int, before: int) -> Tensor | None:
    """1 for tokens and 0 for padding, [batch, steps], of the ``steps`` after the first ``before``; none if none begins with padding."""
    mask = _whole(mask)
    if not isinstance(mask, Tensor) or mask.ndim not in (2, 4):
        return None
    if mask.ndim == 4:
        keep = _own(_seen(mask), steps, before)
    else:
        keep = mask != 0
        if bool((~keep[:, :-1] & keep[:, 1:] & (keep.cumsum(1)[:, :-1] > 0)).any()):
            raise AdapterError("attention_mask has padding between the tokens of a row, which an adapter with a state would read; pad before the text")
        keep = keep[:, -steps:]
    # Padding after a text is seen by no token of it.
    return None if bool(keep[:, 0].all()) else keep


def _own(seen: Tensor, steps: int, before: int) -> Tensor:
    """Which tokens see themselves and not what follows, as padding does not: it sees nothing, or, where a row must see something, all."""
    keys = seen.shape[2]
    # Keys of a cache that forgets are the newest.
    first = before if keys >= before + steps else keys - steps
    own = torch.diagonal(seen, first, 1, 2)
    ahead = torch.diagonal(seen, first + 1, 1, 2)[:, : steps - 1]
    keep = own.clone()
    keep[:, : ahead.shape[1]] &= ~ahead
    return keep


def _check_readable(given: dict[str, Any]) -> None:
    """Refuses calls whose texts an adapter with a state could not tell apart."""
    if any(given.get(key) is not None for key in ("cache", "block_table", "read_index")):
        raise AdapterError("continuous batching (generate_batch) keeps no state of an adapter from step to step; use generate")
    if type(_whole(given.get("attention_mask"))).__name__ == "BlockMask":
        raise AdapterError(
            "a BlockMask does not tell an adapter where texts begin; pass position_ids that begin anew without a mask and use_cache=False, "
            "or a mask of all pairs of tokens"
        )


def _is_packed_flash(decoder: nn.Module, mask: Any) -> bool:
    """Whether attention drops a mask that hides nothing, and divides one row by lengths or positions: flash attention."""
    hides_nothing = mask is None or (isinstance(mask, Tensor) and mask.ndim == 2 and bool((mask != 0).all()))
    return "flash" in str(getattr(decoder.config, "_attn_implementation", "")) and hides_nothing


def _fills_cache(decoder: nn.Module, given: dict[str, Any]) -> bool:
    """Whether a forward pass has a cache: one that is given, or that the decoder makes, as transformers decides it."""
    if given.get("past_key_values") is not None:
        return True
    wanted = given.get("use_cache")
    wanted = getattr(decoder.config, "use_cache", False) if wanted is None else wanted
    return bool(wanted) and not (decoder.training and getattr(decoder, "gradient_checkpointing", False))


def _restarts(positions: Tensor) -> list[list[int]]:
    """Tokens at which positions do not go on from the one before, by row."""
    breaks = positions[:, 1:] != positions[:, :-1] + 1
    return [(row.nonzero()[:, 0] + 1).tolist() for row in breaks.cpu()]


def _blocks(mask: Any, steps: int) -> list[list[int]]:
    """Tokens that do not see the one before them though both are none of padding, by row: texts kept apart by a mask of all pairs."""
    mask = _whole(mask)
    if not isinstance(mask, Tensor) or mask.ndim != 4 or mask.shape[3] < steps:
        return []
    seen = _seen(mask)
    keep = _own(seen, steps, 0)
    breaks = ~torch.diagonal(seen, -1, 1, 2)[:, : steps - 1] & keep[:, 1:] & keep[:, :-1]
    return [(row.nonzero()[:, 0] + 1).tolist() for row in breaks.cpu()]


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
    count = 1 + max(layer for layer, _ in content.sites)
    if count != len(layers):
        raise AdapterError(f"the adapter is for {count} layers, the model has {len(layers)}")
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

    A directory that is there is replaced if it holds an adapter of this package and nothing else.

    Raises:
        AdapterError: There is no adapter, it holds values that are not finite, or what is there may not be replaced.
    """
    if not isinstance(adapter, Adapter):
        found = getattr(backbone(adapter)[1], "hankel_adapter", None)
        if found is None:
            raise AdapterError("the model has no adapter")
        adapter = found
    files.write(adapter.files, directory)
