"""BM25: the score of a text for a query by the terms that they share.

    score(q, d) = sum over terms t of q of w(t) * idf(t) * f / (f + k1 * (1 - b + b * |d| / mean |d|))
    idf(t) = ln(1 + (N - n(t) + 0.5) / (n(t) + 0.5))

with f the count of t in d, |d| the number of terms of d, N the number of texts, n(t) how many of them have t, and w(t)
the weight of t in the query: its count there, or what query expansion gives it (`eval.passages.runs`). This is Lucene's
form, computed and stored by the package bm25s when the texts are read: a search only adds numbers up, for a block of
queries in one sparse product.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import repeat
from pathlib import Path

import bm25s
import numpy as np
from bm25s.tokenization import Tokenized
from numpy.typing import NDArray
from scipy import sparse

from rag_mt.base.errors import UserError
from rag_mt.base.types import Floats
from rag_mt.text.words import terms_in
from retrievers.index.files import (
    TERM_BOUNDS,
    TERM_LENGTHS,
    TERM_NAMES,
    TERM_SCORES,
    TERM_SETTINGS,
    TERM_TOKENS,
    TERM_UNITS,
)

K1, B = 0.9, 0.4
"""The usual choice for passages (that of Anserini, with which Mr. TyDi's BM25 was measured)."""

AT_ONCE = 256
"""Queries of one product."""

Query = Mapping[str, float]
"""Terms with their weights."""


@dataclass(frozen=True, slots=True)
class Bm25Settings:
    """`k1` says how much a second occurrence counts (0: nothing), `b` how much long texts are discounted (0 to 1)."""

    k1: float = K1
    b: float = B

    def __post_init__(self) -> None:
        if not self.k1 >= 0:
            raise UserError(f"k1 of BM25 is {self.k1:g}: expected a number of at least 0")
        if not 0 <= self.b <= 1:
            raise UserError(f"b of BM25 is {self.b:g}: expected a number from 0 to 1")


@dataclass(frozen=True, eq=False)
class _Rows:
    """The numbers of the terms of each text as a list, made when it is asked for."""

    tokens: NDArray[np.int32]
    lengths: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[list[int]]:
        end = 0
        for length in self.lengths.tolist():
            end += length
            yield self.tokens[end - length : end].tolist()


class Bm25:
    """Texts that can be ranked by BM25; they are known by their numbers.

        found = Bm25.build(["Der Stadtrat tagt.", "Die Brücke ist neu."], "de")
        scores, numbers = found.top(found.queries(["neue Brücken"], "de"), k=1)

    `tokens` are the numbers of the terms of all texts one after the other, `lengths` how many each text has.
    """

    def __init__(
        self,
        model: bm25s.BM25,
        settings: Bm25Settings,
        tokens: NDArray[np.int32],
        lengths: NDArray[np.int32],
    ) -> None:
        self.settings, self.tokens, self.lengths = settings, tokens, lengths
        self._model = model
        self.numbers: Mapping[str, int] = model.vocab_dict
        kept = model.scores
        shape = (len(lengths), len(kept["indptr"]) - 1)
        # Columns of terms: the numbers of bm25s as they lie in memory or on disk, without a copy.
        self._scores = sparse.csc_array((kept["data"], kept["indices"], kept["indptr"]), shape=shape, copy=False)
        self._starts: NDArray[np.int64] = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])

    def __len__(self) -> int:
        """The number of texts."""
        return len(self.lengths)

    @classmethod
    def build(cls, texts: Iterable[str], language: str | Iterable[str], settings: Bm25Settings | None = None) -> Bm25:
        """BM25 over texts in one language, or in the language that stands for each.

        The texts are read one by one. In memory are 4 bytes for each word of them, 4 for each text and, while the
        scores are computed, about 40 for each different word of a text.
        Raises UserError if no text has a word.
        """
        settings = settings or Bm25Settings()
        codes = repeat(language) if isinstance(language, str) else language
        numbers: dict[str, int] = {}
        tokens, lengths = array("i"), array("i")
        for text, code in zip(texts, codes, strict=not isinstance(language, str)):
            before = len(tokens)
            tokens.extend(numbers.setdefault(term, len(numbers)) for term in terms_in(code).of(text))
            lengths.append(len(tokens) - before)
        if not numbers:
            raise UserError(f"none of the {len(lengths)} texts has a word: BM25 has nothing to search")
        rows = _Rows(np.frombuffer(tokens, dtype=np.int32), np.frombuffer(lengths, dtype=np.int32))
        model = bm25s.BM25(k1=settings.k1, b=settings.b, method="lucene", csc_backend="scipy")
        model.index(Tokenized(rows, numbers), create_empty_token=False, show_progress=False)
        return cls(model, settings, rows.tokens, rows.lengths)

    def save(self, folder: Path) -> None:
        """Write the files `retrievers.index.files.TERM_FILES` into an existing folder."""
        names = {
            "data_name": TERM_SCORES,
            "indices_name": TERM_UNITS,
            "indptr_name": TERM_BOUNDS,
            "vocab_name": TERM_NAMES,
        }
        self._model.save(folder, **names, params_name=TERM_SETTINGS, show_progress=False)
        (folder / TERM_SETTINGS).write_text(json.dumps(asdict(self.settings)), encoding="utf-8")
        np.save(folder / TERM_TOKENS, self.tokens, allow_pickle=False)
        np.save(folder / TERM_LENGTHS, self.lengths, allow_pickle=False)

    @classmethod
    def open(cls, folder: Path) -> Bm25:
        """The texts that `save` wrote; the numbers stay on disk, mapped into memory, the terms are read."""
        settings = Bm25Settings(**json.loads((folder / TERM_SETTINGS).read_text(encoding="utf-8")))
        model = bm25s.BM25(k1=settings.k1, b=settings.b, method="lucene")
        model.load_scores(
            folder, data_name=TERM_SCORES, indices_name=TERM_UNITS, indptr_name=TERM_BOUNDS, num_docs=0, mmap=True
        )
        model.vocab_dict = json.loads((folder / TERM_NAMES).read_text(encoding="utf-8"))
        tokens, lengths = (
            np.load(folder / name, mmap_mode="r", allow_pickle=False) for name in (TERM_TOKENS, TERM_LENGTHS)
        )
        return cls(model, settings, tokens, lengths)

    def queries(self, texts: Sequence[str], language: str) -> list[Query]:
        """The terms of texts in a language, each weighted by its count."""
        return [Counter(terms_in(language).of(text)) for text in texts]

    def foreign_queries(self, texts: Sequence[str], source: str, language: str) -> list[Query]:
        """The terms that texts in the language `source` may share with texts in another one: see `Terms.foreign`."""
        return [Counter(terms_in(language).foreign(text, terms_in(source))) for text in texts]

    def scores(self, queries: Sequence[Query]) -> Floats:
        """The scores of all texts, float32 (queries, texts): 0 where no term is shared."""
        made: Floats = self._product(queries).toarray().T
        return made

    def top(
        self, queries: Sequence[Query], k: int, without: Sequence[Sequence[int]] | None = None
    ) -> tuple[Floats, NDArray[np.int64]]:
        """Scores and numbers of the `k` best texts, both (queries, k), best first, equal scores by lowest number.

        Only texts that share a term with the query are found: beyond them the number is -1 and the score 0. The texts
        `without[i]` are left out for query i.
        """
        scores = np.zeros((len(queries), k), dtype=np.float32)
        ids = np.full((len(queries), k), -1, dtype=np.int64)
        for begin in range(0, len(queries), AT_ONCE):
            product = self._product(queries[begin : begin + AT_ONCE])
            for row in range(product.shape[1]):
                own = slice(product.indptr[row], product.indptr[row + 1])
                found, values = product.indices[own], product.data[own]
                if without is not None and len(without[begin + row]):
                    kept = ~np.isin(found, np.asarray(without[begin + row]))
                    found, values = found[kept], values[kept]
                best = _best(found, values, k)
                scores[begin + row, : len(best)], ids[begin + row, : len(best)] = values[best], found[best]
        return scores, ids

    def _product(self, queries: Sequence[Query]) -> sparse.csc_array:
        """The scores as a sparse array (texts, queries)."""
        known = [[(self.numbers[t], w) for t, w in query.items() if t in self.numbers] for query in queries]
        bounds = np.concatenate([[0], np.cumsum([len(row) for row in known], dtype=np.int64)])
        flat = [pair for row in known for pair in row]
        terms = np.array([number for number, _ in flat], dtype=np.int32)
        weights = np.array([weight for _, weight in flat], dtype=np.float32)
        asked = sparse.csc_array((weights, terms, bounds), shape=(self._scores.shape[1], len(queries)))
        return self._scores @ asked

    def problem(self, texts: int) -> str:
        """What is wrong with files that should hold the terms of so many texts, or an empty string."""
        lengths, bounds, terms = self.lengths, self._scores.indptr, len(self.numbers)
        if len(lengths) != texts or (lengths < 0).any() or int(lengths.sum(dtype=np.int64)) != len(self.tokens):
            return f"{TERM_LENGTHS} and {TERM_TOKENS} do not hold the terms of {texts} units"
        if self._scores.shape[1] != terms or not _within(self.tokens, terms):
            return f"{TERM_NAMES} does not name the terms of {TERM_TOKENS}"
        if (
            (np.diff(bounds) < 0).any()
            or bounds[-1] != len(self._scores.indices)
            or not _within(self._scores.indices, texts)
        ):
            return f"{TERM_BOUNDS} and {TERM_UNITS} do not point to the {texts} units"
        return "" if np.isfinite(self._scores.data).all() else f"{TERM_SCORES} has scores that are not finite"

    def frequencies(self) -> NDArray[np.int64]:
        """In how many texts each term occurs, by the number of the term."""
        made: NDArray[np.int64] = np.diff(self._scores.indptr).astype(np.int64)
        return made

    def rarity(self, terms: Iterable[str]) -> float:
        """The sum of the idf of terms, 0 for unknown ones."""
        numbers = np.array([self.numbers[term] for term in terms if term in self.numbers], dtype=np.int64)
        counts = self._scores.indptr[numbers + 1] - self._scores.indptr[numbers]
        return float(np.log1p((len(self) - counts + 0.5) / (counts + 0.5)).sum())

    def counts(self, text: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The numbers of the terms of a text, ascending, and how often each occurs in it."""
        terms, counts = np.unique(self.tokens[self._starts[text] : self._starts[text + 1]], return_counts=True)
        return terms, counts


def _within(numbers: NDArray[np.int32], size: int) -> bool:
    """Whether all of the numbers are from 0 to below `size`."""
    return not len(numbers) or bool(numbers.min() >= 0 and numbers.max() < size)


def _best(numbers: NDArray[np.int32], scores: Floats, k: int) -> NDArray[np.int64]:
    """Positions of the `k` best scores, best first, equal ones by lowest number."""
    chosen = np.arange(len(scores))
    if len(scores) > k:
        least = np.partition(scores, -k)[-k]
        chosen = np.flatnonzero(scores >= least)  # all of the last score: the lowest numbers of them are kept below
    order: NDArray[np.int64] = chosen[np.lexsort((numbers[chosen], -scores[chosen]))][:k]
    return order
