"""Retrievers that search an index; the plain one looks up the nearest unit of the index for each unit of a sentence."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from prompts.builder import MAX_HINTS
from rag_mt.base.files import settings_hash
from rag_mt.base.types import Floats, Hint, Hit, Sentence, Span
from retrievers.index.search import Index, LeftOut
from retrievers.units.unit import UnitMaker, rows_by_text


class Searched(Protocol):
    """What is searched: an index, or several as one; see the methods of `retrievers.index.search.Index`."""

    def search(self, vectors: Floats, k: int, without: LeftOut | None = None) -> tuple[Floats, NDArray[np.int64]]: ...

    def reconstruct(self, ids: NDArray[np.int64]) -> Floats: ...

    def hit(self, unit: int, score: float) -> Hit: ...


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
    answers = [index.search(vectors[rows], k, left_out) for rows, left_out in groups]
    order = np.argsort([row for rows, _ in groups for row in rows])
    scores, ids = (np.concatenate(parts)[order] for parts in zip(*answers, strict=True))
    return scores, ids


class IndexRetriever(ABC):
    """What the retrievers that search an index have in common (a Retriever). Hits that score below `cut_off` are
    dropped."""

    def __init__(self, name: str, index: Index, maker: UnitMaker, cut_off: float | None = None) -> None:
        self.name, self.unit = name, maker.unit
        self.index, self.maker, self.cut_off = index, maker, cut_off

    @property
    def settings(self) -> Mapping[str, Any]:
        """All that could change the hints of a sentence: the index's manifest without the labels of files, the files
        that are searched if not all are, the units that are looked up (with the encoder's fingerprint), what the
        encoder computes in and on, and the cut-off."""
        encoder = getattr(self.maker, "encoder", None)
        manifest, selection = replace(self.index.manifest, labels={}), self.index.selection
        return {
            "index": manifest.as_dict() | {"resumed": manifest.resumed},
            **({} if selection is None else {"files": settings_hash(selection.files)}),
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
        sentence i, say, were not there."""
        hints: list[tuple[Hint, ...]] = []
        for begin in range(0, len(sentences), self.maker.block):
            part = slice(begin, begin + self.maker.block)
            hints += self._block([s.text for s in sentences[part]], None if without is None else without[part])
        return hints

    @abstractmethod
    def _block(self, texts: Sequence[str], without: Sequence[LeftOut] | None) -> list[tuple[Hint, ...]]:
        """The hints of each text."""

    def _trusted(self, scores: Floats, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows with a unit (not -1) and a score that reaches the cut-off."""
        return np.flatnonzero((ids >= 0) & (scores >= (-np.inf if self.cut_off is None else self.cut_off)))


class DenseRetriever(IndexRetriever):
    """The best hit for each unit that `maker` sees in a sentence; source spans of hints do not overlap."""

    def _block(self, texts: Sequence[str], without: Sequence[LeftOut] | None) -> list[tuple[Hint, ...]]:
        vectors, spans = self.maker.units(texts, "query")
        bounds = np.searchsorted(spans[:, 0], np.arange(len(texts) + 1))
        all_scores, all_ids = search_each(self.index, vectors, bounds, 1, without)
        trusted = self._trusted(all_scores[:, 0], all_ids[:, 0])
        spans, scores, ids = spans[trusted], all_scores[trusted, 0], all_ids[trusted, 0]
        return hints_apart(len(texts), spans, scores, lambda row: self.index.hit(int(ids[row]), float(scores[row])))


def hints_apart(
    texts: int, spans: NDArray[np.int32], scores: Floats, hit: Callable[[int], Hit]
) -> list[tuple[Hint, ...]]:
    """For each of so many texts the hints of the best of its `spans`, (spans, 3) text number, start, end, that do not
    overlap; `hit` gives that of a row."""
    hints = []
    for rows in rows_by_text(spans, texts):
        best = rows[best_apart(spans[rows, 1], spans[rows, 2], scores[rows], MAX_HINTS)].tolist()
        hints.append(tuple(Hint(Span(*spans[row, 1:].tolist()), hit(row)) for row in best))
    return hints


def best_apart(
    starts: NDArray[np.int32], ends: NDArray[np.int32], scores: NDArray[np.float32], limit: int
) -> NDArray[np.int64]:
    """The rows of at most `limit` spans that share no character, best score first. Greedy: the best span is taken, what
    overlaps it is out, and so on. Of equal scores the longer span is taken, then the earlier one."""
    order = np.lexsort((starts, starts - ends, -scores))
    taken: list[int] = []
    while len(order) and len(taken) < limit:
        best = order[0]
        taken.append(int(best))
        order = order[(ends[order] <= starts[best]) | (starts[order] >= ends[best])]
    return np.array(taken, dtype=np.int64)


def longest_apart(starts: NDArray[np.int32], ends: NDArray[np.int32], limit: int) -> NDArray[np.int64]:
    """The rows of at most `limit` spans that share no character, longer ones first taken, in ascending order."""
    return np.sort(best_apart(starts, ends, (ends - starts).astype(np.float32), limit))
