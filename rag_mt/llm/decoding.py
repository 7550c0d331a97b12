"""Greedy decoding of a batch of prompts whose first tokens are already computed, and which others join on the way.

Rows are padded on the left. A prefix's keys and values are set right before the row's own tokens, so that every row
is one run of neighbouring columns: position differences are column differences, and the masks that transformers
makes for full and sliding-window layers hold as they are. A row with fewer tokens to compute than the longest
computes the last tokens of its prefix again, in the columns that would otherwise be padding. All rows end in the same
column, so that batches join by setting them side by side at their right ends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from rag_mt.llm.shortlist import chooser_of
from rag_mt.llm.stopping import AnswerText
from rag_mt.text.loops import loop_in

ROOM = 256
"""Columns that the cache has room for after the prompts before it must be copied into a larger one."""
COMPACT_SHARE = 0.25
"""Finished rows leave the batch when they are at least this share of it: leaving copies the cache. Rows that nobody
wants any more, and those whose places others take, leave at once."""
LOOP_PERIOD, LOOP_ROUNDS, LOOP_TOKENS = 64, 2, 36
"""An answer is stuck when it ends in at least so many rounds and tokens of a sequence of up to so many tokens: no
translation says twice in a row what is that long."""
LOOK_EVERY = 8
"""New tokens between two looks for a loop."""
PADDING = 32
"""Prompts are computed together on a CPU as long as they have at most so much padding, in tokens: each part of them
costs about as much more as so many tokens do. Other devices compute all together."""
NEVER_AGAIN = 5
"""An answer that has left a loop says no run of so many tokens again: what was stuck once mostly gets stuck again."""

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
        own, others = self.get_seq_length(), other.get_seq_length()
        length = max(own, others)
        pairs = zip(self._buffers, other._buffers, strict=True)
        self._buffers = tuple(  # type: ignore[assignment]
            torch.cat([_shifted(a, own, length), _shifted(b, others, length)]) for a, b in pairs
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
    for row, (own, (start, end)) in enumerate(zip(states, spans, strict=True)):
        buffer[row, :, :start] = 0
        if own is not None:
            buffer[row, :, start:end] = own[0, :, : end - start]
    return buffer


@dataclass(frozen=True)
class Prefix:
    """Tokens and each layer's keys and values (1, heads, tokens, width) for them."""

    ids: tuple[int, ...]
    layers: list[tuple[Tensor, Tensor]]


def loop_at_end(tokens: Sequence[int]) -> tuple[int, int] | None:
    """Where a loop begins and how long its rounds are, if the tokens end in so many rounds of the same few that greedy
    decoding would not leave them any more; else None."""
    for period in range(1, LOOP_PERIOD + 1):
        length = max(LOOP_ROUNDS * period, LOOP_TOKENS)
        if len(tokens) < length or tokens[-1] != tokens[-1 - period]:
            continue
        tail = tokens[-length:]
        if tail[period:] == tail[:-period]:
            start = len(tokens) - length
            while start and tokens[start - 1] == tokens[start - 1 + period]:
                start -= 1
            return start, period
    return None


@dataclass
class Row:
    """One prompt's tokens (prefix included), its limit of new tokens, and its answer as far as it is. An answer that
    loops is given up long before its limit: it is `stuck` and did not end. One that is `unwanted` is done too.

    One that ended or was stopped is stuck as well if a line of its text repeats itself and none of its `prompt` does,
    hints included.

    A row may begin with tokens `made` before the second round of a loop, which are the last ones of `ids` too; its next
    token is not `barred`, the one that began that round.
    """

    ids: tuple[int, ...]
    limit: int
    answer: AnswerText
    made: list[int] = field(default_factory=list)
    barred: int | None = None
    prompt: str = ""
    ended: bool = False
    unwanted: bool = False
    done: bool = False

    def __post_init__(self) -> None:
        self._begun = len(self.made)
        self._lengths: list[int] = []  # of the text after each new token
        self._second: int | None = None  # the token that begins the second round of a loop

    @property
    def new(self) -> int:
        """The number of new tokens."""
        return len(self.made)

    @property
    def stuck(self) -> bool:
        """Whether the answer loops, or did so before it ended."""
        return self._second is not None

    def push(self, token: int, ends: frozenset[int]) -> None:
        """Take the next token; `ends` are the tokens that end a text."""
        self.made.append(token)
        if token in ends:
            self.ended = True
        else:
            self.answer.push(token)
        self._lengths.append(len(self.answer.text))
        self.done = self.ended or self.answer.stopped or self.new >= self.limit
        if not self.done and len(self.made) % LOOK_EVERY == 0:
            found = loop_at_end(self.made)
            self._second = sum(found) if found else None
            self.done = self.stuck
        if self.done:
            self.answer.close()
            if self.ended or self.answer.stopped:
                self._second = self._second_round()

    @property
    def banned(self) -> set[int]:
        """The tokens that do not come next in an answer that leaves a loop: first the one that is barred, and always
        those that would end a run of NEVER_AGAIN tokens that it has already."""
        size = NEVER_AGAIN - 1
        last = self.made[-size:]
        found = {self.made[i + size] for i in range(self.new - size) if self.made[i : i + size] == last}
        return found | {self.barred} if self.barred is not None and self.new == self._begun else found

    def way_out(self) -> tuple[list[int], int] | None:
        """The tokens up to the end of a stuck answer's first round, and the one that began the second: an answer that
        goes on from there with the likeliest other token may leave the loop. None if the row is not stuck."""
        return None if self._second is None else (self.made[: self._second], self.made[self._second])

    def _second_round(self) -> int | None:
        """Which token begins the second round of a loop in the text of a whole answer that has not left one before."""
        first_round = None if self._begun else _first_round(self.answer.text)
        if first_round is None or _first_round(self.prompt) is not None:
            return None
        second = bisect_left(self._lengths, first_round) + 1
        return second if second < self.new - 1 else None  # what ended the answer is no way into a loop


