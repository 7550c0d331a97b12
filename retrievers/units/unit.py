"""What of a text is indexed and queried: the contract of a unit maker, whole sentences, and every n-gram of words.

The n-grams, as [start; end] states of a hidden layer, are the untrained baseline that CCPR starts from (section 4.1,
without its projection) and its n-gram segmentation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.types import Encoder, Floats, Kind, TokenStates, Unit
from rag_mt.text.words import token_words, word_spans

MAX_WORDS = 4
QUERY_THRESHOLD = "query_threshold"
"""The setting that chooses the units of queries and leaves an index as it is."""


class UnitMaker(Protocol):
    """Texts to units with vectors. Two makers with equal `settings` make comparable vectors. `settings` is JSON-able
    and holds `encoder`, `fingerprint` and all else that changes vectors; `block` is the number of texts whose units
    comfortably fit into memory at once. A maker whose units come from several texts of an index has `pooled` too, their
    number."""

    unit: Unit
    dimension: int
    settings: Mapping[str, Any]
    block: int

    def units(self, texts: Sequence[str], kind: Kind) -> tuple[Floats, NDArray[np.int32]]:
        """The units of all texts, ordered by text: L2-normalised vectors (units, dimension) and, int32 (units, 3),
        the text's number with the start and end characters of the unit. A text may have none."""
        ...


def unit_settings(units: str, encoder: Encoder, **others: Any) -> dict[str, Any]:
    """The `settings` of a unit maker that has this encoder."""
    return {"units": units, "encoder": encoder.id, "fingerprint": encoder.fingerprint, **others}


class SentenceUnits:
    """Whole texts as units (a UnitMaker), one vector for each, as the XLM-R and LaBSE systems of the CCPR paper
    (section 6.3); blank texts have none."""

    unit: Unit = "sentence"
    block = 1024

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.dimension = encoder.dimension
        self.settings: Mapping[str, Any] = unit_settings(f"{self.unit}s", encoder)

    def units(self, texts: Sequence[str], kind: Kind) -> tuple[Floats, NDArray[np.int32]]:
        """Sentence vectors (units, dimension) and the spans 0 to len(text), int32 (units, 3)."""
        spans = np.array([(n, 0, len(t)) for n, t in enumerate(texts) if t.strip()], dtype=np.int32).reshape(-1, 3)
        vectors = self.encoder.encode([texts[n] for n in spans[:, 0]], kind)
        return vectors.reshape(len(spans), self.dimension), spans


def default_layer(encoder: Encoder) -> int:
    """The layer whose untrained states align words best: the one measured for its family, or two thirds up."""
    measured: int | None = getattr(getattr(encoder, "family", None), "phrase_layer", None)
    return measured if measured is not None and measured <= encoder.layers else round(encoder.layers * 2 / 3)


class NgramUnits:
    """All n-grams of up to `max_words` whole words that have a letter (a UnitMaker). The vector is [h_start; h_end]:
    the states of the first token of the first word and of the last token of the last word, concatenated and
    L2-normalised; dimension 2 * hidden."""

    unit: Unit = "phrase"
    block = 256

    def __init__(self, encoder: Encoder, layer: int | None = None, max_words: int = MAX_WORDS) -> None:
        self.encoder = encoder
        self.layer = default_layer(encoder) if layer is None else layer
        self.max_words = max_words
        self.dimension = 2 * encoder.hidden
        self.settings: Mapping[str, Any] = unit_settings("n-grams", encoder, layer=self.layer, max_words=max_words)

    def units(self, texts: Sequence[str], kind: Kind) -> tuple[Floats, NDArray[np.int32]]:
        """Vectors (units, 2 * hidden) and int32 (units, 3) text number, start, end, ordered by all three."""
        # 1. The words that have tokens, (words, 3) text number, start, end; the rows of each one's first and last token
        # among the states of all texts, (words, 2); and whether it has a letter.
        words, bounds = [np.zeros((0, 3), np.int32)], [np.zeros((0, 2), np.int64)]
        with_letters, states = [np.zeros(0, bool)], [np.zeros((0, self.encoder.hidden), np.float32)]
        rows = 0
        for number, tokens in enumerate(self.encoder.states(texts, self.layer)):
            spans = word_spans(texts[number])
            ends = token_words(tokens.offsets, spans)
            seen = ends[:, 0] >= 0
            words.append(np.insert(spans[seen], 0, number, axis=1))
            bounds.append(ends[seen].astype(np.int64) + rows)
            with_letters.append(lettered(texts[number], spans[seen]))
            states.append(tokens.states)
            rows += len(tokens.states)
        all_words, tokens_of = np.concatenate(words), np.concatenate(bounds)
        # 2. Their n-grams.
        first, last = ngrams(all_words[:, 0], np.concatenate(with_letters), self.max_words)
        spans = np.stack([all_words[first, 0], all_words[first, 1], all_words[last, 2]], axis=1).astype(np.int32)
        return _joined(np.concatenate(states), tokens_of[first, 0], tokens_of[last, 1]), spans


