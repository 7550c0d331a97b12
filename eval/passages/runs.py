"""Rankings of systems on a collection, and what they are worth: a record for BM25 and one for each trained model.

Rankings are of the one pool that holds the passages of all languages, except those of the cells A>B. A cell (A, B) asks
the queries in language A for the relevant passages in language B; relevant ones in other languages, which answer the
query as well, are taken out of the ranking, while everything else in every language competes. The cell (A, any) takes
the relevant passages of all languages for what they are. The cell A>B searches the passages in B alone, as an index for
translation does; BM25 is then built from them, and asks for what languages may share (`Terms.foreign`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.data.vector_cache import VectorCache
from eval.passages.rm3 import Rm3, Rm3Settings
from eval.passages.sets import Collection, Query
from eval.passages.trec import DEPTH, measured, rankings_of, write_run
from rag_mt.base.fingerprints import read_json
from rag_mt.base.paths import whole_file
from rag_mt.base.types import Encoder, Floats
from retrievers.bm25 import Bm25, Bm25Settings
from retrievers.passage import CANDIDATES, Rankings, reciprocal_rank_fusion, weighted

ANY = "any"
BM25, RM3, DENSE, HYBRID, RRF = "BM25", "BM25 + RM3", "dense", "hybrid", "RRF"
ALPHAS = tuple(round(0.1 * n, 1) for n in range(11))
FOLDS = 5
BIAS_DEPTH = 20
VERSION = 3
"""Raise it when code changes what records hold."""


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


def cells_of(collection: Collection) -> list[list[Cell]]:
    """For each query language its cells; queries without a relevant passage in a language are not asked there."""
    of = np.array(collection.languages)
    made = []
    for code in collection.codes:
        queries = collection.asked_in(code)
        relevant = collection.relevant(queries)
        cells = []
        for wanted in dict.fromkeys(collection.languages):
            own = relevant & (of == wanted)
            rows = np.flatnonzero(own.any(axis=1))
            if len(rows):
                asked = [queries[n] for n in rows]
                cells.append(Cell(code, wanted, asked, own[rows], relevant[rows] & ~own[rows]))
                if wanted != code:
                    others = np.broadcast_to(of != wanted, own[rows].shape)
                    cells.append(Cell(code, wanted, asked, own[rows], others, alone=True))
        made.append([*cells, Cell(code, ANY, queries, relevant, np.zeros_like(relevant))])
    return made


def ranked(scores: Floats, out: NDArray[np.bool_], least: float = -np.inf, depth: int = CANDIDATES) -> Rankings:
    """The `depth` best passages of each row that score above `least` and are not `out`, equal ones by lowest number."""
    left = np.where(out, -np.inf, scores)
    depth = min(depth, left.shape[1])
    ids = np.argpartition(-left, depth - 1, axis=1)[:, :depth]
    found = np.take_along_axis(left, ids, axis=1)
    order = np.lexsort((ids, -found), axis=-1)
    ids, found = np.take_along_axis(ids, order, axis=1), np.take_along_axis(found, order, axis=1)
    there = found > least
    return Rankings(np.where(there, found, 0).astype(np.float32), np.where(there, ids, -1))


Scorer = Callable[[Sequence[Query], str], Floats]
"""The scores of all passages for all queries in one language, (queries, passages); with a language, of those that are
searched alone."""


def term_scorers(collection: Collection, settings: Bm25Settings, expansion: Rm3Settings) -> dict[str, Scorer]:
    """BM25 without and with RM3, over the whole pool, each text by the rules of its own language, or over the
    passages of one language."""
    of = np.array(collection.languages)

    @cache
    def index_of(alone: str) -> tuple[Bm25, Rm3]:
        kept = of == alone if alone else np.full(len(of), True)
        index = Bm25.build(list(compress(collection.texts, kept)), of[kept].tolist(), settings)
        return index, Rm3(index, expansion)

    def scores(queries: Sequence[Query], alone: str, with_rm3: bool) -> Floats:
        texts, source = [q.text for q in queries], queries[0].language
        index, rm3 = index_of(alone)
        asked = index.foreign_queries(texts, source, alone) if alone else index.queries(texts, source)
        found = index.scores(rm3.expand(asked) if with_rm3 else asked)
        if not alone:
            return found
        made = np.zeros((len(texts), len(of)), dtype=np.float32)
        made[:, of == alone] = found
        return made

    return {BM25: partial(scores, with_rm3=False), RM3: partial(scores, with_rm3=True)}


def dense_scorer(collection: Collection, encoder: Encoder, kept: Path, show: bool = True) -> Scorer:
    """The cosines of an encoder; the passages' vectors are kept in the folder `kept` in half precision."""
    kept_vectors = VectorCache(kept, encoder, "passage")
    vectors = kept_vectors.vectors(collection.texts, "encoding passages", show).astype(np.float32)
    known: dict[str, Floats] = {}

    def cosines(queries: Sequence[Query], alone: str) -> Floats:
        del alone
        code = queries[0].language
        if code not in known:
            known[code] = encoder.encode([q.text for q in queries], "query")
        made: Floats = known[code] @ vectors.T
        return made

    return cosines


