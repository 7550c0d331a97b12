"""Phrase pairs of sentence pairs: spans of both sides whose words are linked with each other and with nothing else
(CCPR section 4.3), and what a phrase is about. `python -m finetune.ccpr.pairs` writes the pairs of a corpus.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from simplemma import lemmatize
from simplemma.strategies.dictionaries.dictionary_factory import SUPPORTED_LANGUAGES

from rag_mt.text.words import word_spans
from retrievers.encoders.alignment import Links

MAX_WORDS = 6
FREQUENT_SHARE = 0.003
"""A word that occurs more often than this, per sentence, is too frequent to begin or end a phrase: CCPR's 30,000
occurrences in 10 million sentences."""
FREQUENT_LEAST = 10
"""A word that occurs less often than this is never too frequent, however little text there is."""

ARTICLES = frozenset(("a", "an", "the"))
Spans = NDArray[np.int32]


@dataclass(frozen=True)
class Frequent:
    """The casefolded words of each side that are too frequent to begin or end a phrase."""

    source: frozenset[str] = frozenset()
    target: frozenset[str] = frozenset()


def frequent_words(rows: Iterable[Sequence[int]], words: Sequence[str], sentences: int) -> frozenset[str]:
    """The too frequent words among `words`, from the word numbers of all sentences."""
    counts = np.bincount(np.fromiter(chain.from_iterable(rows), np.int64), minlength=len(words))
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
    words = np.arange(len(sources), dtype=np.int32)
    first, last = np.repeat(words, max_words), np.add.outer(words, np.arange(max_words, dtype=np.int32)).ravel()
    first, last = first[last < len(sources)], last[last < len(sources)]
    linked = (sources[first] == sources[last]) & (high[first] >= 0) & (high[last] >= 0)
    first, last = first[linked], last[linked]
    first_target, last_target = _over(np.minimum, low, first, last), _over(np.maximum, high, first, last)
    fitting = last_target - first_target < max_words
    boxes = np.stack([first, last, first_target, last_target], axis=1)[fitting]
    first, last, first_target, last_target = boxes.T
    # No word of the target span is linked to one out of the source span.
    consistent: NDArray[np.bool_] = _over(np.minimum, back_low, first_target, last_target) >= first
    consistent &= _over(np.maximum, back_high, first_target, last_target) <= last
    return boxes[consistent]


def _reach(words: NDArray[np.int32], others: NDArray[np.int32], count: int) -> tuple[Spans, Spans]:
    """The first and last word that each of `count` words is linked to; a huge number and -1 for unlinked ones."""
    low, high = np.full(count, np.iinfo(np.int32).max, np.int32), np.full(count, -1, np.int32)
    np.minimum.at(low, words, others)
    np.maximum.at(high, words, others)
    return low, high


def _over(least_or_greatest: np.ufunc, values: Spans, first: Spans, last: Spans) -> Spans:
    """The least or greatest of values[first[n]] to values[last[n]], for each n."""
    bounds = np.stack([first, last + 1], axis=1).ravel()
    reduced: Spans = least_or_greatest.reduceat(np.append(values, np.int32(0)), bounds)[::2]
    return reduced


def all_phrase_pairs(
    sources: Sequence[str], targets: Sequence[str], links: Sequence[Links], frequent: Frequent, max_words: int
) -> list[NDArray[np.int32]]:
    """The phrase pairs of each sentence pair, int32 (n, 4): start and end characters of the source phrase and of the
    target phrase.

    Consistent pairs, less those of which a side begins or ends with a too frequent word or has no letter (CCPR, 4.3).
    """
    if not sources:
        return []
    left, right = Words.of(sources, frequent.source), Words.of(targets, frequent.target)
    shifts = np.stack([left.bounds[:-1], right.bounds[:-1]], axis=1)
    shifted = np.concatenate(links) + np.repeat(shifts, [len(own) for own in links], axis=0)
    boxes = _boxes(shifted.astype(np.int32), left.texts, right.texts, max_words)
    boxes = boxes[left.good(boxes[:, 0], boxes[:, 1]) & right.good(boxes[:, 2], boxes[:, 3])]
    starts = left.spans[boxes[:, 0], 0], right.spans[boxes[:, 2], 0]
    ends = left.spans[boxes[:, 1], 1], right.spans[boxes[:, 3], 1]
    pairs = np.stack([starts[0], ends[0], starts[1], ends[1]], axis=1)
    return np.split(pairs, np.searchsorted(left.texts[boxes[:, 0]], np.arange(1, len(sources))))


@dataclass(frozen=True)
class Words:
    """The words of many texts: (words, 2) `spans`, (words,) text numbers, (texts + 1,) `bounds` of each text's words;
    whether a word may begin or end a phrase; and (words + 1,) how many words before one have letters."""

    spans: Spans
    texts: Spans
    bounds: NDArray[np.int64]
    edges: NDArray[np.bool_]
    lettered: NDArray[np.int64]

    @staticmethod
    def of(texts: Sequence[str], frequent: frozenset[str] = frozenset()) -> Words:
        spans = [word_spans(text) for text in texts]
        counts = [len(own) for own in spans]
        words = [t[a:b] for t, own in zip(texts, spans, strict=True) for a, b in own.tolist()]
        lettered = np.array([w.isalpha() or any(map(str.isalpha, w)) for w in words], dtype=bool)
        return Words(
            np.concatenate(spans),
            np.repeat(np.arange(len(texts), dtype=np.int32), counts),
            np.cumsum([0, *counts]),
            np.array([w.casefold() not in frequent for w in words], dtype=bool),
            np.cumsum(np.concatenate([[0], lettered])),
        )

    def good(self, first: Spans, last: Spans) -> NDArray[np.bool_]:
        """Whether the spans of these first and last words pass the filters."""
        return self.edges[first] & self.edges[last] & (self.lettered[last + 1] > self.lettered[first])


@lru_cache(1 << 16)
def concept(english: str) -> str:
    """What an English phrase is about, so that pairs can be split and drawn by it: its words' base forms without
    articles, the same for `a wheel hub` and `wheel hubs`."""
    words = [w for w in english.casefold().split() if w not in ARTICLES] or [english.casefold()]
    return base_form(" ".join(words), "en")


@lru_cache(1 << 18)
def base_form(phrase: str, language: str) -> str:
    """The base forms of a phrase's words as they are written (`Häuser`), in small letters; the words themselves in
    languages whose forms are not known here."""
    if language not in SUPPORTED_LANGUAGES:
        return phrase.casefold()
    return " ".join(lemmatize(word, lang=language).casefold() for word in phrase.split())
