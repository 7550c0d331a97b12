"""Rankings of systems on a collection and their measures: a record for BM25 and one for each trained model.

Rankings are of the one pool that holds the passages of all languages, except those of the cells A>B. A cell (A, B) asks
the queries in language A for the relevant passages in language B; relevant ones in other languages, which answer the
query as well, are taken out of the ranking, while everything else in every language competes. The cell (A, any) takes
the relevant passages of all languages for what they are. The cell A>B searches the passages in B alone, as an index for
translation does; BM25 is then built from them, and asks for what languages may share (`Bm25.foreign_queries`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.data.vectors import VectorCache
from eval.passages.sets import DEPTH, Collection, Qrels, Query, cached, read_run, write_run
from rag_mt.base.errors import UserError
from rag_mt.base.types import Encoder, Floats
from retrievers import bm25
from retrievers.bm25 import Bm25, Bm25Settings
from retrievers.passage import CANDIDATES, Rankings, reciprocal_rank_fusion, weighted

ANY = "any"
BM25, RM3, DENSE, HYBRID, RRF = "BM25", "BM25 + RM3", "dense", "hybrid", "RRF"
MEASURES = {
    "MRR@100": "RR@100",
    "Recall@20": "R@20",
    "Recall@100": "R@100",
    "AP@100": "AP@100",
    "P@20": "P@20",
    "nDCG@20": "nDCG@20",
}
"""What ir-measures calls each measure."""
ALPHAS = tuple(round(0.1 * n, 1) for n in range(11))
FOLDS = 5
BIAS_DEPTH = 20
VERSION = 5
"""Raise it when code changes what records hold."""

Scores = NDArray[np.floating[Any]]
Scorer = Callable[[str, str], Scores]
"""The scores of all passages for the queries in a language, (queries, passages); with a second language, of the
passages in that one, which is searched alone."""


@dataclass(frozen=True)
class Cell:
    """Queries in one language for passages in another one (or any): what is relevant and what is out, both
    (queries, passages); `alone` says that the passages in other languages are all out."""

    asked: str
    wanted: str
    queries: Sequence[Query]
    relevant: NDArray[np.bool_]
    out: NDArray[np.bool_]
    alone: bool = False

    @property
    def name(self) -> str:
        return f"{self.asked}{'>' if self.alone else '-'}{self.wanted}"

    @property
    def ids(self) -> list[str]:
        """The ids of the queries."""
        return [query.id for query in self.queries]


@dataclass(frozen=True)
class Record:
    """The results of one system: for each cell the measures of each query, for each query language its bias, and the
    alphas of its cells."""

    system: str
    values: dict[str, dict[str, list[float]]]
    bias: dict[str, dict[str, float]]
    alphas: dict[str, list[float]]

    def mean(self, cell: str, measure: str) -> float:
        """The mean of a measure over the queries of a cell."""
        return float(np.mean(self.values[cell][measure]))


def cells_of(collection: Collection) -> list[Cell]:
    """The cells of each query language; queries without a relevant passage in a language are not asked there."""
    languages = np.array(collection.languages)
    cells = []
    for code in collection.codes:
        queries = collection.asked_in(code)
        relevant = collection.relevant(queries)
        for wanted in dict.fromkeys(collection.languages):
            answers = relevant & (languages == wanted)
            rows = np.flatnonzero(answers.any(axis=1))
            if len(rows):
                asked = [queries[n] for n in rows]
                cells.append(Cell(code, wanted, asked, answers[rows], relevant[rows] & ~answers[rows]))
                if wanted != code:
                    others = np.broadcast_to(languages != wanted, answers[rows].shape)
                    cells.append(Cell(code, wanted, asked, answers[rows], others, alone=True))
        cells.append(Cell(code, ANY, queries, relevant, np.zeros_like(relevant)))
    return cells


def ranked(scores: Scores, out: NDArray[np.bool_], least: float = -np.inf, depth: int = CANDIDATES) -> Rankings:
    """The `depth` best passages of each row that score above `least` and are not `out`, equal ones by lowest number."""
    left: Scores = np.where(out, -np.inf, scores)
    depth = min(depth, left.shape[1])
    ids = np.argpartition(-left, depth - 1, axis=1)[:, :depth]
    best = np.take_along_axis(left, ids, axis=1)
    order = np.lexsort((ids, -best), axis=-1)
    ids, best = np.take_along_axis(ids, order, axis=1), np.take_along_axis(best, order, axis=1)
    there = best > least
    return Rankings(np.where(there, best, 0).astype(np.float32), np.where(there, ids, -1))


@dataclass(frozen=True, slots=True)
class Rm3Settings:
    """`texts` feedback texts give the query `terms` further terms, its own count `weight` of the whole; terms in more
    than the share `common` of all texts are none of them. The numbers are those usual in Anserini."""

    texts: int = 10
    terms: int = 10
    weight: float = 0.5
    common: float = 0.1


def expanded(index: Bm25, queries: Sequence[bm25.Query], settings: Rm3Settings) -> list[bm25.Query]:
    """Queries with terms of the texts of an index that they find first (RM3), their weights adding up to those of the
    originals; a query that finds nothing stays as it is.

    The relevance model RM1 (Lavrenko and Croft 2001) gives a term the mean of its share of the feedback texts, weighted
    by their scores:

        P(t | R) = sum over d of score(d) * (f(t, d) / |d|) / sum over d of score(d)

    RM3 (Abdul-Jaleel et al. 2004) keeps its best terms and mixes them with the query's own:
    weight * P(t | q) + (1 - weight) * P(t | R).
    """
    names, common = list(index.numbers), index.frequencies() > settings.common * len(index)
    mixed = []
    for query, scores, texts in zip(queries, *index.top(queries, settings.texts), strict=True):
        best_texts = zip(texts.tolist(), scores.tolist(), strict=True)
        feedback = [(index.counts(text), score) for text, score in best_texts if text >= 0]
        if not feedback:
            mixed.append(query)
            continue
        terms, place = np.unique(np.concatenate([numbers for (numbers, _), _ in feedback]), return_inverse=True)
        shares = np.concatenate([counts / counts.sum() * score for (_, counts), score in feedback])
        mass = np.bincount(place, weights=shares) * ~common[terms]
        best = np.lexsort((terms, -mass))[: settings.terms]
        best = best[mass[best] > 0]
        whole, size, weight = float(mass[best].sum()), sum(query.values()), settings.weight if len(best) else 1.0
        weights = {term: weight * own for term, own in query.items()}
        for n in best.tolist():
            share = float(mass[n]) / whole
            weights[names[terms[n]]] = weights.get(names[terms[n]], 0.0) + (1 - weight) * size * share
        mixed.append(weights)
    return mixed


def term_scorers(collection: Collection, settings: Bm25Settings, expansion: Rm3Settings) -> dict[str, Scorer]:
    """BM25 without and with RM3, over the whole pool, each text by the rules of its own language, or over the
    passages of one language."""
    languages = np.array(collection.languages)

    @cache
    def index_of(alone: str) -> Bm25:
        inside = languages == alone if alone else np.full(len(languages), True)
        return Bm25.build(list(compress(collection.texts, inside)), languages[inside].tolist(), settings)

    def scores(code: str, alone: str, with_rm3: bool) -> Floats:
        texts, index = [query.text for query in collection.asked_in(code)], index_of(alone)
        asked = index.foreign_queries(texts, code, alone) if alone else index.queries(texts, code)
        inside = index.scores(expanded(index, asked, expansion) if with_rm3 else asked)
        if not alone:
            return inside
        pooled = np.zeros((len(texts), len(languages)), dtype=np.float32)
        pooled[:, languages == alone] = inside
        return pooled

    return {BM25: partial(scores, with_rm3=False), RM3: partial(scores, with_rm3=True)}


def dense_scorer(collection: Collection, encoder: Encoder, folder: Path, show: bool = True) -> Scorer:
    """The cosines of an encoder; the passages' vectors are kept in the folder in half precision."""
    vectors = VectorCache(folder, encoder, "passage").vectors(collection.texts, "encoding passages", show)
    passages = vectors.astype(np.float32)

    @lru_cache(1)
    def cosines(code: str) -> Floats:
        scores: Floats = encoder.encode([query.text for query in collection.asked_in(code)], "query") @ passages.T
        return scores

    return lambda code, alone: cosines(code)


