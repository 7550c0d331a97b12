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

    The layer's base class copies all keys and values at every token; here a token writes only its own column. The
    columns from `first` to `end` are in use, also those outside the window in sliding-window layers, whose masks hide
    them.
    """

    def __init__(self, room: int = 0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.room = room  # columns to make room for at first
        self.first = self.end = 0
        self._buffers: tuple[Tensor, Tensor] | None = None

    def fill(self, keys: Sequence[Tensor | None], values: Sequence[Tensor | None], spans: Spans, room: int) -> None:
        """Begin with the first tokens of each row: `keys[i]` (1, heads, n, width) up to where `spans[i]` takes them."""
        some_keys, some_values = _any(keys), _any(values)
        self.lazy_initialization(some_keys, some_values)
        self._buffers = (_aligned(keys, some_keys, spans, room), _aligned(values, some_values, spans, room))
        self._show(0, spans[0][1])

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.dtype, self.device, self.is_initialized = key_states.dtype, key_states.device, True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        new = key_states.shape[-2]
        if self._buffers is None:
            room = max(new + ROOM // 4, self.room)
            self._buffers = (_empty(key_states, room), _empty(value_states, room))
        elif self.end + new > self._buffers[0].shape[-2]:
            self._move(0, max(new, ROOM // 4))
        start, end = self.end, self.end + new
        self._buffers[0][:, :, start:end] = key_states
        self._buffers[1][:, :, start:end] = value_states
        return self._show(self.first, end)

    def drop(self, columns: int) -> None:
        """Forget the first columns; nothing is copied."""
        self._show(self.first + columns, self.end)

    def keep(self, rows: Tensor) -> None:
        """Keep only `rows`."""
        assert self._buffers is not None
        rows = rows.to(self._buffers[0].device)
        self._buffers = (self._buffers[0][rows], self._buffers[1][rows])
        self._show(self.first, self.end)

    def join(self, other: GrowingLayer, places: Tensor) -> None:
        """Take the rows of another layer, with equal last columns: the first ones in the `places` of own rows, whose
        keys and values are forgotten, the others behind the own ones."""
        assert self._buffers is not None and other._buffers is not None
        length = other.end - other.first
        if length > self.end:
            self._move(length - self.end + self.first, ROOM // 4)
        places = places.to(self._buffers[0].device)
        joined = []
        for own, buffer in zip(self._buffers, other._buffers, strict=True):
            theirs = buffer[:, :, other.first : other.end]
            own[places, :, self.end - length : self.end] = theirs[: len(places)]
            if more := len(theirs) - len(places):
                grown = own.new_zeros((len(own) + more, *own.shape[1:]))
                grown[: len(own)] = own
                grown[len(own) :, :, self.end - length : self.end] = theirs[len(places) :]
                own = grown
            joined.append(own)
        self._buffers = (joined[0], joined[1])
        self._show(min(self.first, self.end - length), self.end)

    def _move(self, before: int, behind: int) -> None:
        """Copy the columns in use into buffers with so many empty ones before and behind them."""
        assert self._buffers is not None
        length = self.end - self.first
        moved = [_empty(buffer, before + length + behind) for buffer in self._buffers]
        for new, buffer in zip(moved, self._buffers, strict=True):
            new[:, :, :before] = 0
            new[:, :, before : before + length] = buffer[:, :, self.first : self.end]
        self._buffers = (moved[0], moved[1])
        self._show(before, before + length)

    def _show(self, first: int, end: int) -> tuple[Tensor, Tensor]:
        assert self._buffers is not None
        self.first, self.end = first, end
        keys, values = (buffer[:, :, first:end] for buffer in self._buffers)
        self.keys, self.values = keys, values
        return keys, values


def _empty(like: Tensor, columns: int) -> Tensor:
    rows, heads, _, width = like.shape
    return like.new_empty((rows, heads, columns, width))


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
