"""BM25: the score of a text for a query by the terms that they share.

    score(q, d) = sum over terms t of q of w(t) * idf(t) * f / (f + k1 * (1 - b + b * |d| / mean |d|))
    idf(t) = ln(1 + (N - n(t) + 0.5) / (n(t) + 0.5))

with f the count of t in d, |d| the number of terms of d, N the number of texts, n(t) how many of them have t, and w(t)
the weight of t in the query: its count there, or what query expansion gives it (`eval.passages.runs`). This is Lucene's
form. All scores of single terms are computed when the texts are read: a search is one sparse product for a block of
queries.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass
from itertools import pairwise, repeat
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.errors import UserError
from rag_mt.base.types import Floats
from rag_mt.text.words import terms_in

if TYPE_CHECKING:
    from scipy import sparse  # imported where it is needed: most indexes have no terms

TERM_SCORES, TERM_UNITS, TERM_BOUNDS = "bm25.scores.npy", "bm25.units.npy", "bm25.bounds.npy"
TERM_NAMES, TERM_SETTINGS = "bm25.terms.json", "bm25.json"
TERM_TOKENS, TERM_LENGTHS = "bm25.tokens.npy", "bm25.lengths.npy"
TERM_FILES = (TERM_SCORES, TERM_UNITS, TERM_BOUNDS, TERM_NAMES, TERM_SETTINGS, TERM_TOKENS, TERM_LENGTHS)

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


class Bm25:
    """Texts that can be ranked by BM25; they are known by their numbers.

        index = Bm25.build(["Der Stadtrat tagt.", "Die Brücke ist neu."], "de")
        scores, texts = index.top(index.queries(["neue Brücken"], "de"), k=1)

    `numbers` gives the number of each term, `tokens` the terms of all texts one after the other, `lengths` how many
    terms each text has.
    """

    def __init__(
        self,
        scores: sparse.csc_array,
        settings: Bm25Settings,
        numbers: Mapping[str, int],
        tokens: NDArray[np.int32],
        lengths: NDArray[np.int32],
    ) -> None:
        self._scores = scores  # (texts, terms)
        self.settings, self.numbers, self.tokens, self.lengths = settings, numbers, tokens, lengths
        self._starts: NDArray[np.int64] = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self._chosen: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        """The number of texts."""
        return len(self.lengths)

    @classmethod
    def build(cls, texts: Iterable[str], language: str | Iterable[str], settings: Bm25Settings | None = None) -> Bm25:
        """BM25 over texts in one language, or in the language that stands for each. The texts are read one by one. In
        memory are 4 bytes for each word of them, 4 for each text and, while the scores are computed, about 40 for each
        word. Raises UserError if no text has a word."""
        from scipy import sparse

        settings = settings or Bm25Settings()
        codes = repeat(language) if isinstance(language, str) else language
        numbers: dict[str, int] = {}
        words, words_per_text = array("i"), array("i")
        for text, code in zip(texts, codes, strict=not isinstance(language, str)):
            before = len(words)
            words.extend(numbers.setdefault(term, len(numbers)) for term in terms_in(code).of(text))
            words_per_text.append(len(words) - before)
        if not numbers:
            raise UserError(f"none of the {len(words_per_text)} texts has a word: BM25 has nothing to search")
        tokens, lengths = np.frombuffer(words, dtype=np.int32), np.frombuffer(words_per_text, dtype=np.int32)
        owners = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        ones = np.ones(len(tokens), dtype=np.float32)
        scores = sparse.coo_array((ones, (owners, tokens)), shape=(len(lengths), len(numbers))).tocsc()
        having = np.diff(scores.indptr)
        idf = np.log(1 + (len(lengths) - having + 0.5) / (having + 0.5)).astype(np.float32)
        discounts = settings.k1 * ((1 - settings.b) + settings.b * lengths / lengths.mean())
        scores.data = (np.repeat(idf, having) * (scores.data / (discounts[scores.indices] + scores.data))).astype("f4")
        return cls(scores, settings, numbers, tokens, lengths)

    def within(self, chosen: NDArray[np.bool_]) -> Bm25:
        """The same texts, of which only those are found that `chosen` (texts,) is true of. Scores stay: how rare a term
        is and how long texts are is that of all of them."""
        part = copy(self)
        part._chosen = chosen
        return part

    def save(self, folder: Path) -> None:
        """Write the files TERM_FILES into an existing folder."""
        arrays = {
            TERM_SCORES: self._scores.data,
            TERM_UNITS: self._scores.indices,
            TERM_BOUNDS: self._scores.indptr,
            TERM_TOKENS: self.tokens,
            TERM_LENGTHS: self.lengths,
        }
        for name, values in arrays.items():
            np.save(folder / name, values, allow_pickle=False)
        names = json.dumps(self.numbers, ensure_ascii=False, separators=(",", ":"))
        (folder / TERM_NAMES).write_text(names, encoding="utf-8")
        (folder / TERM_SETTINGS).write_text(json.dumps(asdict(self.settings)), encoding="utf-8")

    @classmethod
    def open(cls, folder: Path) -> Bm25:
        """The texts that `save` wrote; the numbers stay on disk, mapped into memory, the terms are read."""
        from scipy import sparse

        settings = Bm25Settings(**json.loads((folder / TERM_SETTINGS).read_text(encoding="utf-8")))
        numbers = json.loads((folder / TERM_NAMES).read_text(encoding="utf-8"))
        data, units, bounds, tokens, lengths = (
            np.load(folder / name, mmap_mode="r", allow_pickle=False)
            for name in (TERM_SCORES, TERM_UNITS, TERM_BOUNDS, TERM_TOKENS, TERM_LENGTHS)
        )
        shape = (len(lengths), len(bounds) - 1)
        scores = sparse.csc_array((data, units, bounds), shape=shape, copy=False)
        return cls(scores, settings, numbers, tokens, lengths)

    def queries(self, texts: Sequence[str], language: str) -> list[Query]:
        """The terms of texts in a language, each weighted by its count."""
        return [Counter(terms_in(language).of(text)) for text in texts]

    def foreign_queries(self, texts: Sequence[str], source: str, language: str) -> list[Query]:
        """The terms that texts in the language `source` may share with texts in another one: see `Terms.foreign`."""
        return [Counter(terms_in(language).foreign(text, terms_in(source))) for text in texts]

    def scores(self, queries: Sequence[Query]) -> Floats:
        """The scores of all texts, float32 (queries, texts): 0 where no term is shared."""
        scores: Floats = self.product(queries).toarray().T
        return scores

    def top(
        self, queries: Sequence[Query], k: int, without: Sequence[Sequence[int]] | None = None
    ) -> tuple[Floats, NDArray[np.int64]]:
        """Scores and numbers of the `k` best texts, both (queries, k), best first, equal scores by lowest number. Only
        texts that share a term with the query are found: beyond them the number is -1 and the score 0. The texts
        `without[i]` are left out for query i."""
        scores, texts = np.empty((len(queries), k), dtype=np.float32), np.empty((len(queries), k), dtype=np.int64)
        for begin in range(0, len(queries), AT_ONCE):
            part = slice(begin, begin + AT_ONCE)
            left_out = None if without is None else without[part]
            scores[part], texts[part] = best_in_rows(self.product(queries[part]).T, k, left_out)
        return scores, texts

    def most(self, query: Query) -> float:
        """The score of a text of middle length that has every term of the query once; a term that no text has counts as
        the rarest one."""
        numbers = np.array([self.numbers.get(term, -1) for term in query], dtype=np.int64)
        having = np.where(numbers < 0, 0, self._scores.indptr[numbers + 1] - self._scores.indptr[numbers])
        idf = np.log1p((len(self) - having + 0.5) / (having + 0.5))
        return float((idf * np.array(list(query.values()))).sum() / (1 + self.settings.k1))

    def product(self, queries: Sequence[Query]) -> sparse.csc_array:
        """The scores as a sparse array (texts, queries)."""
        from scipy import sparse

        known = [[(self.numbers[t], w) for t, w in query.items() if t in self.numbers] for query in queries]
        bounds = np.concatenate([[0], np.cumsum([len(row) for row in known], dtype=np.int64)])
        terms = np.array([number for row in known for number, _ in row], dtype=np.int32)
        weights = np.array([weight for row in known for _, weight in row], dtype=np.float32)
        asked = sparse.csc_array((weights, terms, bounds), shape=(self._scores.shape[1], len(queries)))
        scores: sparse.csc_array = self._scores @ asked
        if self._chosen is not None:
            chosen = self._chosen[scores.indices]
            bounds = np.concatenate([[0], np.cumsum(chosen)])[scores.indptr]
            scores = sparse.csc_array((scores.data[chosen], scores.indices[chosen], bounds), shape=scores.shape)
        return scores

    def problem(self, texts: int) -> str:
        """What is wrong with files that should hold the terms of so many texts, or an empty string."""
        lengths, terms = self.lengths, len(self.numbers)
        bounds, units = self._scores.indptr, self._scores.indices
        if len(lengths) != texts or (lengths < 0).any() or int(lengths.sum(dtype=np.int64)) != len(self.tokens):
            return f"{TERM_LENGTHS} and {TERM_TOKENS} do not hold the terms of {texts} units"
        if self._scores.shape[1] != terms or not _within(self.tokens, terms):
            return f"{TERM_NAMES} does not name the terms of {TERM_TOKENS}"
        if (np.diff(bounds) < 0).any() or bounds[-1] != len(units) or not _within(units, texts):
            return f"{TERM_BOUNDS} and {TERM_UNITS} do not point to the {texts} units"
        return "" if np.isfinite(self._scores.data).all() else f"{TERM_SCORES} has scores that are not finite"

    def frequencies(self) -> NDArray[np.int64]:
        """In how many texts each term occurs, by the number of the term."""
        frequencies: NDArray[np.int64] = np.diff(self._scores.indptr).astype(np.int64)
        return frequencies

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


def best_in_rows(
    values: sparse.csr_array, k: int, without: Sequence[Sequence[int]] | None = None
) -> tuple[Floats, NDArray[np.int64]]:
    """Value and column of the `k` greatest stored values of each row but those in the columns `without[row]`, both
    (rows, k), greatest first, equal ones by lowest column; beyond them the column is -1 and the value 0."""
    best_values = np.zeros((values.shape[0], k), dtype=np.float32)
    best_columns = np.full(best_values.shape, -1, dtype=np.int64)
    for row, (low, high) in enumerate(pairwise(values.indptr.tolist())):
        columns, stored = values.indices[low:high], values.data[low:high]
        if without is not None and len(without[row]):
            allowed = ~np.isin(columns, np.asarray(without[row]))
            columns, stored = columns[allowed], stored[allowed]
        if len(stored) > k:
            greatest = np.flatnonzero(stored >= np.partition(stored, -k)[-k])  # and all that equal the last of them
            columns, stored = columns[greatest], stored[greatest]
        order = np.lexsort((columns, -stored))[:k]
        best_values[row, : len(order)], best_columns[row, : len(order)] = stored[order], columns[order]
    return best_values, best_columns
