"""Retrieval of passages for translation: by their vectors, by the terms that they share, or by both.

For each sentence the best passage of the target language is found and its best window of at most 100 characters
becomes the hint (mDPR for translation; the context limit is that of CCPR section 6.3).

`passage` ranks by the cosine of the dual encoder, and so does its score.

`bm25` ranks by BM25. Words of one language are not words of another: what can match are names, numbers, loan words and
cognates, in Latin letters and with the endings of both languages cut off (`Terms.foreign`). A sentence that shares
nothing with any passage has no hint.

`hybrid` ranks the candidates of both by the weighted sum of their scores (Shi et al. 2021, Cross-Lingual Training of
Dense Retrievers for Document Retrieval):

    S(d) = alpha * S_BM25(d) + (1 - alpha) * S_dense(d)

BM25 scores and cosines have different scales, on which the paper is silent. Here each query's scores are put between
0 (the last text of its ranking) and 1 (the first), and a text that is missing in one ranking counts 0 there: it is
known to be no better than the last one. The score of a hit is the cosine of the passage that it shows, which compares
across sentences as a scaled sum does not. The other way to join rankings, reciprocal rank fusion, is that of Cormack et
al. (2009).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rag_mt.base.errors import UserError
from rag_mt.base.types import Floats, Hint, Hit, Span
from rag_mt.text.words import terms_in
from retrievers.bm25 import Bm25Settings, Query, best_in_rows
from retrievers.dense import IndexRetriever, search_each
from retrievers.index.search import Index, LeftOut
from retrievers.units.passages import PassageUnits, windows

RRF_CONSTANT = 60
CANDIDATES = 200
"""Texts of each ranking that a hybrid combines, in translation as in its evaluation."""
ALPHA = 0.2
"""The weight of BM25 where none is given: about what cross-validation on XQuAD's development questions chooses where
the passages of one other language are searched (0.16; within a language 0.46): reports/passages-dev.md."""


@dataclass(frozen=True, slots=True)
class HybridSettings(Bm25Settings):
    """BM25 with its weight `alpha` in a hybrid: 0 is the dense ranking alone, 1 that of BM25."""

    alpha: float = ALPHA

    def __post_init__(self) -> None:
        Bm25Settings.__post_init__(self)
        if not 0 <= self.alpha <= 1:
            raise UserError(
                f"alpha of the hybrid is {self.alpha:g}: expected a number from 0 (dense only) to 1 (BM25 only)"
            )


@dataclass(frozen=True)
class Rankings:
    """For each query the texts found, best first: `scores` and `ids`, both (queries, depth); a number of -1 says that
    there are no more."""

    scores: Floats
    ids: NDArray[np.int64]


def min_max(rankings: Rankings) -> Floats:
    """Each query's scores between 0 for its last text and 1 for its first; 1 where all are equal, 0 where there is no
    text; (queries, depth)."""
    there = rankings.ids >= 0
    low = np.where(there, rankings.scores, np.inf).min(axis=1, keepdims=True, initial=np.inf)
    high = np.where(there, rankings.scores, -np.inf).max(axis=1, keepdims=True, initial=-np.inf)
    wide = high > low
    above = np.where(there & wide, rankings.scores, 0) - np.where(wide, low, 0)
    scaled = np.where(wide, above / np.where(wide, high - low, 1), 1.0)
    return np.where(there, scaled, 0.0).astype(np.float32)


def weighted(terms: Rankings, dense: Rankings, alpha: float, k: int) -> Rankings:
    """The `k` best texts of either ranking by alpha * (BM25 score) + (1 - alpha) * (dense score), as scaled by
    `min_max`; equal sums by lowest number. Raises UserError for an alpha that is no share."""
    HybridSettings(alpha=alpha)
    return _summed([alpha * min_max(terms), (1 - alpha) * min_max(dense)], [terms, dense], k)


def reciprocal_rank_fusion(rankings: Sequence[Rankings], k: int, constant: int = RRF_CONSTANT) -> Rankings:
    """The `k` best texts by the sum over rankings of 1 / (constant + rank), rank from 1; a text that is missing in a
    ranking gets nothing there; equal sums by lowest number."""
    values = [np.broadcast_to(1 / (constant + np.arange(1, r.ids.shape[1] + 1)), r.ids.shape) for r in rankings]
    return _summed(values, rankings, k)


def _summed(values: Sequence[NDArray[Any]], rankings: Sequence[Rankings], k: int) -> Rankings:
    """The `k` texts of the greatest sums of their values for each query; `values` have the shapes of the rankings."""
    ids = np.concatenate([ranking.ids for ranking in rankings], axis=1)
    queries, columns = np.nonzero(ids >= 0)
    parts = np.concatenate(values, axis=1)[queries, columns].astype(np.float64)
    shape = (len(ids), ids.max(initial=0) + 1)
    sums = sparse.coo_array((parts, (queries, ids[queries, columns])), shape=shape).tocsr()
    return Rankings(*best_in_rows(sums, min(k, ids.shape[1])))


class PassageRetriever(IndexRetriever):
    """The best passage for each sentence in the language `source`, quoted by its best window; `name` is one of
    `passage`, `bm25` and `hybrid`."""

    maker: PassageUnits

    def __init__(self, name: str, index: Index, maker: PassageUnits, source: str, cut_off: float | None = None) -> None:
        super().__init__(name, index, maker, cut_off)
        self.alpha = float((index.manifest.terms or {}).get("alpha", ALPHA))
        self.source = source

    @property
    def settings(self) -> Mapping[str, Any]:
        """All that could change the hints of a sentence."""
        return {**super().settings, "source": self.source, "alpha": self.alpha}

    def _block(self, texts: Sequence[str], without: Sequence[LeftOut] | None) -> list[tuple[Hint, ...]]:
        queries: list[Query] = []
        if self.name != "passage":
            queries = self.index.terms.foreign_queries(texts, self.source, self.index.manifest.language)
        vectors = self.maker.encoder.encode(texts, "query")
        scores, ids = self._best(vectors, queries, without)
        trusted = self._trusted(scores, ids).tolist()
        hits = [self.index.hit(int(ids[n]), float(scores[n])) for n in trusted]
        if self.maker.dimension:
            spans = self._nearest_windows(vectors[trusted], hits)
        else:
            spans = [self._rarest_window(queries[n], hit) for n, hit in zip(trusted, hits, strict=True)]
        hints: list[tuple[Hint, ...]] = [() for _ in texts]
        for n, hit, span in zip(trusted, hits, spans, strict=True):
            hints[n] = (Hint(Span(0, len(texts[n])), Hit(hit.sentence, span, hit.score)),)
        return hints

    def _best(
        self, vectors: Floats, queries: Sequence[Query], without: Sequence[LeftOut] | None
    ) -> tuple[Floats, NDArray[np.int64]]:
        """Score and number of the best passage of each text, both (texts,), -1 where there is none."""
        k = CANDIDATES if self.name == "hybrid" else 1
        if self.name != "bm25":
            dense = search_each(self.index, vectors, np.arange(len(vectors) + 1), k, without)
            if self.name == "passage":
                return dense[0][:, 0], dense[1][:, 0]
        left_out = None if without is None else [self.index.units_of_all(sentences) for sentences in without]
        terms = self.index.terms.top(queries, k, left_out)
        if self.name == "bm25":
            return terms[0][:, 0], terms[1][:, 0]
        ids = weighted(Rankings(*terms), Rankings(*dense), self.alpha, 1).ids[:, 0]
        cosines, there = np.zeros(len(ids), dtype=np.float32), np.flatnonzero(ids >= 0)
        if len(there):
            cosines[there] = np.einsum("ij,ij->i", vectors[there], self.index.reconstruct(ids[there]))
        return cosines, ids

    def _nearest_windows(self, vectors: Floats, hits: Sequence[Hit]) -> list[Span]:
        """The window of each hit that the encoder finds nearest to its sentence."""
        choices = [windows(hit.sentence.text, hit.span) for hit in hits]
        best = [spans[0] for spans in choices]
        if undecided := [n for n, spans in enumerate(choices) if len(spans) > 1]:
            texts = [span.of(hits[n].sentence.text) for n in undecided for span in choices[n]]
            ends = np.cumsum([len(choices[n]) for n in undecided])
            for n, encoded in zip(undecided, np.split(self.maker.encoder.encode(texts, "passage"), ends), strict=False):
                best[n] = choices[n][int(np.argmax(encoded @ vectors[n]))]
        return best

    def _rarest_window(self, query: Query, hit: Hit) -> Span:
        """The window of the hit with the rarest shared terms; the first one of equals."""
        choices = windows(hit.sentence.text, hit.span)
        terms = terms_in(hit.sentence.language)
        shared = [set(terms.of(span.of(hit.sentence.text))) & query.keys() for span in choices]
        return choices[int(np.argmax([self.index.terms.rarity(names) for names in shared]))]
