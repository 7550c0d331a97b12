"""Runs and relevance judgements in TREC's text formats, and the measures of a ranking by the library ir-measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rag_mt.base.errors import UserError
from rag_mt.base.paths import whole_file
from rag_mt.base.types import Skips
from rag_mt.formats.opening import read_lines
from retrievers.passage import Rankings

MOST_CHARS = 1_000_000
"""Of a line: a whole document may stand in it."""
DEPTH = 100
"""Passages of a ranking that are measured."""

MEASURES = {"MRR@100": "RR@100", "Recall@100": "R@100", "AP@100": "AP@100", "P@20": "P@20", "nDCG@20": "nDCG@20"}
"""The library's name of each measure."""

Qrels = Mapping[str, Mapping[str, int]]
"""The grade of each judged passage by query: 0 is not relevant."""


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
    own = {query: dict(qrels[query]) for query in queries}
    row_of = {query: n for n, query in enumerate(queries)}
    values = {name: np.zeros(len(queries)) for name in measures}
    library = measures_library()
    names = {library.parse_measure(MEASURES[name]): name for name in measures}
    for found in library.iter_calc(list(names), own, run):
        values[names[found.measure]][row_of[found.query_id]] = found.value
    return {name: made.round(6).tolist() for name, made in values.items()}


def write_run(path: Path, name: str, rankings: Rankings, queries: Sequence[str], passages: Sequence[str]) -> None:
    """A run of the first 100 passages: `query Q0 passage rank score name`."""
    with whole_file(path) as part, part.open("w", encoding="utf-8") as file:
        for query, row, scores in zip(queries, rankings.ids.tolist(), rankings.scores.tolist(), strict=True):
            for rank, (number, score) in enumerate(zip(row[:DEPTH], scores[:DEPTH], strict=True), 1):
                if number >= 0:
                    file.write(f"{query} Q0 {passages[number]} {rank} {score:.6f} {name}\n")


def write_qrels(path: Path, qrels: Qrels) -> None:
    """Judgements: `query 0 passage grade`."""
    with whole_file(path) as part, part.open("w", encoding="utf-8") as file:
        for query, own in qrels.items():
            file.writelines(f"{query} 0 {passage} {grade}\n" for passage, grade in own.items())


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """The judgements in a file: query, a column that nobody reads, passage, grade; UserError for another form."""
    made: dict[str, dict[str, int]] = {}
    for number, row in _rows(path, 4, "query 0 passage grade"):
        try:
            made.setdefault(row[0], {})[row[2]] = int(row[3])
        except ValueError:
            raise UserError(f"{path}:{number} has the grade {row[3]!r}: expected a whole number") from None
    return made


def read_run(path: Path) -> dict[str, dict[str, float]]:
    """The scores of the passages of each query in a run file; raises UserError for another form."""
    made: dict[str, dict[str, float]] = {}
    for number, row in _rows(path, 6, "query Q0 passage rank score name"):
        try:
            made.setdefault(row[0], {})[row[2]] = float(row[4])
        except ValueError:
            raise UserError(f"{path}:{number} has the score {row[4]!r}: expected a number") from None
    return made


def rankings_of(run: Mapping[str, Mapping[str, float]], queries: Sequence[str], passages: Sequence[str]) -> Rankings:
    """The run as rankings of positions in `passages`, best score first, equal ones by lowest position.

    Raises UserError for a passage that is not there.
    """
    position = {passage: n for n, passage in enumerate(passages)}
    depth = max(1, *(len(run.get(query, {})) for query in queries))
    scores = np.zeros((len(queries), depth), dtype=np.float32)
    ids = np.full((len(queries), depth), -1, dtype=np.int64)
    for row, query in enumerate(queries):
        own = run.get(query, {})
        if unknown := next((passage for passage in own if passage not in position), None):
            raise UserError(f"the run names the passage {unknown!r}, which is not among the {len(passages)} passages")
        best = sorted(((-score, position[passage]) for passage, score in own.items()))
        ids[row, : len(best)] = [n for _, n in best]
        scores[row, : len(best)] = [-score for score, _ in best]
    return Rankings(scores, ids)


def strict_lines(path: Path, form: str) -> list[tuple[int, str]]:
    """The lines of a file of judgements or texts with their numbers; raises UserError where it is not there, and for a
    line that cannot be read, since what is measured would change without it."""
    if not path.is_file():
        raise UserError(f"there is no file {path}: expected lines of {form}")
    made = []
    for line in read_lines(path, Skips(shown=0), MOST_CHARS):
        if line.text is None:
            raise UserError(f"{path}:{line.number} cannot be read: expected UTF-8 without control characters")
        made.append((line.number, line.text))
    return made


def _rows(path: Path, columns: int, form: str) -> list[tuple[int, list[str]]]:
    rows = [(n, line.split()) for n, line in strict_lines(path, f"`{form}`") if line.strip()]
    for number, row in rows:
        if len(row) != columns:
            raise UserError(f"{path}:{number} has {len(row)} columns: expected `{form}`")
    return rows
