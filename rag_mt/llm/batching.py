"""A prompt's tokens, and which of them are computed once for many prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SHORTEST_PREFIX = 16
"""Tokens; a shorter shared beginning costs a computation of its own and saves less."""


@dataclass(frozen=True)
class EncodedPrompt:
    """The tokens of a prompt, and how many of the first of them are shared with other prompts."""

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