def _first_round(text: str) -> int | None:
    """Where the first round of a loop ends, which never goes on in another line; None if there is none."""
    begin = 0
    for line in text.splitlines(keepends=True):
        if found := loop_in(line):
            return begin + found[0]
        begin += len(line)
    return None


def compute_prefix(model: Any, ids: tuple[int, ...]) -> Prefix:
    """The keys and values of `ids`, computed alone."""
    cache = _growing_cache(len(ids))
    device = model.get_input_embeddings().weight.device
    tokens = torch.tensor([ids], device=device)
    _next_tokens(model, tokens, torch.ones_like(tokens), torch.arange(len(ids), device=device)[None], cache)
    return Prefix(ids, [(layer.keys, layer.values) for layer in cache.layers])


Newcomers = Sequence[tuple[Row, Prefix | None]]


def once(newcomers: Newcomers) -> Callable[[int], Newcomers]:
    """What `decode` asks for more, where these are all."""
    left = [newcomers]
    return lambda room: left.pop() if left else ()


def decode(model: Any, more: Callable[[int], Newcomers], room: int, ends: frozenset[int], pad: int) -> Iterator[None]:
    """Fill rows' answers greedily; yields after each token, and stops computing when it is closed.

    `more(n)` gives up to n rows with their prefixes; it is asked for the first `room` ones and again whenever there is
    room for some, until no row is left and it gives none. Each row's `ids` begin with its prefix's, if it has one, and
    go on after it. The next token of a row is the likeliest that is not `banned` there.
    """
    batch: Batch | None = None
    while True:
        free = room - (len(batch.going) if batch else 0)
        newcomers = more(free) if free else ()
        if batch and batch.going:
            batch.leave(at_once=bool(newcomers))
            batch.step(model)
        else:
            batch = None
        for part in _parts(model, newcomers):
            others = _begun(model, part, pad)
            batch = batch.joined(others) if batch else others
        if batch is None:
            return
        for row, token in zip(batch.rows, batch.chosen.tolist(), strict=True):
            if not row.done:
                row.push(token, ends)
        yield


@dataclass
class Batch:
    """Rows with their next tokens `chosen`, (rows,), the first columns of their own in `starts`, (rows,), the number of
    columns computed for them, and the keys and values of these."""

    rows: list[Row]
    starts: Tensor
    width: int
    cache: Any
    chosen: Tensor

    @property
    def going(self) -> list[int]:
        """The rows that are not done."""
        return [i for i, row in enumerate(self.rows) if not row.done]

    def leave(self, at_once: bool) -> None:
        """Drop the rows that are done, now or when they are many, and the columns that only they had."""
        going = self.going
        at_once = at_once or any(row.unwanted for row in self.rows)
        if len(self.rows) - len(going) < (1 if at_once else COMPACT_SHARE * len(self.rows)):
            return
        kept = torch.tensor(going, device=self.starts.device)
        starts = self.starts[kept]
        first = int(starts.min())
        for layer in self.cache.layers:
            layer.keep(kept, first)
        self.rows = [self.rows[i] for i in going]
        self.starts, self.chosen, self.width = starts - first, self.chosen[kept], self.width - first

    def step(self, model: Any) -> None:
        """Compute the column of the chosen tokens, and choose the next ones."""
        self.width += 1
        columns = torch.arange(self.width, device=self.starts.device)
        mask = (columns >= self.starts[:, None]).long()
        positions = self.width - 1 - self.starts[:, None]
        self.chosen = _next_tokens(model, self.chosen[:, None], mask, positions, self.cache, self.rows)

    def joined(self, other: Batch) -> Batch:
        """Both batches as one."""
        with torch.inference_mode():
            for layer, others in zip(self.cache.layers, other.cache.layers, strict=True):
                layer.join(others)
        width = max(self.width, other.width)
        starts = torch.cat([self.starts + width - self.width, other.starts + width - other.width])
        chosen = torch.cat([self.chosen, other.chosen])
        return Batch(self.rows + other.rows, starts, width, self.cache, chosen)