def run_scorer(collection: Collection, file: Path) -> Scorer:
    """The scores in a run file, -inf for passages that it does not rank; raises UserError for one of another
    collection."""
    run = read_run(file)
    position = {passage: n for n, passage in enumerate(collection.ids)}
    if run.keys().isdisjoint(query.id for query in collection.queries):
        raise UserError(
            f"{file} ranks passages for no query of {collection.name}: expected ids such as {collection.queries[0].id}"
        )
    ranked_passages = (passage for query in collection.queries for passage in run.get(query.id, {}))
    if unknown := next((passage for passage in ranked_passages if passage not in position), None):
        raise UserError(f"the run names the passage {unknown!r}, which is not among the {len(position)} passages")

    def scores(code: str, alone: str) -> Scores:
        queries = collection.asked_in(code)
        by_query = np.full((len(queries), len(position)), -np.inf)
        for row, query in enumerate(queries):
            for passage, score in run.get(query.id, {}).items():
                by_query[row, position[passage]] = score
        return by_query

    return scores


def measures_library() -> Any:
    """The package ir-measures; raises UserError where it is not installed."""
    try:
        import ir_measures
    except ImportError:
        raise UserError("rankings are measured by ir-measures: `pip install -c constraints.txt ir-measures`") from None
    return ir_measures


