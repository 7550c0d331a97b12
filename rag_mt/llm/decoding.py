"""Greedy decoding of a batch of prompts whose first tokens are already computed, and which others join on the way.

Rows are padded on the left. A prefix's keys and values are set right before the row's own tokens, so that every row
is one run of neighbouring columns: position differences are column differences, and the masks that transformers
makes for full and sliding-window layers hold as they are. A row with fewer tokens to compute than the longest
computes the last tokens of its prefix again, in the columns that would otherwise be padding. All rows end in the same
column, so that batches join by setting them side by side at their right ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rag_mt.llm.cache import ROOM, Prefix, filled_cache, growing_cache
from rag_mt.llm.generation import Generation

COMPACT_SHARE = 0.25
"""Finished rows leave the batch when they are at least this share of it: leaving copies the cache. Those that nobody
wants any more leave at once."""
ADMITTED_SHARE = 0.125
"""Where more prompts wait than there was room for, the next ones are computed when so large a share of the batch is
free: together they take much less time than one by one."""
PADDING = 32
"""Prompts are computed together on a CPU as long as they have at most so much padding, in tokens: each part of them
costs about as much more as so many tokens do. Other devices compute all together."""
ROWS = 16
"""Rows of scores whose probabilities are computed at once."""
BLOCK = 1024
"""Columns of the vocabulary among which the highest score is looked for at once."""


def compute_prefix(model: Any, ids: tuple[int, ...]) -> Prefix:
    """The keys and values of `ids`, computed alone."""
    cache = growing_cache(len(ids))
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
    crowded = False
    while True:
        # 1. Ask for as many prompts as there is room for.
        free = room - (len(batch.active) if batch else 0)
        admitted: Admitted = ()
        if free >= (ADMITTED_SHARE * room if crowded else 1):
            admitted = admit(free)
            crowded = len(admitted) == free
        # 2. Compute them with their first tokens, and set them beside the others: all end in the same column.
        for group in _prefill_groups(model, admitted):
            newcomers = prefill(model, group, pad_token)
            newcomers.take(end_tokens)
            batch = batch.merged(newcomers) if batch and batch.active else newcomers
        if admitted:
            yield
        # 3. Compute one more column of all.
        if batch and batch.active:
            batch.evict_finished()
            batch.decode_step(model)
            batch.take(end_tokens)
            yield
        elif not admitted:
            return


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

    def evict_finished(self) -> None:
        """Drop the rows that are done, if they are many or nobody wants one of them any more, and the columns that only
        they had."""
        active = self.active
        rows = len(self.generations)
        at_once = any(generation.unwanted for generation in self.generations)
        if rows - len(active) < (1 if at_once else COMPACT_SHARE * rows):
            return
        remaining = torch.tensor(active, device=self.starts.device)
        starts = self.starts[remaining]
        first = int(starts.min())
        for layer in self.cache.layers:
            layer.keep(remaining)
            layer.drop(first)
        self.generations = [self.generations[row] for row in active]
        self.starts, self.next_tokens, self.columns = starts - first, self.next_tokens[remaining], self.columns - first

    def take(self, end_tokens: frozenset[int]) -> None:
        """Let each take the token that was chosen for it."""
        for generation, token in zip(self.generations, self.next_tokens.tolist(), strict=True):
            if not generation.done:
                generation.append(token, end_tokens)

    def decode_step(self, model: Any) -> None:
        """Compute the column of the next tokens, and choose those after them."""
        self.columns += 1
        columns = torch.arange(self.columns, device=self.starts.device)
        mask = (columns >= self.starts[:, None]).long()
        positions = self.columns - 1 - self.starts[:, None]
        tokens = self.next_tokens[:, None]
        self.next_tokens = _next_tokens(model, tokens, mask, positions, self.cache, self.generations)

    def merged(self, other: Batch) -> Batch:
        """Both batches as one, new rows in the places of those that are done as far as there are any."""
        done = [row for row, generation in enumerate(self.generations) if generation.done][: len(other.generations)]
        columns = max(self.columns, other.columns)
        starts, others = self.starts + columns - self.columns, other.starts + columns - other.columns
        next_tokens, generations, taken = self.next_tokens.clone(), list(self.generations), len(done)
        places = torch.tensor(done, dtype=torch.long, device=starts.device)
        starts[places], next_tokens[places] = others[:taken], other.next_tokens[:taken]
        for row, generation in zip(done, other.generations, strict=False):
            generations[row] = generation
        starts, next_tokens = torch.cat([starts, others[taken:]]), torch.cat([next_tokens, other.next_tokens[taken:]])
        generations += other.generations[taken:]
        first = int(starts.min())  # no row has the columns before it any more
        with torch.inference_mode():
            for layer, theirs in zip(self.cache.layers, other.cache.layers, strict=True):
                layer.join(theirs, places)
                layer.drop(first)
        return Batch(generations, starts - first, columns - first, self.cache, next_tokens)


def _prefill_groups(model: Any, admitted: Admitted) -> list[Admitted]:
    """The new prompts that are computed together: on a CPU those of about the same length, elsewhere all."""
    if model.device.type != "cpu" or not admitted:
        return [admitted] if admitted else []
    lengths = [len(new.prompt_ids) - (len(prefix.ids) if prefix else 0) for new, prefix in admitted]
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
    generations, prefixes = [generation for generation, _ in admitted], [prefix for _, prefix in admitted]
    # 1. Pad on the left, so that all prompts end in the last column.
    width = max(len(new.prompt_ids) for new in generations)
    pads = [width - len(new.prompt_ids) for new in generations]
    starts = torch.tensor(pads, device=device)
    columns = torch.arange(width, device=device)
    positions, mask = (columns - starts[:, None]).clamp(min=0), (columns >= starts[:, None]).long()
    # 2. All rows compute the columns behind the one up to which every row has a prefix, or padding.
    known = min(start + (len(p.ids) if p else 0) for start, p in zip(pads, prefixes, strict=True))
    spans = [(min(start, known), known) for start in pads]
    room = width + min(max(new.max_new_tokens for new in generations), ROOM)
    cache = filled_cache(prefixes, spans, room)
    padded = [[pad_token] * start + list(new.prompt_ids) for start, new in zip(pads, generations, strict=True)]
    tokens = torch.tensor([ids[known:] for ids in padded], device=device)
    # 3. Choose the first new token of each.
    next_tokens = _next_tokens(model, tokens, mask, positions[:, known:], cache, generations)
    return Batch(generations, starts, width, cache, next_tokens)


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
    scores: Tensor = model(**inputs, logits_to_keep=1).logits[:, -1]
    for row, generation in enumerate(generations):
        if generation.barred is not None and not generation.done:
            scores[row, list(generation.forbidden_tokens)] = -torch.inf
    chosen = likeliest(scores)
    rows = [row for row, generation in enumerate(generations) if generation.scored and not generation.done]
    for row, logprob in zip(rows, logprobs(scores, chosen, rows), strict=True):
        generations[row].logprobs.append(logprob)
    return chosen.to(tokens.device)


def likeliest(scores: Tensor) -> Tensor:
    """The column of the highest score of each row, (rows, columns) -> (rows,); the first of equal ones.

    On CPUs argmax takes bfloat16 one number at a time, and the highest of a block many at once: with 262,144 columns
    finding the block first is ten times as fast. float32 holds every bfloat16 exactly.
    """
    blocks = F.pad(scores, (0, -scores.shape[1] % BLOCK), value=-torch.inf).unflatten(1, (-1, BLOCK))
    best = blocks.amax(dim=-1).float().argmax(dim=-1)
    rows = torch.arange(len(scores), device=scores.device)
    columns: Tensor = best * BLOCK + blocks[rows, best].float().argmax(dim=-1)
    return columns


def logprobs(scores: Tensor, chosen: Tensor, rows: Sequence[int]) -> list[float]:
    """The logarithms of the probabilities of the columns `chosen` (rows,) of scores (rows, columns), of some rows. As
    float32, ROWS of them at once, all the scores would take twice their memory again."""
    found: list[float] = []
    for begin in range(0, len(rows), ROWS):
        some = torch.tensor(rows[begin : begin + ROWS], device=scores.device)
        own = scores[some].float()
        found += (own.gather(1, chosen[some, None])[:, 0] - own.logsumexp(dim=1)).tolist()
    return found


def lay_out_states(model: Any) -> None:
    """Let the output embeddings of a model get its last states one behind the other in memory.

    The last column of a prompt's states is a view with gaps, and PyTorch multiplies such a view by a copy of all the
    embeddings turned round, one copy for each row, where the weights are not to be trained (as after merging an
    adapter): with 262,144 tokens in bfloat16 more than a second of a CPU for each row instead of 0.04 s.
    """
    head = model.get_output_embeddings()
    if head is not None and _laid_out not in head._forward_pre_hooks.values():
        head.register_forward_pre_hook(_laid_out)


def _laid_out(_: torch.nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The states (rows, columns, width), copied where they are one column: PyTorch calls a view of one row contiguous
    whatever the gaps in it, and `contiguous` would leave it."""
    states = inputs[0]
    if states.dim() < 2 or states.shape[-2] != 1:
        return inputs
    return (states.clone(memory_format=torch.contiguous_format), *inputs[1:])
