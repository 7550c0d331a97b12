"""RM3: a query is expanded by terms of the texts that it finds first.

The relevance model RM1 gives a term the mean of its share of the feedback texts, weighted by their scores:

    P(t | R) = sum over d of score(d) * (f(t, d) / |d|) / sum over d of score(d)

RM3 keeps its best terms and mixes them with the query's own: weight * P(t | q) + (1 - weight) * P(t | R).

Sources: Lavrenko and Croft (2001) for RM1, Abdul-Jaleel et al. (2004) for RM3; the numbers are those usual in Anserini.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.errors import UserError
from rag_mt.base.types import Floats
from retrievers.bm25 import Bm25, Query


@dataclass(frozen=True, slots=True)
class Rm3Settings:
    """`texts` feedback texts give the query `terms` further terms, its own count `weight` of the whole; terms in more
    than the share `common` of all texts are none of them."""

    texts: int = 10
    terms: int = 10
    weight: float = 0.5
    common: float = 0.1

    def __post_init__(self) -> None:
        for name, value in (("texts", self.texts), ("terms", self.terms)):
            if value < 1:
                raise UserError(f"RM3 cannot take {value} feedback {name}: expected at least 1")
        for name, share in (("the query's weight", self.weight), ("the share of common terms", self.common)):
            if not 0 <= share <= 1:
                raise UserError(f"{name} in RM3 is {share:g}: expected a number from 0 to 1")


class Rm3:
    """Expands queries from the texts of a BM25 index."""

    def __init__(self, index: Bm25, settings: Rm3Settings | None = None) -> None:
        self.index, self.settings = index, settings or Rm3Settings()
        self._terms = list(index.numbers)
        self._common = index.frequencies() > self.settings.common * len(index)

    def expand(self, queries: Sequence[Query]) -> list[Query]:
        """The expanded queries, their weights adding up to those of the originals; a query that finds nothing stays as
        it is."""
        scores, found = self.index.top(queries, self.settings.texts)
        return [
            self._mixed(query, self._best(found[n][found[n] >= 0], scores[n][found[n] >= 0]))
            for n, query in enumerate(queries)
        ]

    def _best(self, texts: NDArray[np.int64], scores: Floats) -> Mapping[str, float]:
        """The best terms of the relevance model of some texts, their shares adding up to 1."""
        if not len(texts):
            return {}
        counted = [self.index.counts(text) for text in texts.tolist()]
        terms = np.concatenate([numbers for numbers, _ in counted])
        shares = np.concatenate(
            [counts / counts.sum() * score for (_, counts), score in zip(counted, scores.tolist(), strict=True)]
        )
        unique, place = np.unique(terms, return_inverse=True)
        mass = np.bincount(place, weights=shares) * ~self._common[unique]
        kept = np.lexsort((unique, -mass))[: self.settings.terms]
        kept = kept[mass[kept] > 0]
        whole = float(mass[kept].sum())
        return {self._terms[unique[i]]: float(mass[i]) / whole for i in kept.tolist()}

    def _mixed(self, query: Query, found: Mapping[str, float]) -> Query:
        if not found:
            return query
        size, weight = sum(query.values()), self.settings.weight
        return {
            term: weight * query.get(term, 0.0) + (1 - weight) * size * found.get(term, 0.0)
            for term in dict.fromkeys((*query, *found))
        }
