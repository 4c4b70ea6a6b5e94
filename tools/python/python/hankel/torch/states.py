"""Recurrent states in the caches of transformers: what is remembered of a text goes where its keys and values go."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from torch import Tensor

from .files import AdapterError, Place


@dataclass
class States:
    """The memories of an adapter after ``length`` tokens."""

    length: int = 0
    memories: dict[Place, Tensor] = field(default_factory=dict)

    def change(self, function) -> None:
        """Applies a function of the batch dimension to every memory."""
        self.memories = {place: function(memory) for place, memory in self.memories.items()}


class _Carries:
    """Mixed into the class of a cache: the states follow its sequences."""

    hankel_states: dict[int, States]

    def reorder_cache(self, beam_idx: Tensor) -> Any:
        self._change(lambda memory: memory.index_select(0, beam_idx.to(memory.device)))
        return super().reorder_cache(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> Any:
        self._change(lambda memory: memory.repeat_interleave(repeats, dim=0))
        return super().batch_repeat_interleave(repeats)

    def batch_select_indices(self, indices: Tensor) -> Any:
        self._change(lambda memory: memory[indices.to(memory.device)])
        return super().batch_select_indices(indices)

    def reset(self) -> Any:
        self.hankel_states.clear()
        return super().reset()

    # The class is made here, so that a copy or a stored cache is made as the class of transformers first.
    def __reduce_ex__(self, protocol: int) -> tuple:
        _, (_, *arguments), *state = super().__reduce_ex__(protocol)
        return _empty, (type(self).__mro__[2], *arguments), *state

    def _change(self, function) -> None:
        for states in self.hankel_states.values():
            states.change(function)


@lru_cache(maxsize=None)
def _carrying(cache_class: type) -> type:
    return type(cache_class.__name__, (_Carries, cache_class), {"__module__": cache_class.__module__})


def _empty(cache_class: type, *arguments: Any) -> Any:
    """A cache that carries states, before it is filled."""
    carrying = _carrying(cache_class)
    return carrying.__new__(carrying, *arguments)


def of_cache(cache: Any, adapter: int) -> States:
    """The states of the text that a cache holds; fresh ones for an empty cache.

    Raises:
        AdapterError: The cache holds tokens that the adapter has not read, or fewer than it has.
    """
    length = 0 if cache is None else int(cache.get_seq_length())
    states = getattr(cache, "hankel_states", {}).get(adapter)
    if length == 0:
        return States()
    read = 0 if states is None else states.length
    if read != length:
        raise AdapterError(
            f"the cache holds {length} tokens and the adapter has read {read} of them: a recurrent state cannot be rolled back or "
            "made up; begin with a new cache (and generate without an assistant)"
        )
    return states


def put(cache: Any, adapter: int, states: States) -> None:
    """Stores the states with the keys and values of the same text."""
    if not isinstance(cache, _Carries):
        cache.__class__ = _carrying(type(cache))
        cache.hankel_states = {}
    cache.hankel_states[adapter] = states
