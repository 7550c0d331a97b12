"""The retriever over vectors: units of the source sentence, the nearest unit of the index for each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rag_mt.types import Hint, Sentence, Span
from retrievers.index import Index
from retrievers.overlap import best_apart
from retrievers.units import UnitMaker

MAX_HINTS = 32
"""Hints per sentence (the CCPR authors' code)."""


class DenseRetriever:
    """Top-1 hits for the units that `maker` sees in a sentence (a Retriever).

    Hits that score below `cut_off` are dropped; source spans of hints do not overlap.
    """

    def __init__(self, name: str, index: Index, maker: UnitMaker, cut_off: float | None = None) -> None:
        self.name, self.unit = name, maker.unit
        self.index, self.maker, self.cut_off = index, maker, cut_off

    def retrieve(self, sentences: Sequence[Sentence], without: Sequence[int] | None = None) -> list[tuple[Hint, ...]]:
        """For each sentence its hints, strongest first; blocks of the maker's size are encoded and searched as one.

        With `without` the hints are as if the sentence `without[i]` of the index (the translation of sentence i, say)
        were not there.
        """
        hints: list[tuple[Hint, ...]] = []
        for begin in range(0, len(sentences), self.maker.block):
            part = slice(begin, begin + self.maker.block)
            hints += self._block([s.text for s in sentences[part]], None if without is None else without[part])
        return hints

    def _block(self, texts: Sequence[str], without: Sequence[int] | None) -> list[tuple[Hint, ...]]:
        vectors, spans = self.maker.units(texts, "query")
        bounds = np.searchsorted(spans[:, 0], np.arange(len(texts) + 1))
        rows = [slice(*pair) for pair in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]
        if without is None:
            scores, ids = self.index.search(vectors, 1)
        else:
            found = [self.index.search(vectors[r], 1, w) for r, w in zip(rows, without, strict=True)]
            scores, ids = (np.concatenate(parts) for parts in zip(*found, strict=True))
        trusted = (ids[:, 0] >= 0) & (scores[:, 0] >= (-np.inf if self.cut_off is None else self.cut_off))
        hints = []
        for own in rows:
            kept = np.flatnonzero(trusted[own]) + own.start
            best = kept[best_apart(spans[kept, 1], spans[kept, 2], scores[kept, 0], MAX_HINTS)]
            hints.append(
                tuple(
                    Hint(Span(*spans[row, 1:].tolist()), self.index.hit(int(ids[row, 0]), float(scores[row, 0])))
                    for row in best
                )
            )
        return hints
