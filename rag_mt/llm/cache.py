"""Keys and values of a growing batch: a column for each token; rows leave it, others join, prefixes are put before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

ROOM = 256
"""Columns that the cache has room for after the prompts before it must be copied into a larger one."""

Spans = Sequence[tuple[int, int]]  # columns of each row that its prefix fills, with one common end


class GrowingLayer(DynamicLayer):
    """Keys and values of one layer in a buffer with room for later tokens, (rows, heads, room, width).

    The layer's base class copies all keys and values at every token; here a token writes only its own column. All
    columns are kept, also in sliding-window layers, whose masks hide what lies outside the window.
    """

    def __init__(self, room: int = 0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.room = room  # columns to make room for at first
        self._buffers: tuple[Tensor, Tensor] | None = None

    def fill(self, keys: Sequence[Tensor | None], values: Sequence[Tensor | None], spans: Spans, room: int) -> None:
        """Begin with the first tokens of each row: `keys[i]` (1, heads, n, width) up to where `spans[i]` takes them."""
        some_keys, some_values = _any(keys), _any(values)
        self.lazy_initialization(some_keys, some_values)
        self._buffers = (_aligned(keys, some_keys, spans, room), _aligned(values, some_values, spans, room))
        self._show(spans[0][1])

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.dtype, self.device, self.is_initialized = key_states.dtype, key_states.device, True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.get_seq_length() if self._buffers else 0
        end = start + key_states.shape[-2]
        if self._buffers is None or end > self._buffers[0].shape[-2]:
            room = max(end + ROOM // 4, self.room)
            old = self._buffers or (None, None)
            self._buffers = (_copied(old[0], key_states, start, room), _copied(old[1], value_states, start, room))
        self._buffers[0][:, :, start:end] = key_states
        self._buffers[1][:, :, start:end] = value_states
        return self._show(end)

    def keep(self, rows: Tensor, first: int) -> None:
        """Keep only `rows` and the columns from `first` on."""
        assert self._buffers is not None
        length = self.get_seq_length()
        rows = rows.to(self._buffers[0].device)
        self._buffers = (self._buffers[0][rows, :, first:], self._buffers[1][rows, :, first:])
        self._show(length - first)

    def join(self, other: GrowingLayer) -> None:
        """Take the rows of another layer behind the own ones, with equal last columns."""
        assert self._buffers is not None and other._buffers is not None
        mine, theirs = self.get_seq_length(), other.get_seq_length()
        length = max(mine, theirs)
        pairs = zip(self._buffers, other._buffers, strict=True)
        self._buffers = tuple(  # type: ignore[assignment]
            torch.cat([_shifted(a, mine, length), _shifted(b, theirs, length)]) for a, b in pairs
        )
        self._show(length)

    def _show(self, length: int) -> tuple[Tensor, Tensor]:
        assert self._buffers is not None
        keys, values = (buffer[:, :, :length] for buffer in self._buffers)
        self.keys, self.values = keys, values
        return keys, values


def _copied(old: Tensor | None, like: Tensor, length: int, room: int) -> Tensor:
    rows, heads, _, width = like.shape
    buffer = like.new_empty((rows, heads, room, width))
    if old is not None:
        buffer[:, :, :length] = old[:, :, :length]
    return buffer


def _shifted(buffer: Tensor, length: int, new: int) -> Tensor:
    """The first `length` columns as the last ones of `new`, with some room behind them."""
    rows, heads, _, width = buffer.shape
    moved = buffer.new_empty((rows, heads, new + ROOM // 4, width))
    moved[:, :, : new - length] = 0
    moved[:, :, new - length : new] = buffer[:, :, :length]
    return moved


def _any(states: Sequence[Tensor | None]) -> Tensor:
    return next(s for s in states if s is not None)


def _aligned(states: Sequence[Tensor | None], like: Tensor, spans: Spans, room: int) -> Tensor:
    _, heads, _, width = like.shape
    buffer = like.new_empty((len(states), heads, room, width))
    for row, (state, (start, end)) in enumerate(zip(states, spans, strict=True)):
        buffer[row, :, :start] = 0
        if state is not None:
            buffer[row, :, start:end] = state[0, :, : end - start]
    return buffer


@dataclass(frozen=True)
class Prefix:
    """Tokens and each layer's keys and values (1, heads, tokens, width) for them."""

    ids: tuple[int, ...]
    layers: list[tuple[Tensor, Tensor]]


@torch.inference_mode()
def filled_cache(prefixes: Sequence[Prefix | None], spans: Spans, room: int) -> Any:
    if not spans[0][1]:
        return growing_cache(room)
    layers: list[Any] = []
    for number in range(next(len(p.layers) for p in prefixes if p)):
        layer = GrowingLayer()
        states = [p.layers[number] if p else (None, None) for p in prefixes]
        layer.fill([keys for keys, _ in states], [values for _, values in states], spans, room)
        layers.append(layer)
    return Cache(layers=layers)


def growing_cache(room: int) -> Any:
    """An empty cache that makes its layers as the model reaches them."""
    maker: Any = partial(GrowingLayer, room)
    return Cache(layer_class_to_replicate=maker)
