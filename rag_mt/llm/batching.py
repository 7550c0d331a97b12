"""Which tokens of a prompt are computed once for many, and which prompts are computed together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rag_mt.base.types import Completion, Prompt, Watch

SHORTEST_PREFIX = 16
"""Tokens; a shorter shared beginning costs a computation of its own and saves less."""


@dataclass(frozen=True)
class EncodedPrompt:
    """A prompt's place in the call, its tokens, and how many of the first of them are shared with other prompts."""

    index: int
    ids: tuple[int, ...]
    shared: int

    @property
    def prefix(self) -> tuple[int, ...]:
        """The tokens that are computed once for all prompts that begin with them; empty where it does not pay."""
        return self.ids[: self.shared] if self.shared >= SHORTEST_PREFIX else ()


def shared_tokens(offsets: Sequence[tuple[int, int]], text: str, shared: int) -> int:
    """The number of first tokens that lie wholly in the first `shared` characters of `text`.

    White space at the end of the shared part is not counted, because tokenizers join it with the word that follows
    or not, depending on the word. The result depends on this prompt alone, so that a prompt's numbers do not change
    with what was asked before it. The last token is never counted: it is what the model goes on from.
    """
    end = len(text[:shared].rstrip())
    inside = next((i for i, (_, stop) in enumerate(offsets) if stop > end), len(offsets))
    return max(0, min(inside, len(offsets) - 1))


def common_prefix(sequences: Sequence[tuple[int, ...]]) -> int:
    """The length of the longest common beginning."""
    low, high = min(sequences), max(sequences)  # whatever lies between them begins as both do
    return next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))


def share_unmarked(prompts: Sequence[EncodedPrompt]) -> list[EncodedPrompt]:
    """The prompts, those without a shared part given the beginning that all such prompts of the call have in common."""
    unmarked = [p.ids for p in prompts if not p.shared]
    if len(unmarked) < 2:
        return list(prompts)
    common = min(common_prefix(unmarked), min(map(len, unmarked)) - 1)
    return [p if p.shared else replace(p, shared=common) for p in prompts]


def longest_first(prompts: Sequence[EncodedPrompt]) -> list[EncodedPrompt]:
    """The prompts by the number of tokens to compute, so that those of about the same length are computed together.

    Prompts with different shared parts may stand in one batch; only what comes after them is computed there.
    """
    return sorted(prompts, key=lambda p: (len(p.prefix) - len(p.ids), -len(p.ids), p.index))


def in_rounds(
    generate: Callable[[Sequence[Prompt], int, Watch | None], list[Completion]],
    more: Callable[[int], Sequence[Prompt]],
    size: int,
    max_new_tokens: int,
    watch: Watch | None,
) -> Iterator[tuple[int, Completion]]:
    """`LanguageModel.answer` by `generate` alone: up to `size` prompts at once, and others when all of these end."""
    first = 0

    def told(number: int, text: str) -> bool:
        return watch is None or watch(first + number, text)

    while prompts := more(size):
        yield from enumerate(generate(prompts, max_new_tokens, watch and told), first)
        first += len(prompts)