def cross_validated(terms: Rankings, dense: Rankings, cell: Cell) -> tuple[Rankings, list[float]]:
    """The hybrid of two rankings with, for the queries of each fold, the alpha that is best on the other folds (mean
    average precision; of equals that nearest to 0.5), and the alphas. Queries on the same article are in one fold."""
    groups = {group: n for n, group in enumerate(dict.fromkeys(q.group for q in cell.queries))}
    fold = np.array([groups[q.group] % FOLDS for q in cell.queries])
    made = [weighted(terms, dense, alpha, CANDIDATES) for alpha in ALPHAS]
    names, passages = [q.id for q in cell.queries], [str(n) for n in range(cell.relevant.shape[1])]
    relevant = {
        name: {passages[n]: 1 for n in np.flatnonzero(row)} for name, row in zip(names, cell.relevant, strict=True)
    }
    worth = np.array([measured(own, names, passages, relevant, ["AP@100"])["AP@100"] for own in made])
    scores, ids, chosen = np.zeros_like(made[0].scores), np.zeros_like(made[0].ids), []
    for number in np.unique(fold).tolist():
        inside = fold == number
        others = worth[:, ~inside] if not inside.all() else worth
        means = others.mean(axis=1)
        best = min(np.flatnonzero(means >= means.max() - 1e-12).tolist(), key=lambda n: abs(ALPHAS[n] - 0.5))
        chosen.append(ALPHAS[best])
        scores[inside], ids[inside] = made[best].scores[inside], made[best].ids[inside]
    return Rankings(scores, ids), chosen


@dataclass(frozen=True)
class Record:
    """What one system reached: for each cell the measures of each query, for each query language its bias, and the
    alphas of its cells."""

    system: str
    values: Mapping[str, Mapping[str, Sequence[float]]]
    bias: Mapping[str, Mapping[str, float]]
    alphas: Mapping[str, Sequence[float]]

    def mean(self, cell: str, measure: str) -> float:
        """The mean of a measure over the queries of a cell."""
        return float(np.mean(self.values[cell][measure]))


def evaluated(
    collection: Collection, scorers: Mapping[str, Scorer], terms: Scorer | None, runs: Path | None, label: str
) -> list[Record]:
    """A record for each scorer; with the scores of `terms` (BM25) also those of its hybrid and of RRF with the scorer
    named `dense`. Run files of the cells (A, any) go to the folder `runs`, if there is one."""
    names = [*scorers, *([HYBRID, RRF] if terms is not None else [])]
    found = {name: Record(name, {}, {}, {}) for name in names}
    for cells in cells_of(collection):
        queries = cells[-1].queries
        row_of = {query.id: n for n, query in enumerate(queries)}
        pooled = _scores(scorers, terms, queries, "")
        for cell in cells:
            scores, shared = _scores(scorers, terms, queries, cell.wanted) if cell.alone else pooled
            rows = [row_of[query.id] for query in cell.queries]
            rankings, alphas = _rankings(cell, scores, shared, rows)
            for name, ranking in rankings.items():
                own = measured(ranking, [q.id for q in cell.queries], collection.ids, _judged(cell, collection))
                found[name] = _with(found[name], cell, own, alphas if name == HYBRID else [])
                if cell.wanted == ANY:
                    bias = {**found[name].bias, cell.asked: _bias(ranking, cell, collection)}
                    found[name] = replace(found[name], bias=bias)
                    if runs is not None:
                        place = runs / f"{label}.{name.replace(' ', '')}.{cell.asked}.run"
                        write_run(place, name.replace(" ", ""), ranking, [q.id for q in cell.queries], collection.ids)
    return list(found.values())