def span_states(tokens: Sequence[TokenStates], spans: NDArray[np.int32]) -> Floats:
    """[h_start; h_end] of spans of whole words, L2-normalised, float32 (n, 2 * hidden). `tokens[i]` are the states of
    text i, `spans` int32 (n, 3) text number, start, end, in any order. A span that has no token (it lies beyond the
    encoder's limit) gets zeros."""
    hidden = tokens[0].states.shape[1] if tokens else 0
    vectors = np.zeros((len(spans), 2 * hidden), dtype=np.float32)
    ends = np.full((len(spans), 2), -1, dtype=np.int64)
    first_row = 0
    for rows, text in zip(rows_by_text(spans, len(tokens)), tokens, strict=True):
        in_text = token_words(text.offsets, spans[rows, 1:])
        ends[rows] = np.where(in_text >= 0, in_text + first_row, -1)
        first_row += len(text.states)
    seen = ends[:, 0] >= 0
    if seen.any():
        vectors[seen] = _joined(np.concatenate([text.states for text in tokens]), *ends[seen].T)
    return vectors


def _joined(states: Floats, first: NDArray[np.int64], last: NDArray[np.int64]) -> Floats:
    """[h_start; h_end], float32 (n, 2 * hidden) of length 1, for the rows `first` and `last` (n,) of token states."""
    hidden = states.shape[1]
    vectors = np.empty((len(first), 2 * hidden), dtype=np.float32)
    np.take(states, first, axis=0, out=vectors[:, :hidden])
    np.take(states, last, axis=0, out=vectors[:, hidden:])
    squares = np.einsum("ij,ij->i", states, states)
    vectors /= np.sqrt(squares[first] + squares[last])[:, None]
    return vectors


def rows_by_text(spans: NDArray[np.int32], texts: int) -> list[NDArray[np.int64]]:
    """For each of so many texts the rows of its spans, (spans, 3) text number, start, end, in any order."""
    order = np.argsort(spans[:, 0], kind="stable")
    bounds = np.searchsorted(spans[order, 0], np.arange(texts + 1)).tolist()
    return [order[low:high] for low, high in pairwise(bounds)]


def lettered(text: str, words: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Whether each of the words (words, 2) of a text has a letter."""
    letters = np.concatenate([[0], np.cumsum(np.fromiter(map(str.isalpha, text), bool, len(text)))])
    has_letter: NDArray[np.bool_] = letters[words[:, 1]] > letters[words[:, 0]]
    return has_letter


def ngrams(
    texts: NDArray[np.int32], has_letter: NDArray[np.bool_], max_words: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and last word of every n-gram within one text that has a word with a letter, in lexical order. `texts`
    gives the ascending text number of each word, `has_letter` whether the word has a letter."""
    before = np.concatenate([[0], np.cumsum(has_letter)])
    first, size = (part.ravel() for part in np.indices((len(texts), max_words)))
    last = first + size
    inside = last < len(texts)
    first, last = first[inside], last[inside]
    wanted = (texts[first] == texts[last]) & (before[last + 1] > before[first])
    return first[wanted], last[wanted]
