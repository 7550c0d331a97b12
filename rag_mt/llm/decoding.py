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

from rag_mt.llm.stopping import AnswerText
from rag_mt.text.answers import loop_in

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

TURNED_FAMILIES, TURNED_TOKENS = frozenset({"gemma3_text", "llama"}), 16_384
"""Models, and the least size of their vocabularies, whose scores are computed turned round (see `_can_turn`): 6 % less
CPU time of generation at batch 1, 28 % at 4, 25 % at 8 and 6.5 % at 16 with Gemma 3 270M (float32, one AVX2 core)."""

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
class Generation:
    """The generation of one prompt's answer: the prompt's tokens (its prefix included), the limit of new tokens, and
    the answer as far as it is.

    It is `done` when the answer `ended` with an end-of-text token, has a stop string or as many tokens as it may, is
    `unwanted`, or loops: an answer that loops is given up long before its limit. One that ended counts as `looped` too
    if a line of its text repeats itself and none of its prompt's `text` does, hints included.

    A generation may begin with the `new_tokens` of another one before the second round of its loop, which are the last
    ones of `prompt_ids` too; its next token is then not `barred`, the one that began that round.
    """

    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    answer: AnswerText
    new_tokens: list[int] = field(default_factory=list)
    barred: int | None = None
    text: str = ""
    ended: bool = False
    unwanted: bool = False
    done: bool = False

    def __post_init__(self) -> None:
        self._begun = len(self.new_tokens)
        self._text_lengths: list[int] = []  # of the answer after each new token
        self._second_round: int | None = None  # the token that begins the second round of a loop

    @property
    def looped(self) -> bool:
        """Whether the answer loops, or did so before it ended."""
        return self._second_round is not None

    @property
    def finished(self) -> bool:
        """Whether the answer ended by itself or at a stop string."""
        return self.ended or self.answer.stopped

    def append(self, token: int, end_tokens: frozenset[int]) -> None:
        """Take the next token."""
        self.new_tokens.append(token)
        if token in end_tokens:
            self.ended = True
        else:
            self.answer.push(token)
        self._text_lengths.append(len(self.answer.text))
        self.done = self.finished or len(self.new_tokens) >= self.max_new_tokens
        if not self.done and len(self.new_tokens) % LOOK_EVERY == 0:
            loop = loop_at_end(self.new_tokens)
            self._second_round = sum(loop) if loop else None
            self.done = self.looped
        if self.done:
            self.answer.close()
            if self.finished:
                self._second_round = self._second_round_in_text()

    @property
    def forbidden_tokens(self) -> set[int]:
        """The tokens that do not come next in an answer that leaves a loop: first the one that is barred, and always
        those that would end a run of NEVER_AGAIN tokens that it has already."""
        tokens, size = self.new_tokens, NEVER_AGAIN - 1
        last = tokens[-size:]
        repeating = {tokens[i + size] for i in range(len(tokens) - size) if tokens[i : i + size] == last}
        return repeating | {self.barred} if self.barred is not None and len(tokens) == self._begun else repeating

    def loop_exit(self) -> tuple[list[int], int] | None:
        """The tokens up to the end of a loop's first round, and the one that began the second: an answer that goes on
        from there with the likeliest other token may leave the loop. None if there is no loop."""
        second = self._second_round
        return None if second is None else (self.new_tokens[:second], self.new_tokens[second])

    def _second_round_in_text(self) -> int | None:
        """Which token begins the second round of a loop in the text of a whole answer that has not left one before."""
        first_round = None if self._begun else _first_round(self.answer.text)
        if first_round is None or _first_round(self.text) is not None:
            return None
        second = bisect_left(self._text_lengths, first_round) + 1
        return second if second < len(self.new_tokens) - 1 else None  # what ended the answer is no way into a loop


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


Admitted = Sequence[tuple[Generation, Prefix | None]]
"""Generations that join the batch, with the prefixes that their prompts begin with."""


def decode(
    model: Any, admit: Callable[[int], Admitted], room: int, end_tokens: frozenset[int], pad_token: int
) -> Iterator[None]:
    """Generate answers greedily; yields after each token, and stops computing when it is closed.

    `admit(n)` gives up to n generations; it is asked for the first `room` ones and again whenever there is room for
    some, until none is left and it gives none. The next token of an answer is the likeliest that is not forbidden.
    """
    batch: Batch | None = None
    while True:
        # 1. Ask for as many prompts as there is room for.
        free = room - (len(batch.active) if batch else 0)
        admitted = admit(free) if free else ()
        # 2. Compute one more column of those that are under way; whoever is done leaves before.
        if batch and batch.active:
            batch.evict_finished(at_once=bool(admitted))
            batch.decode_step(model)
        else:
            batch = None
        # 3. Compute the prompts of the new ones, and set them beside the others: all end in the same column.
        for group in _prefill_groups(model, admitted):
            newcomers = prefill(model, group, pad_token)
            batch = batch.merged(newcomers) if batch else newcomers
        if batch is None:
            return
        # 4. Each takes the token that was chosen for it.
        for generation, token in zip(batch.generations, batch.next_tokens.tolist(), strict=True):
            if not generation.done:
                generation.append(token, end_tokens)
        yield