def measured(
    rankings: Rankings,
    queries: Sequence[str],
    passages: Sequence[str],
    qrels: Qrels,
    measures: Sequence[str] = tuple(MEASURES),
) -> dict[str, list[float]]:
    """Each measure's value for each query, in the order of the queries, of the first 100 passages; 0 where no passage
    is relevant.

    `rankings.ids` (queries, depth) are positions in `passages`. Equal scores count in the order of the ranking.
    """
    ids = rankings.ids[:, :DEPTH]
    places = range(ids.shape[1], 0, -1)  # scores that fall with the rank: the library breaks ties by its own rule
    run = {
        query: {passages[n]: float(place) for n, place in zip(row, places, strict=True) if n >= 0}
        for query, row in zip(queries, ids.tolist(), strict=True)
    }
    row_of = {query: n for n, query in enumerate(queries)}
    values = {name: np.zeros(len(queries)) for name in measures}
    library = measures_library()
    names = {library.parse_measure(MEASURES[name]): name for name in measures}
    for metric in library.iter_calc(list(names), {query: dict(qrels[query]) for query in queries}, run):
        values[names[metric.measure]][row_of[metric.query_id]] = metric.value
    return {name: by_query.round(6).tolist() for name, by_query in values.items()}


def cross_validated(sides: Sequence[Rankings], dense: Rankings, cell: Cell) -> tuple[Rankings, list[float]]:
    """The hybrid of a ranking by terms and a dense one, and the alphas of its folds. For the queries of each fold the
    one of the `sides` is taken that is best on the other folds (P@20; of equals the first), and of it the alpha that is
    best there (mean average precision; of equals that nearest to 0.5). Queries on the same article are in one fold."""
    groups = {group: n for n, group in enumerate(dict.fromkeys(q.group for q in cell.queries))}
    fold = np.array([groups[q.group] % FOLDS for q in cell.queries])
    passages = [str(n) for n in range(cell.relevant.shape[1])]
    relevant = {
        query: {passages[n]: 1 for n in np.flatnonzero(row)} for query, row in zip(cell.ids, cell.relevant, strict=True)
    }

    def values(rankings: Sequence[Rankings], measure: str) -> Scores:
        return np.array([measured(ranking, cell.ids, passages, relevant, [measure])[measure] for ranking in rankings])

    @cache
    def hybrids_of(side: int) -> tuple[list[Rankings], Scores]:
        hybrids = [weighted(sides[side], dense, alpha, CANDIDATES) for alpha in ALPHAS]
        return hybrids, values(hybrids, "AP@100")

    first = values(sides, "P@20") if len(sides) > 1 else np.zeros((1, len(fold)))
    scores, ids, chosen = list[Scores](), list[NDArray[np.int64]](), list[float]()
    order = np.argsort(fold, kind="stable")
    for number in np.unique(fold).tolist():
        inside = fold == number
        others = ~inside if not inside.all() else inside
        hybrids, precision = hybrids_of(int(first[:, others].mean(axis=1).argmax()))
        means = precision[:, others].mean(axis=1)
        best = min(np.flatnonzero(means >= means.max() - 1e-12).tolist(), key=lambda n: abs(ALPHAS[n] - 0.5))
        chosen.append(ALPHAS[best])
        scores.append(hybrids[best].scores[inside])
        ids.append(hybrids[best].ids[inside])
    back = np.argsort(order)
    return Rankings(np.concatenate(scores)[back], np.concatenate(ids)[back]), chosen


