"""Which sentences of a memory may be similar to the unknown translation of a sentence, and what tells how similar.

Candidates are the K best by each of these: the cosine of the sentence, the cosine of its draft, BM25 of the draft's
words, BM25 of what both languages spell alike (names, numbers, code) and, in a memory of two languages, BM25 of the
sentence's words in what the memory's sentences translate.

    cosine, margin    of the sentence, turned into the memory's language (see `language_difference`), and the candidate;
                      the margin is above the mean cosine of the NEIGHBOURS nearest candidates of the sentence
    foreign           share of the sentence's names and numbers that the candidate has (BM25)
    length            |ln| of the ratio of their characters
    draft cosine, draft chrf, draft dice, draft ratio, draft length
                      of the draft and the candidate: cosine, chrF with the draft as reference, Dice of 4-grams of
                      characters, share of characters in common order (rapidfuzz), |ln| of the ratio of characters
    draft bm25        share of the draft's words that the candidate has, rare ones counting more (BM25)
    original          share of characters in common order of the sentence and what the candidate translates
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from rapidfuzz import fuzz, process

from rag_mt.base.types import Floats
from retrievers.bm25 import Bm25, Query, best_in_rows
from retrievers.dense import search_each
from retrievers.index.search import Index, LeftOut
from retrievers.memory.overlap import overlaps

K = 20
"""Candidates of each search."""
NEIGHBOURS = 4
"""Nearest sentences that a margin is measured from: as many as in mining."""
PLAIN = ("cosine", "margin", "foreign", "length")
DRAFT = ("draft cosine", "draft chrf", "draft dice", "draft ratio", "draft length", "draft bm25")
ORIGINAL = ("original",)


def feature_names(draft: bool, original: bool) -> tuple[str, ...]:
    """The features that there are with and without drafts and originals."""
    return (*PLAIN, *(DRAFT if draft else ()), *(ORIGINAL if original else ()))


@dataclass(frozen=True)
class Candidates:
    """Units of a memory with what tells how similar they are: `rows` (candidates,) the number of the sentence,
    ascending; `units` that of the unit; `texts`; `features`, arrays (candidates,) by name. `drafted` tells of each
    sentence whether it has a draft."""

    rows: NDArray[np.int64]
    units: NDArray[np.int64]
    texts: list[str]
    features: Mapping[str, Floats]
    drafted: NDArray[np.bool_]


class Gatherer:
    """Gathers the candidates for sentences in the language `source` from an index of kind `memory`."""

    def __init__(self, index: Index, source: str) -> None:
        self.index, self.source = index, source

    def gather(
        self,
        sentences: Sequence[str],
        drafts: Sequence[str],
        vectors: tuple[Floats, Floats],
        without: Sequence[LeftOut] | None = None,
    ) -> Candidates:
        """The candidates for sentences with drafts, blank where there is none; `vectors` are those of both (sentences,
        dimension). `without[i]` are the sentences of the index that are left out for sentence i."""
        index, language, count = self.index, self.index.manifest.language, len(sentences)
        drafted = np.array([bool(draft.strip()) for draft in drafts], dtype=bool)
        left_out = None if without is None else [index.units_of_all(numbers) for numbers in without]
        # 1. The units that each search finds, (sentences, K) for each, -1 where there are no more.
        both = np.stack([vectors[0], np.where(drafted[:, None], vectors[1], vectors[0])], axis=1)
        flat = both.reshape(2 * count, -1)
        scores, dense = search_each(index, flat, np.arange(0, 2 * count + 1, 2), K, without)
        queries = index.terms.queries(drafts, language)
        foreign = index.terms.foreign_queries(sentences, self.source, language)
        products = [index.terms.product(part).T.tocsr() for part in (queries, foreign)]
        found = [dense.reshape(count, -1), *(best_in_rows(product, K, left_out)[1] for product in products)]
        if index.has_originals:
            found.append(self._originals.top(self._originals.queries(sentences, self.source), K, left_out)[1])
        rows, units = _distinct(np.concatenate(found, axis=1))
        # 2. Their features.
        stored = index.reconstruct(units)
        texts = index.texts(units)
        nearest = scores[::2, :NEIGHBOURS]
        means = np.where(np.isfinite(nearest) & (dense[::2, :NEIGHBOURS] >= 0), nearest, 0).mean(axis=1)
        cosine = np.einsum("ij,ij->i", vectors[0][rows], stored)
        own, drafts_of = [sentences[row] for row in rows.tolist()], [drafts[row] for row in rows.tolist()]
        alike = overlaps(texts, drafts_of)
        features: dict[str, Floats] = {
            "cosine": cosine,
            "margin": cosine - means[rows],
            "foreign": _shares(products[1], index.terms, foreign, rows, units),
            "length": _length_gap(own, texts),
            "draft cosine": np.einsum("ij,ij->i", vectors[1][rows], stored),
            "draft chrf": alike.chrf(),
            "draft dice": alike.dice(),
            "draft ratio": similar(drafts_of, texts),
            "draft length": _length_gap(drafts_of, texts),
            "draft bm25": _shares(products[0], index.terms, queries, rows, units),
        }
        if index.has_originals:
            features["original"] = similar(own, index.originals(units))
        return Candidates(rows, units, texts, {k: v.astype(np.float32) for k, v in features.items()}, drafted)

    @cached_property
    def _originals(self) -> Bm25:
        """BM25 over what the units translate, made at the first use."""
        originals = Bm25.build(self.index.originals(np.arange(len(self.index))), self.source)
        return originals if self.index.chosen is None else originals.within(self.index.chosen)


def similar(first: Sequence[str], second: Sequence[str]) -> Floats:
    """The share of the characters of pairs of texts that are in both in the same order, from 0 to 1 (pairs,); letter
    case counts, and a text is not similar to an empty one."""
    percent = process.cpdist(first, second, scorer=fuzz.ratio, dtype=np.float32)
    empty = np.array([not a or not b for a, b in zip(first, second, strict=True)], dtype=bool)
    return np.where(empty, 0, percent / 100).astype(np.float32)


def _distinct(found: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sentence and unit of each unit (sentences, n) that was found for a sentence, once."""
    rows, columns = np.nonzero(found >= 0)
    pairs = np.unique(np.stack([rows, found[rows, columns]], axis=1), axis=0)
    return pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64)


def _shares(
    product: object, terms: Bm25, queries: Sequence[Query], rows: NDArray[np.int64], units: NDArray[np.int64]
) -> Floats:
    """The BM25 score of each candidate over the one for all terms of its query, at most 1; 0 for a query without."""
    most = np.array([terms.most(query) if query else 0.0 for query in queries])[rows]
    scores = np.asarray(product[rows, units]).reshape(-1)  # type: ignore[index]
    return np.where(most > 0, np.minimum(scores / np.maximum(most, 1e-9), 1), 0).astype(np.float32)


def _length_gap(first: Sequence[str], second: Sequence[str]) -> Floats:
    lengths = [np.array([len(text) + 1 for text in texts], dtype=np.float64) for texts in (first, second)]
    return np.asarray(np.abs(np.log(lengths[0] / lengths[1])), np.float32)