@dataclass
class Batch:
    """Generations with their next tokens, (rows,), the first columns of their own in `starts`, (rows,), the number of
    `columns` computed for them, and the keys and values of these."""

    generations: list[Generation]
    starts: Tensor
    columns: int
    cache: Any
    next_tokens: Tensor

    @property
    def active(self) -> list[int]:
        """The rows of generations that are not done."""
        return [row for row, generation in enumerate(self.generations) if not generation.done]

    def evict_finished(self, at_once: bool) -> None:
        """Drop the rows that are done, now or when they are many, and the columns that only they had."""
        active = self.active
        at_once = at_once or any(generation.unwanted for generation in self.generations)
        rows = len(self.generations)
        if rows - len(active) < (1 if at_once else COMPACT_SHARE * rows):
            return
        kept = torch.tensor(active, device=self.starts.device)
        starts = self.starts[kept]
        first = int(starts.min())
        for layer in self.cache.layers:
            layer.keep(kept, first)
        self.generations = [self.generations[row] for row in active]
        self.starts, self.next_tokens, self.columns = starts - first, self.next_tokens[kept], self.columns - first

    def decode_step(self, model: Any) -> None:
        """Compute the column of the next tokens, and choose those after them."""
        self.columns += 1
        columns = torch.arange(self.columns, device=self.starts.device)
        mask = (columns >= self.starts[:, None]).long()
        positions = self.columns - 1 - self.starts[:, None]
        tokens = self.next_tokens[:, None]
        self.next_tokens = _next_tokens(model, tokens, mask, positions, self.cache, self.generations)

    def merged(self, other: Batch) -> Batch:
        """Both batches as one."""
        with torch.inference_mode():
            for layer, others in zip(self.cache.layers, other.cache.layers, strict=True):
                layer.join(others)
        columns = max(self.columns, other.columns)
        starts = torch.cat([self.starts + columns - self.columns, other.starts + columns - other.columns])
        next_tokens = torch.cat([self.next_tokens, other.next_tokens])
        return Batch(self.generations + other.generations, starts, columns, self.cache, next_tokens)


def _prefill_groups(model: Any, admitted: Admitted) -> list[Admitted]:
    """The new prompts that are computed together: on a CPU those of about the same length, elsewhere all."""
    if model.device.type != "cpu" or not admitted:
        return [admitted] if admitted else []
    lengths = [len(own.prompt_ids) - (len(prefix.ids) if prefix else 0) for own, prefix in admitted]
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    groups: list[list[tuple[Generation, Prefix | None]]] = []
    padding = longest = 0
    for i in order:
        padding += longest - lengths[i]
        if not groups or padding > PADDING:
            groups.append([])
            padding, longest = 0, lengths[i]
        groups[-1].append(admitted[i])
    return list(groups)


def prefill(model: Any, admitted: Admitted, pad_token: int) -> Batch:
    """Compute the prompts of new generations behind their prefixes: their batch, with their first tokens chosen."""
    device = model.get_input_embeddings().weight.device
    generations, prefixes = [own for own, _ in admitted], [prefix for _, prefix in admitted]
    # 1. Pad on the left, so that all prompts end in the last column.
    width = max(len(own.prompt_ids) for own in generations)
    pads = [width - len(own.prompt_ids) for own in generations]
    starts = torch.tensor(pads, device=device)
    columns = torch.arange(width, device=device)
    positions, mask = (columns - starts[:, None]).clamp(min=0), (columns >= starts[:, None]).long()
    # 2. All rows compute the columns behind the one up to which every row has a prefix, or padding.
    known = min(start + (len(p.ids) if p else 0) for start, p in zip(pads, prefixes, strict=True))
    spans = [(min(start, known), known) for start in pads]
    room = width + min(max(own.max_new_tokens for own in generations), ROOM)
    cache = _filled_cache(prefixes, spans, room)
    padded = [[pad_token] * start + list(own.prompt_ids) for start, own in zip(pads, generations, strict=True)]
    tokens = torch.tensor([ids[known:] for ids in padded], device=device)
    # 3. Choose the first new token of each.
    next_tokens = _next_tokens(model, tokens, mask, positions[:, known:], cache, generations)
    return Batch(generations, starts, width, cache, next_tokens)


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
    model: Any,
    tokens: Tensor,
    mask: Tensor,
    positions: Tensor,
    cache: Any,
    generations: Sequence[Generation] = (),
) -> Tensor:
    """The likeliest next token of each row that is not forbidden, shape (rows,); only the last column's scores are
    computed."""
    inputs = {
        "input_ids": tokens,
        "attention_mask": mask,
        "position_ids": positions,
        "past_key_values": cache,
        "use_cache": True,
    }
    if _can_turn(model):
        states = model.get_decoder()(**inputs).last_hidden_state[:, -1]
        scores: Tensor = (model.get_output_embeddings().weight @ states.T).T
    else:  # on CPUs argmax is four times faster in float32, which holds every bfloat16 exactly
        scores = model(**inputs, logits_to_keep=1).logits[:, -1].float()
    for row, generation in enumerate(generations):
        if generation.barred is not None and not generation.done:
            scores[row, list(generation.forbidden_tokens)] = -torch.inf
    return scores.argmax(dim=-1).to(tokens.device)


def _can_turn(model: Any) -> bool:
    """Whether the scores of a model are the plain product of its last states and its output embeddings, which is faster
    turned round: in a small float32 model with a large vocabulary on a CPU most of the work of a token is that product,
    and few states are multiplied faster as the right side of it."""
    head = model.get_output_embeddings()
    return (
        model.config.model_type in TURNED_FAMILIES
        and type(head) is torch.nn.Linear
        and head.bias is None
        and head.weight.dtype == torch.float32
        and head.weight.device.type == "cpu"
        and head.weight.shape[0] >= TURNED_TOKENS
    )
