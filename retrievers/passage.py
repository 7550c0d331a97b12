"""Retrieval of passages for translation: by their vectors, by the terms that they share, or by both.

For each sentence the best passage of the target language is found and its best window of at most 100 characters
becomes the hint (mDPR for translation; the context limit is that of CCPR section 6.3).

`passage` ranks by the cosine of the dual encoder, and so does its score.

`bm25` ranks by BM25. Words of one language are not words of another: what can match are names, numbers, loan words and
cognates, in Latin letters and with the endings of both languages cut off (`Terms.foreign`). A sentence that shares
nothing with any passage has no hint.

`hybrid` ranks the candidates of both by S = alpha * BM25 + (1 - alpha) * cosine, scaled per sentence as
`retrievers.hybrid` tells. Its score is the cosine of the passage that it shows, which compares across sentences as a
scaled sum does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.types import Floats, Hint, Hit, Span
from rag_mt.text.words import terms_in
from retrievers.bm25 import Query
from retrievers.dense import IndexRetriever, search_each
from retrievers.hybrid import ALPHA, CANDIDATES, Rankings, weighted
from retrievers.index.search import Index, LeftOut
from retrievers.units.passages import PassageUnits
from retrievers.units.windows import windows

Ranked = Literal["passage", "bm25", "hybrid"]


def ranked(name: str) -> Ranked:
    """The name of one of the three rankings."""
    if name not in get_args(Ranked):
        raise ValueError(f"{name!r} ranks no passages")
    return cast(Ranked, name)


class PassageRetriever(IndexRetriever):
    """The best passage for each sentence in the language `source`, quoted by its best window."""

    maker: PassageUnits

    def __init__(
        self, name: Ranked, index: Index, maker: PassageUnits, source: str, cut_off: float | None = None
    ) -> None:
        super().__init__(name, index, maker, cut_off)
        self.alpha = float((index.manifest.terms or {}).get("alpha", ALPHA))
        self.source = source

    @property
    def settings(self) -> Mapping[str, Any]:
        """All that could change the hints of a sentence."""
        return {**super().settings, "source": self.source, "alpha": self.alpha}

    def _block(self, texts: Sequence[str], without: Sequence[LeftOut] | None) -> list[tuple[Hint, ...]]:
        asked = (
            self.index.terms.foreign_queries(texts, self.source, self.index.manifest.language) if self._terms else []
        )
        vectors = self.maker.encoder.encode(texts, "query")
        if self.name == "passage":
            found = self._dense(vectors, 1, without)
        elif self.name == "bm25":
            found = self._shared(asked, 1, without)
        else:
            found = self._both(vectors, asked, without)
        scores, ids = found.scores[:, 0], found.ids[:, 0]
        kept = np.flatnonzero((ids >= 0) & (scores >= (-np.inf if self.cut_off is None else self.cut_off)))
        hits = [self.index.hit(int(ids[n]), float(scores[n])) for n in kept.tolist()]
        if self.maker.dimension:
            spans = self._nearest(vectors[kept], hits)
        else:
            spans = [self._sharing(asked[n], hit) for n, hit in zip(kept.tolist(), hits, strict=True)]
        hints: list[tuple[Hint, ...]] = [() for _ in texts]
        for n, hit, span in zip(kept.tolist(), hits, spans, strict=True):
            hints[n] = (Hint(Span(0, len(texts[n])), Hit(hit.sentence, span, hit.score)),)
        return hints

    @property
    def _terms(self) -> bool:
        return self.name != "passage"

    def _dense(self, vectors: Floats, k: int, without: Sequence[LeftOut] | None) -> Rankings:
        scores, ids = search_each(self.index, vectors, np.arange(len(vectors) + 1), k, without)
        return Rankings(scores, ids)

    def _shared(self, asked: Sequence[Query], k: int, without: Sequence[LeftOut] | None) -> Rankings:
        left_out = None if without is None else [self._units(own) for own in without]
        return Rankings(*self.index.terms.top(asked, k, left_out))

    def _units(self, left_out: LeftOut) -> list[int]:
        """The units of one or several sentences of the index."""
        numbers = left_out if isinstance(left_out, Sequence) else [left_out]
        return [unit for number in numbers for unit in range(*self.index.units_of(number))]

    def _both(self, vectors: Floats, asked: Sequence[Query], without: Sequence[LeftOut] | None) -> Rankings:
        """The best passage of each hybrid ranking with its cosine."""
        terms = self._shared(asked, CANDIDATES, without)
        dense = self._dense(vectors, CANDIDATES, without)
        best = weighted(terms, dense, self.alpha, 1).ids
        return Rankings(self._cosines(vectors, best), best)

    def _cosines(self, vectors: Floats, ids: NDArray[np.int64]) -> Floats:
        """The cosine of each query with the passages of its row, 0 for -1."""
        made = np.zeros(ids.shape, dtype=np.float32)
        rows, columns = np.nonzero(ids >= 0)
        if len(rows):
            own, place = np.unique(ids[rows, columns], return_inverse=True)
            stored = self.index.reconstruct(own)
            made[rows, columns] = np.einsum("ij,ij->i", vectors[rows], stored[place])
        return made

    def _nearest(self, vectors: Floats, hits: Sequence[Hit]) -> list[Span]:
        """The window of each hit that the encoder finds nearest to its sentence."""
        choices = [windows(hit.sentence.text, hit.span) for hit in hits]
        open_ones = [n for n, spans in enumerate(choices) if len(spans) > 1]
        texts = [span.of(hits[n].sentence.text) for n in open_ones for span in choices[n]]
        made = self.maker.encoder.encode(texts, "passage") if texts else np.zeros((0, self.maker.dimension))
        best, row = [spans[0] for spans in choices], 0
        for n in open_ones:
            size = len(choices[n])
            best[n] = choices[n][int(np.argmax(made[row : row + size] @ vectors[n]))]
            row += size
        return best

    def _sharing(self, asked: Query, hit: Hit) -> Span:
        """The window of the hit with the rarest shared terms; the first one of equals."""
        choices = windows(hit.sentence.text, hit.span)
        own = terms_in(hit.sentence.language)
        weights = [self.index.terms.rarity(set(own.of(span.of(hit.sentence.text))) & asked.keys()) for span in choices]
        return choices[int(np.argmax(weights))]
