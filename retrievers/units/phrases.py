"""Untrained phrase retrieval: every n-gram of whole words, as [start; end] states of a hidden layer.

The baseline that CCPR starts from (section 4.1, without its projection) and its n-gram segmentation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.types import Encoder, Floats, Kind, TokenStates, Unit
from rag_mt.text.words import token_words, word_spans

MAX_WORDS = 4


def default_layer(encoder: Encoder) -> int:
    """The layer whose untrained states align words best: the one measured for its family, or two thirds up."""
    measured: int | None = getattr(getattr(encoder, "family", None), "phrase_layer", None)
    return measured if measured is not None and measured <= encoder.layers else round(encoder.layers * 2 / 3)


class NgramUnits:
    """All n-grams of up to `max_words` whole words that have a letter (a UnitMaker).

    The vector is [h_start; h_end]: the states of the first token of the first word and of the last token of the last
    word, concatenated and L2-normalised; dimension 2 * hidden.
    """

    unit: Unit = "phrase"
    block = 256

    def __init__(self, encoder: Encoder, layer: int | None = None, max_words: int = MAX_WORDS) -> None:
        self.encoder = encoder
        self.layer = default_layer(encoder) if layer is None else layer
        self.max_words = max_words
        self.dimension = 2 * encoder.hidden
        self.settings: Mapping[str, Any] = {
            "units": "n-grams",
            "encoder": encoder.id,
            "fingerprint": encoder.fingerprint,
            "layer": self.layer,
            "max_words": max_words,
        }

    def units(self, texts: Sequence[str], kind: Kind) -> tuple[Floats, NDArray[np.int32]]:
        """Vectors (units, 2 * hidden) and int32 (units, 3) text number, start, end, ordered by all three."""
        words, states, bounds, lettered = self._words(texts)
        first, last = ngrams(words[:, 0], lettered, self.max_words)
        spans = np.stack([words[first, 0], words[first, 1], words[last, 2]], axis=1).astype(np.int32)
        hidden = self.encoder.hidden
        vectors = np.empty((len(spans), 2 * hidden), dtype=np.float32)
        np.take(states, bounds[first, 0], axis=0, out=vectors[:, :hidden])
        np.take(states, bounds[last, 1], axis=0, out=vectors[:, hidden:])
        squares = np.einsum("ij,ij->i", states, states)
        vectors /= np.sqrt(squares[bounds[first, 0]] + squares[bounds[last, 1]])[:, None]
        return vectors, spans

    def span_vectors(self, texts: Sequence[str], spans: NDArray[np.int32], kind: Kind) -> Floats:
        """Vectors (n, 2 * hidden) of given spans, int32 (n, 3) text number, start, end; see `span_states`."""
        return span_states(list(self.encoder.states(texts, self.layer)), spans)

    def _words(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], Floats, NDArray[np.int64], NDArray[np.bool_]]:
        """All words of the texts that have tokens: (words, 3) text number, start, end; the states of all tokens; the
        rows of each word's first and last token there, (words, 2); and whether the word has a letter."""
        words, states, bounds, lettered = [], [np.zeros((0, self.encoder.hidden), np.float32)], [], []
        rows = 0
        for number, made in enumerate(self.encoder.states(texts, self.layer)):
            spans = word_spans(texts[number])
            tokens = token_words(made.offsets, spans)
            kept = tokens[:, 0] >= 0
            spans = spans[kept]
            words.append(np.insert(spans, 0, number, axis=1))
            bounds.append(tokens[kept].astype(np.int64) + rows)
            lettered += [any(map(str.isalpha, texts[number][a:b])) for a, b in spans.tolist()]
            states.append(made.states)
            rows += len(made.states)
        return (
            np.concatenate([np.zeros((0, 3), np.int32), *words]),
            np.concatenate(states),
            np.concatenate([np.zeros((0, 2), np.int64), *bounds]),
            np.array(lettered, dtype=bool),
        )


def span_states(made: Sequence[TokenStates], spans: NDArray[np.int32]) -> Floats:
    """[h_start; h_end] of spans of whole words, L2-normalised, float32 (n, 2 * hidden).

    `made[i]` are the states of text i, `spans` int32 (n, 3) text number, start, end, in any order. A span that has no
    token (it lies beyond the encoder's limit) gets zeros.
    """
    hidden = made[0].states.shape[1] if made else 0
    vectors = np.zeros((len(spans), 2 * hidden), dtype=np.float32)
    if not len(spans):
        return vectors
    first_row = np.cumsum([0, *(len(m.states) for m in made)])
    order = np.argsort(spans[:, 0], kind="stable")
    ends = np.searchsorted(spans[order, 0], np.arange(len(made) + 1))
    tokens = np.empty((len(spans), 2), dtype=np.int64)
    for number, m in enumerate(made):
        rows = order[ends[number] : ends[number + 1]]
        found = token_words(m.offsets, spans[rows, 1:])
        tokens[rows] = np.where(found >= 0, found + first_row[number], -1)
    there = tokens[:, 0] >= 0
    states = np.concatenate([m.states for m in made])
    vectors[there, :hidden] = states[tokens[there, 0]]
    vectors[there, hidden:] = states[tokens[there, 1]]
    squares = np.einsum("ij,ij->i", states, states)
    vectors[there] /= np.sqrt(squares[tokens[there, 0]] + squares[tokens[there, 1]])[:, None]
    return vectors


def ngrams(
    texts: NDArray[np.int32], lettered: NDArray[np.bool_], max_words: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and last word of every n-gram within one text that has a lettered word, in lexical order.

    `texts` gives the ascending text number of each word, `lettered` whether the word has a letter.
    """
    firsts, lasts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    before = np.concatenate([[0], np.cumsum(lettered)])
    for size in range(1, min(max_words, len(texts)) + 1):
        first = np.arange(len(texts) - size + 1)
        last = first + size - 1
        kept = (texts[first] == texts[last]) & (before[last + 1] > before[first])
        firsts.append(first[kept])
        lasts.append(last[kept])
    first, last = np.concatenate(firsts), np.concatenate(lasts)
    order = np.lexsort((last, first))
    return first[order], last[order]