def _scores(
    scorers: Mapping[str, Scorer], terms: Scorer | None, queries: Sequence[Query], alone: str
) -> tuple[dict[str, Floats], Floats | None]:
    own = {name: scorer(queries, alone) for name, scorer in scorers.items()}
    return own, None if terms is None else terms(queries, alone)


def _rankings(
    cell: Cell, scores: Mapping[str, Floats], shared: Floats | None, rows: Sequence[int]
) -> tuple[dict[str, Rankings], list[float]]:
    least = {BM25: 0.0, RM3: 0.0}
    made = {name: ranked(own[rows], cell.out, least.get(name, -np.inf)) for name, own in scores.items()}
    if shared is None:
        return made, []
    terms = ranked(shared[rows], cell.out, 0.0)
    made[HYBRID], alphas = cross_validated(terms, made[DENSE], cell)
    made[RRF] = reciprocal_rank_fusion([terms, made[DENSE]], CANDIDATES)
    return made, alphas


def _judged(cell: Cell, collection: Collection) -> dict[str, dict[str, int]]:
    """The judgements of the cell's queries, without those of passages that are out."""
    of = dict(zip(collection.ids, collection.languages, strict=True))
    return {
        query.id: {p: g for p, g in collection.qrels[query.id].items() if cell.wanted in (ANY, of[p])}
        for query in cell.queries
    }


def _with(record: Record, cell: Cell, values: Mapping[str, Sequence[float]], alphas: Sequence[float]) -> Record:
    chosen = {**record.alphas, cell.name: list(alphas)} if alphas else record.alphas
    return replace(record, values={**record.values, cell.name: values}, alphas=chosen)


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


def kept_records(path: Path, settings: Mapping[str, Any], make: Callable[[], list[Record]]) -> list[Record]:
    """The records in the file, made and kept there if it has none of these settings."""
    settings = json.loads(json.dumps({**settings, "records": VERSION, "depth": DEPTH, "candidates": CANDIDATES}))
    if path.is_file():
        found = read_json(path)
        if found["settings"] == settings:
            return [Record(**record) for record in found["records"]]
    made = make()
    with whole_file(path) as part:
        part.write_text(json.dumps({"settings": settings, "records": [vars(r) for r in made]}), encoding="utf-8")
    return made


def of_run(collection: Collection, run: Mapping[str, Mapping[str, float]]) -> Record:
    """What a run in TREC's format reached: passages that are out of a cell are taken out of it. It ranks the whole
    pool, and is not asked what it finds among the passages of another language alone."""
    record = Record("run", {}, {}, {})
    for cells in cells_of(collection):
        for cell in (own for own in cells if not own.alone):
            names = [query.id for query in cell.queries]
            left = {
                name: {p: s for p, s in run.get(name, {}).items() if p not in lost}
                for name, lost in zip(names, _out(cell, collection), strict=True)
            }
            ranking = rankings_of(left, names, collection.ids)
            own = measured(ranking, names, collection.ids, _judged(cell, collection))
            record = _with(record, cell, own, [])
            if cell.wanted == ANY:
                record = replace(record, bias={**record.bias, cell.asked: _bias(ranking, cell, collection)})
    return record


def _out(cell: Cell, collection: Collection) -> list[set[str]]:
    return [{collection.ids[n] for n in np.flatnonzero(row).tolist()} for row in cell.out]
