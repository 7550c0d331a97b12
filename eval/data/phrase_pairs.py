"""Phrase pairs of sentence pairs: spans of both sides whose words are linked with each other and with nothing else
(CCPR section 4.3). `python -m finetune.ccpr.pairs` writes those of a corpus.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rag_mt.text.words import word_spans
from retrievers.encoders.alignment import Links

MAX_WORDS = 6
FREQUENT_SHARE = 0.003
"""A word that occurs more often than this, per sentence, is too frequent to begin or end a phrase: CCPR's 30,000
occurrences in 10 million sentences."""
FREQUENT_LEAST = 10
"""A word that occurs less often than this is never too frequent, however little text there is."""

Spans = NDArray[np.int32]


@dataclass(frozen=True)
class Frequent:
    """The casefolded words of each side that are too frequent to begin or end a phrase."""

    source: frozenset[str] = frozenset()
    target: frozenset[str] = frozenset()


def frequent_words(rows: Iterable[Sequence[int]], words: Sequence[str], sentences: int) -> frozenset[str]:
    """The too frequent words among `words`, from the word numbers of all sentences."""
    counts = np.zeros(len(words), dtype=np.int64)
    block: list[int] = []
    for row in rows:
        block += row
        if len(block) > 1_000_000:
            counts += np.bincount(block, minlength=len(words))
            block = []
    counts += np.bincount(np.array(block, dtype=np.int64), minlength=len(words))
    many = (counts > FREQUENT_SHARE * sentences) & (counts >= FREQUENT_LEAST)
    return frozenset(words[n] for n in np.flatnonzero(many).tolist())


def consistent_spans(links: Links, source_words: int, target_words: int, max_words: int = MAX_WORDS) -> Spans:
    """Every consistent pair of spans, int32 (n, 4): first and last source word, first and last target word, inclusive.

    No link leads out of a pair, the first and last words of both its spans are linked, and neither span has more than
    `max_words` words; words inside may be unlinked (Koehn, Och and Marcu 2003, without their extension over unlinked
    words). There is at most one pair for each source span. In ascending order.
    """
    return _boxes(links, np.zeros(source_words, np.int32), np.zeros(target_words, np.int32), max_words)


def _boxes(links: Links, sources: NDArray[np.int32], targets: NDArray[np.int32], max_words: int) -> Spans:
    """`consistent_spans` of many texts at once: `sources` and `targets` give the ascending text number of each word,
    and links are between words counted through all texts."""
    low, high = _reach(links[:, 0], links[:, 1], len(sources))
    back_low, back_high = _reach(links[:, 1], links[:, 0], len(targets))
    # For every width, the words that the target spans of that width are linked to.
    windows = list(_windows(back_low, back_high, max_words))
    made = [np.zeros((0, 4), np.int32)]
    for size, (first_target, last_target) in enumerate(_windows(low, high, max_words), 1):
        first = np.arange(len(first_target))
        last = first + size - 1
        kept = (sources[first] == sources[last]) & (high[first] >= 0) & (high[last] >= 0)
        kept &= last_target - first_target < max_words
        first, last, first_target, last_target = first[kept], last[kept], first_target[kept], last_target[kept]
        consistent = np.zeros(len(first), dtype=bool)
        for width, (lowest, highest) in enumerate(windows, 1):
            own = np.flatnonzero(last_target - first_target == width - 1)
            begin = first_target[own]
            consistent[own] = (lowest[begin] >= first[own]) & (highest[begin] <= last[own])
        rows = np.stack([first, last, first_target, last_target], axis=1)[consistent]
        made.append(rows.astype(np.int32))
    boxes = np.concatenate(made)
    return boxes[np.lexsort((boxes[:, 1], boxes[:, 0]))]


def _reach(words: NDArray[np.int32], others: NDArray[np.int32], count: int) -> tuple[Spans, Spans]:
    """The first and last word that each of `count` words is linked to; a huge number and -1 for unlinked ones."""
    low, high = np.full(count, np.iinfo(np.int32).max, np.int32), np.full(count, -1, np.int32)
    np.minimum.at(low, words, others)
    np.maximum.at(high, words, others)
    return low, high


def _windows(low: Spans, high: Spans, longest: int) -> Iterable[tuple[Spans, Spans]]:
    """The least `low` and greatest `high` of each window of 1, 2, ... `longest` words, by first word."""
    least, greatest = low, high
    for size in range(1, min(longest, len(low)) + 1):
        if size > 1:
            least = np.minimum(least[:-1], low[size - 1 :])
            greatest = np.maximum(greatest[:-1], high[size - 1 :])
        yield least, greatest


def phrase_pairs(
    source: str, target: str, links: Links, frequent: Frequent, max_words: int = MAX_WORDS
) -> NDArray[np.int32]:
    """The phrase pairs of a sentence pair, int32 (n, 4): start and end characters of the source phrase and of the
    target phrase.

    Consistent pairs, less those of which a side begins or ends with a too frequent word or has no letter (CCPR, 4.3).
    """
    return all_phrase_pairs([source], [target], [links], frequent, max_words)[0]


def all_phrase_pairs(
    sources: Sequence[str], targets: Sequence[str], links: Sequence[Links], frequent: Frequent, max_words: int
) -> list[NDArray[np.int32]]:
    """`phrase_pairs` of many sentence pairs."""
    if not sources:
        return []
    left, right = _Words.of(sources, frequent.source), _Words.of(targets, frequent.target)
    shifts = np.stack([left.bounds[:-1], right.bounds[:-1]], axis=1)
    shifted = np.concatenate(links) + np.repeat(shifts, [len(own) for own in links], axis=0)
    boxes = _boxes(shifted.astype(np.int32), left.texts, right.texts, max_words)
    boxes = boxes[left.good(boxes[:, 0], boxes[:, 1]) & right.good(boxes[:, 2], boxes[:, 3])]
    starts = left.spans[boxes[:, 0], 0], right.spans[boxes[:, 2], 0]
    ends = left.spans[boxes[:, 1], 1], right.spans[boxes[:, 3], 1]
    pairs = np.stack([starts[0], ends[0], starts[1], ends[1]], axis=1)
    return np.split(pairs, np.searchsorted(left.texts[boxes[:, 0]], np.arange(1, len(sources))))


@dataclass(frozen=True)
class _Words:
    """The words of many texts: (words, 2) `spans`, (words,) text numbers, (texts + 1,) `bounds` of each text's words;
    whether a word may begin or end a phrase; and (words + 1,) how many words before one have letters."""

    spans: Spans
    texts: Spans
    bounds: NDArray[np.int64]
    edges: NDArray[np.bool_]
    lettered: NDArray[np.int64]

    @staticmethod
    def of(texts: Sequence[str], frequent: frozenset[str]) -> _Words:
        spans = [word_spans(text) for text in texts]
        counts = [len(own) for own in spans]
        words = [t[a:b] for t, own in zip(texts, spans, strict=True) for a, b in own.tolist()]
        lettered = np.array([w.isalpha() or any(map(str.isalpha, w)) for w in words], dtype=bool)
        return _Words(
            np.concatenate(spans),
            np.repeat(np.arange(len(texts), dtype=np.int32), counts),
            np.cumsum([0, *counts]),
            np.array([w.casefold() not in frequent for w in words], dtype=bool),
            np.cumsum(np.concatenate([[0], lettered])),
        )

    def good(self, first: Spans, last: Spans) -> NDArray[np.bool_]:
        """Whether the spans of these first and last words pass the filters."""
        return self.edges[first] & self.edges[last] & (self.lettered[last + 1] > self.lettered[first])
