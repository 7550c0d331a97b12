"""Which prompts are computed together: grouped by the instruction that they share, sorted by length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

SHORTEST_PREFIX = 16
"""Tokens; a shorter shared beginning costs a pass of its own and saves less."""


@dataclass(frozen=True)
class EncodedPrompt:
    """A prompt's tokens, its place in the call, and how many of its first tokens all prompts of its builder share."""

    index: int
    ids: tuple[int, ...]
    shared: int


@dataclass(frozen=True)
class Batch:
    """Prompts that are computed together and the tokens with which all of them begin."""

    prefix: tuple[int, ...]
    prompts: list[EncodedPrompt] = field(repr=False)


def shared_tokens(offsets: Sequence[tuple[int, int]], text: str, shared: int) -> int:
    """The number of first tokens that lie wholly in the first `shared` characters of `text`.

    White space at the end of the shared part is not counted, because tokenizers join it with the word that follows
    or not, depending on the word. The result depends on this prompt alone, so that a prompt's
    numbers do not change with the prompts that were asked before it.
    """
    end = len(text[:shared].rstrip())
    outside = np.flatnonzero(np.array([stop for _, stop in offsets]) > end)
    count = int(outside[0]) if len(outside) else len(offsets)
    return min(count, len(offsets) - 1)


def common_prefix(sequences: Sequence[Sequence[int]]) -> int:
    """The length of the longest common beginning that leaves each sequence at least one more token."""
    first, last = min(sequences), max(sequences)
    limit = min(len(s) for s in sequences) - 1
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b or i == limit), limit)


def batches(prompts: Sequence[EncodedPrompt], size: int) -> Iterator[Batch]:
    """Batches of at most `size` prompts with the same shared beginning, the longest prompts first.

    Prompts without a marked shared part are grouped by the tokens that all of them have in common, if there are several.
    """
    groups: dict[tuple[int, ...], list[EncodedPrompt]] = {}
    unmarked = []
    for prompt in prompts:
        if prompt.shared >= SHORTEST_PREFIX:
            groups.setdefault(prompt.ids[: prompt.shared], []).append(prompt)
        else:
            unmarked.append(prompt)
    if unmarked:
        length = common_prefix([p.ids for p in unmarked]) if len(unmarked) > 1 else 0
        prefix = unmarked[0].ids[:length] if length >= SHORTEST_PREFIX else ()
        groups.setdefault(prefix, []).extend(unmarked)
    for prefix, members in groups.items():
        ordered = sorted(members, key=lambda p: (-len(p.ids), p.index))
        for start in range(0, len(ordered), size):
            yield Batch(prefix, ordered[start : start + size])