def _parts(model: Any, newcomers: Newcomers) -> list[Newcomers]:
    """The newcomers that are computed together."""
    if model.device.type != "cpu" or not newcomers:
        return [newcomers] if newcomers else []
    lengths = [len(row.ids) - (len(prefix.ids) if prefix else 0) for row, prefix in newcomers]
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    parts: list[list[tuple[Row, Prefix | None]]] = []
    padding = longest = 0
    for i in order:
        padding += longest - lengths[i]
        if not parts or padding > PADDING:
            parts.append([])
            padding, longest = 0, lengths[i]
        parts[-1].append(newcomers[i])
    return list(parts)


def _begun(model: Any, newcomers: Newcomers, pad: int) -> Batch:
    """The batch of rows whose prompts are computed."""
    device = model.get_input_embeddings().weight.device
    rows, prefixes = [row for row, _ in newcomers], [prefix for _, prefix in newcomers]
    width = max(len(row.ids) for row in rows)  # columns of the longest prompt
    pads = [width - len(row.ids) for row in rows]
    known = min(start + (len(p.ids) if p else 0) for start, p in zip(pads, prefixes, strict=True))
    columns = torch.arange(width, device=device)
    starts = torch.tensor(pads, device=device)
    positions, mask = (columns - starts[:, None]).clamp(min=0), (columns >= starts[:, None]).long()
    spans = [(min(start, known), known) for start in pads]
    cache = _filled_cache(prefixes, spans, width + min(max(row.limit for row in rows), ROOM))
    padded = [[pad] * start + list(row.ids) for start, row in zip(pads, rows, strict=True)]
    tokens = torch.tensor([ids[known:] for ids in padded], device=device)
    chosen = _next_tokens(model, tokens, mask, positions[:, known:], cache, rows)
    return Batch(rows, starts, width, cache, chosen)


@torch.inference_mode()
def _filled_cache(prefixes: Sequence[Prefix | None], spans: Spans, room: int) -> Any:
    if not spans[0][1]:
        return _growing_cache(room)
    layers: list[Any] = []
    for number in range(next(len(p.layers) for p in prefixes if p)):
        layer = GrowingLayer()
        states = [p.layers[number] if p else (None, None) for p in prefixes]
        layer.fill([keys for keys, _ in states], [values for _, values in states], spans, room)
        layers.append(layer)
    return Cache(layers=layers)


def _growing_cache(room: int) -> Any:
    """An empty cache that makes its layers as the model reaches them."""
    maker: Any = partial(GrowingLayer, room)
    return Cache(layer_class_to_replicate=maker)


@torch.inference_mode()
def _next_tokens(
    model: Any, tokens: Tensor, mask: Tensor, positions: Tensor, cache: Any, rows: Sequence[Row] = ()
) -> Tensor:
    """The likeliest next token of each row that is not banned there, shape (rows,); only the last column's scores are
    computed."""
    given = {
        "input_ids": tokens,
        "attention_mask": mask,
        "position_ids": positions,
        "past_key_values": cache,
        "use_cache": True,
    }
    banned = [(n, list(row.banned)) for n, row in enumerate(rows) if not row.done and row.barred is not None]
    chooser = chooser_of(model)
    if chooser is None:
        # On CPUs argmax is four times faster in float32, which holds every bfloat16 exactly.
        scores: Tensor = model(**given, logits_to_keep=1).logits[:, -1].float()
        for n, tokens_out in banned:
            scores[n, tokens_out] = -torch.inf
        return scores.argmax(dim=-1).to(tokens.device)
    states = model.get_decoder()(**given).last_hidden_state[:, -1]
    chosen = chooser.likeliest(states)
    for n, tokens_out in banned:
        own: Tensor = model.get_output_embeddings()(states[n])
        own[tokens_out] = -torch.inf
        chosen[n] = own.argmax()
    return chosen
