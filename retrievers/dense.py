"""Retrievers that search an index; the plain one looks up the nearest unit of the index for each unit of a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.types import Floats, Hint, Hit, Sentence, Span
from retrievers.index.index import Index, LeftOut
from retrievers.overlap import best_apart
from retrievers.units.unit import UnitMaker

MAX_HINTS = 32
"""Hints per sentence (the CCPR authors' code)."""


class Searched(Protocol):
    """What is searched: an index, or several as one."""

    def search(self, vectors: Floats, k: int, without: LeftOut | None = None) -> tuple[Floats, NDArray[np.int64]]:
        """See `retrievers.index.index.Index.search`."""
        ...

    def reconstruct(self, ids: NDArray[np.int64]) -> Floats:
        """The vectors of units."""
        ...

    def hit(self, unit: int, score: float) -> Hit:
        """The unit with that number."""
        ...


def search_each(
    index: Searched, vectors: Floats, bounds: NDArray[np.int64], k: int, without: Sequence[LeftOut] | None
) -> tuple[Floats, NDArray[np.int64]]:
    """Scores and units (queries, k) for the vectors of some texts, those of text i being rows `bounds[i]` to
    `bounds[i + 1]`; `without[i]` is what is left out of the index for text i."""
    if without is None or not len(vectors):
        return index.search(vectors, k)
    groups: list[tuple[list[int], LeftOut | None]] = [([], None)]  # of texts that nothing is left out for first
    for (low, high), left_out in zip(pairwise(bounds.tolist()), without, strict=True):
        if isinstance(left_out, Sequence) and not left_out:
            groups[0][0].extend(range(low, high))
        else:
            groups.append((list(range(low, high)), left_out))
    groups = [group for group in groups if group[0]]
    found = [index.search(vectors[rows], k, left_out) for rows, left_out in groups]
    order = np.argsort([row for rows, _ in groups for row in rows])
    scores, ids = (np.concatenate(parts)[order] for parts in zip(*found, strict=True))
    return scores, ids


class IndexRetriever:
    """What the retrievers that search an index have in common (a Retriever): a subclass finds the hints of a block of
    texts. Hits that score below `cut_off` are dropped."""

    def __init__(self, name: str, index: Index, maker: UnitMaker, cut_off: float | None = None) -> None:
        self.name, self.unit = name, maker.unit
        self.index, self.maker, self.cut_off = index, maker, cut_off

    @property
    def settings(self) -> Mapping[str, Any]:
        """All that could change the hints of a sentence: the index's manifest, the units that are looked up (with the
        encoder's fingerprint), what the encoder computes in and on, and the cut-off."""
        encoder = getattr(self.maker, "encoder", None)
        return {
            "index": asdict(self.index.manifest),
            "units": dict(self.maker.settings),
            "dtype": str(getattr(encoder, "dtype", "")),
            "device": str(getattr(encoder, "device", "")),
            "cut_off": self.cut_off,
        }

    def retrieve(
        self, sentences: Sequence[Sentence], without: Sequence[LeftOut] | None = None
    ) -> list[tuple[Hint, ...]]:
        """For each sentence its hints, strongest first; blocks of the maker's size are encoded and searched as one.

        With `without` the hints are as if the sentence (or sentences) `without[i]` of the index, the translation of
        sentence i, say, were not there.
        """
        hints: list[tuple[Hint, ...]] = []
        for begin in range(0, len(sentences), self.maker.block):
            part = slice(begin, begin + self.maker.block)
            hints += self._block([s.text for s in sentences[part]], None if without is None else without[part])
        return hints

    def _block(self, texts: Sequence[str], without: Sequence[LeftOut] | None) -> list[tuple[Hint, ...]]:
        raise NotImplementedError


class DenseRetriever(IndexRetriever):
    """The best hit for each unit that `maker` sees in a sentence; source spans of hints do not overlap."""

    def _block(self, texts: Sequence[str], without: Sequence[LeftOut] | None) -> list[tuple[Hint, ...]]:
        vectors, spans = self.maker.units(texts, "query")
        bounds = np.searchsorted(spans[:, 0], np.arange(len(texts) + 1))
        rows = [slice(*pair) for pair in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]
        scores, ids = search_each(self.index, vectors, bounds, 1, without)
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