def evaluated(
    collection: Collection, scorers: Mapping[str, Scorer], runs: Path | None, label: str = "", alone: bool = True
) -> list[Record]:
    """A record for each scorer. The scorer named `dense` comes with BM25, and RM3 if the hybrid may take that in its
    place, and gets the records of its hybrid and of RRF with BM25 in their places.

    Run files of the cells (A, any) go to the folder `runs`, if there is one; without `alone` no language is searched
    alone.
    """
    language_of = dict(zip(collection.ids, collection.languages, strict=True))
    records: dict[str, Record] = {}
    by_name = {name: lru_cache(2)(scorer) for name, scorer in scorers.items()}  # of the pool, and of a language alone
    for cell in cells_of(collection):
        if cell.alone and not alone:
            continue
        row_of = {query.id: row for row, query in enumerate(collection.asked_in(cell.asked))}
        rows = [row_of[query] for query in cell.ids]
        rankings, alphas = {}, list[float]()
        for name, scorer in by_name.items():
            scores = scorer(cell.asked, cell.wanted if cell.alone else "")[rows]
            rankings[name] = ranked(scores, cell.out, 0.0 if name in (BM25, RM3) else -np.inf)
        if DENSE in rankings:
            sides = [rankings.pop(name) for name in (BM25, RM3) if name in rankings]
            rankings[HYBRID], alphas = cross_validated(sides, rankings[DENSE], cell)
            rankings[RRF] = reciprocal_rank_fusion([sides[0], rankings[DENSE]], CANDIDATES)
        judged = {
            query: {p: g for p, g in collection.qrels[query].items() if cell.wanted in (ANY, language_of[p])}
            for query in cell.ids
        }
        for name, ranking in rankings.items():
            record = records.setdefault(name, Record(name, {}, {}, {}))
            record.values[cell.name] = measured(ranking, cell.ids, collection.ids, judged)
            if name == HYBRID:
                record.alphas[cell.name] = alphas
            if cell.wanted == ANY:
                record.bias[cell.asked] = _bias(ranking, cell, collection)
                if runs:
                    system = name.replace(" ", "")
                    file = runs / f"{label}.{system}.{cell.asked}.run"
                    write_run(file, system, ranking, cell.ids, collection.ids)
    return list(records.values())


def _bias(ranking: Rankings, cell: Cell, collection: Collection) -> dict[str, float]:
    """How much a ranking prefers the language of the query: among the first 20 passages the share in that language,
    less its share of the pool; and the share of queries whose own-language answer comes before the others,
    less what it would be if each were as likely to come first."""
    own = np.array(collection.languages) == cell.asked
    top = ranking.ids[:, :BIAS_DEPTH]
    there = top >= 0
    share = (own[np.maximum(top, 0)] & there).sum() / max(1, int(there.sum()))
    relevant = np.take_along_axis(cell.relevant, np.maximum(ranking.ids, 0), axis=1) & (ranking.ids >= 0)
    answered = relevant.any(axis=1)
    first = np.take_along_axis(ranking.ids, relevant.argmax(axis=1)[:, None], axis=1)[:, 0]
    chance = (cell.relevant & own).sum(axis=1) / np.maximum(1, cell.relevant.sum(axis=1))
    gain = (own[np.maximum(first, 0)][answered] - chance[answered]).mean() if answered.any() else 0.0
    return {"first 20": round(float(share - own.mean()), 4), "own first": round(float(gain), 4)}


def cached_records(path: Path, settings: Mapping[str, Any], make: Callable[[], list[Record]]) -> list[Record]:
    """The records in the file, made and kept there if it has none of these settings."""
    settings = {**settings, "records": VERSION, "depth": DEPTH, "candidates": CANDIDATES}
    return [Record(**fields) for fields in cached(path, "records", settings, lambda: [vars(r) for r in make()])]
