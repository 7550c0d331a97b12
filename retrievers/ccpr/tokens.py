"""Where the words of a text lie among the tokens that a model reads, special tokens included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from rag_mt.text.words import token_words, word_spans
from retrievers.encoders.encoder import trim


@dataclass(frozen=True, slots=True)
class Tokenised:
    """A text as a model reads it: token `ids`, the character spans of its `words` (words, 2), and the positions of
    each word's first and last token in `ids`, `bounds` (words, 2). Words without a token of their own, cut off or not
    known to the tokenizer, are left out."""

    ids: list[int]
    words: NDArray[np.int32]
    bounds: NDArray[np.int32]

    def first_token(self, starts: NDArray[np.int32]) -> NDArray[np.int32]:
        """Positions of the first tokens of the words that start at these characters, -1 where no word does."""
        return self._found(self.words[:, 0], starts, self.bounds[:, 0])

    def last_token(self, ends: NDArray[np.int32]) -> NDArray[np.int32]:
        """Positions of the last tokens of the words that end at these characters, -1 where no word does."""
        return self._found(self.words[:, 1], ends, self.bounds[:, 1])

    def _found(
        self, edges: NDArray[np.int32], wanted: NDArray[np.int32], tokens: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        if not len(edges):
            return np.full(len(wanted), -1, np.int32)
        at = np.minimum(np.searchsorted(edges, wanted), len(edges) - 1)
        return np.where(edges[at] == wanted, tokens[at], -1).astype(np.int32)


def tokenise(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], prefix: str = "", max_tokens: int = 512
) -> list[Tokenised]:
    """Every text with `prefix` before it, cut after `max_tokens` tokens."""
    if not texts:
        return []
    batch = tokenizer([prefix + t for t in texts], truncation=True, max_length=max_tokens, return_offsets_mapping=True)
    offsets = [np.array(o, dtype=np.int32).reshape(-1, 2) for o in batch["offset_mapping"]]
    return tokenised(tokenizer, texts, batch["input_ids"], offsets, prefix)


def tokenised(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    ids: Sequence[list[int]],
    offsets: Sequence[NDArray[np.int32]],
    prefix: str = "",
) -> list[Tokenised]:
    """The words of texts whose tokens are known, with their offsets (tokens, 2) into prefix + text."""
    blank = tokenizer.convert_tokens_to_ids("\u2581")  # alone it has the offsets of the character behind it
    made = []
    for text, own, pairs in zip(texts, ids, offsets, strict=True):
        spans = trim(text, pairs, len(prefix))
        kept = np.flatnonzero((spans[:, 1] > spans[:, 0]) & (np.array(own) != blank))
        words = word_spans(text)
        bounds = token_words(spans[kept], words)
        there = bounds[:, 0] >= 0
        bounds = bounds[there]
        made.append(Tokenised(own, words[there], kept[bounds].astype(np.int32) if len(bounds) else bounds))
    return made
