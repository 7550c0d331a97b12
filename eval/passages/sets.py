"""What passage retrieval is measured on: passages of several languages in one pool, queries, and what answers them.

Judgements and runs are read and written in TREC's text formats.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.data.suites import sample_lines
from eval.data.xquad import LANGUAGES, Part, read_xquad
from rag_mt.base.console import note, progress
from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json, settings_hash, whole_file, write_whole
from rag_mt.base.languages import language
from rag_mt.base.types import Skips
from rag_mt.formats.document_runs import document_runs, passages
from rag_mt.formats.opening import read_lines
from retrievers.passage import Rankings

MOST_CHARS = 1_000_000
"""Of a line: a whole document may stand in it."""
DEPTH = 100
"""Passages of a ranking that are measured and written."""
SAMPLE_LINES = 4
LEAST_WORDS = 30
"""Words of a distractor: shorter passages are the ends of documents."""

Qrels = Mapping[str, Mapping[str, int]]
"""The grade of each judged passage by query: 0 is not relevant."""


@dataclass(frozen=True)
class Query:
    """A query; `group` is what must not be divided between folds (the article that its passage is of)."""

    id: str
    text: str
    language: str
    group: str


@dataclass(frozen=True)
class Collection:
    """`ids`, `texts` and `languages` of the passages of one pool, the queries, and the grades of passages for each."""

    name: str
    ids: Sequence[str]
    texts: Sequence[str]
    languages: Sequence[str]
    queries: Sequence[Query]
    qrels: Qrels

    @property
    def codes(self) -> list[str]:
        """The languages of the queries, in their order."""
        return list(dict.fromkeys(query.language for query in self.queries))

    @property
    def fingerprint(self) -> str:
        """A hash of all that is in it."""
        return settings_hash(list(asdict(self).values()))

    def asked_in(self, code: str) -> list[Query]:
        """The queries in a language."""
        return [query for query in self.queries if query.language == code]

    def relevant(self, queries: Sequence[Query]) -> NDArray[np.bool_]:
        """Which passages are relevant to the queries, (queries, passages)."""
        position = {passage: n for n, passage in enumerate(self.ids)}
        relevant = np.zeros((len(queries), len(self.ids)), dtype=bool)
        for row, query in enumerate(queries):
            relevant[row, [position[p] for p, grade in self.qrels.get(query.id, {}).items() if grade > 0]] = True
        return relevant

    def counts(self) -> dict[str, int]:
        """Passages of each language."""
        return dict(Counter(self.languages))


def xquad_collection(data: Path, part: Part, distractors: int, show: bool = True) -> Collection:
    """The questions on the passages of one part of XQuAD, the passages of all parts in all languages, and up to
    `distractors` passages of the training data's documents in each language."""
    xquad = read_xquad(data)
    questions = xquad.part(part).questions
    rows = [(f"{code}-{key}", text, code) for code in LANGUAGES for key, text in xquad.passages[code].items()]
    documents = _documents(data, distractors, show)
    rows += [(f"{code}-train-{n}", text, code) for code, texts in documents.items() for n, text in enumerate(texts)]
    queries, qrels = [], {}
    for code in LANGUAGES:
        for question in questions[code]:
            queries.append(Query(f"{code}-{question.id}", question.text, code, str(int(question.passage) // 5)))
            qrels[queries[-1].id] = {f"{other}-{question.passage}": 1 for other in LANGUAGES}
    ids, texts, languages = zip(*rows, strict=True)
    return Collection(f"xquad-{part}", ids, texts, languages, queries, qrels)


def sample_collection() -> Collection:
    """The lines of the sample corpus, which are parallel, in runs of four: the first one asks for the other three."""
    rows, queries = [], []
    for code in LANGUAGES:
        lines = sample_lines(code)
        for number, begin in enumerate(range(0, len(lines) - SAMPLE_LINES + 1, SAMPLE_LINES)):
            first, *rest = lines[begin : begin + SAMPLE_LINES]
            queries.append(Query(f"{code}-{number}", first, code, str(number)))
            rows.append((f"{code}-{number}", " ".join(rest), code))
    ids, texts, languages = zip(*rows, strict=True)
    qrels = {q.id: {f"{code}-{q.group}": 1 for code in LANGUAGES} for q in queries}
    return Collection("sample", ids, texts, languages, queries, qrels)


def _documents(data: Path, limit: int, show: bool) -> dict[str, list[str]]:
    """For each language at most `limit` passages of the documents in `train/`, evenly spread over all of them."""
    if not limit:
        return {}
    texts: dict[str, dict[str, None]] = {code: {} for code in LANGUAGES}
    others = [code for code in LANGUAGES if code != "en"]
    with closing(progress(len(others), "files", "reading documents", show=show)) as bar:
        for code in others:
            path = data / "train" / f"{code}-en.tsv.xz"
            if not path.is_file():
                raise UserError(f"there is no {path} to take further passages from: give --distractors 0 to do without")
            for documents in document_runs(path, code, Skips(shown=0)):
                for side in documents:
                    long = (s.text for s in passages(side) if len(s.text.split()) >= LEAST_WORDS)
                    texts[side.language] |= dict.fromkeys(long)
            bar.update()
    spread = {}
    for code, different in texts.items():
        every = list(different)
        spread[code] = [every[int(n)] for n in np.linspace(0, len(every) - 1, min(limit, len(every)))]
    return spread


def cached(path: Path, key: str, settings: Mapping[str, Any], make: Callable[[], Any]) -> Any:
    """What the JSON file has under `key`; made and written anew if the file is not there or has other settings."""
    settings = json.loads(json.dumps(settings))
    if path.is_file() and (contents := read_json(path))["settings"] == settings:
        return contents[key]
    contents = {"settings": settings, key: make()}
    write_whole(path, json.dumps(contents, ensure_ascii=False))
    return contents[key]


def cached_collection(
    path: Path, settings: Mapping[str, Any], data: Path, part: Part, distractors: int, show: bool
) -> Collection:
    """`xquad_collection`, read from `path` if it was kept there with the same settings."""
    fields = cached(path, "collection", settings, lambda: asdict(xquad_collection(data, part, distractors, show)))
    return Collection(**{**fields, "queries": [Query(**query) for query in fields["queries"]]})


def own_collection(passages_file: Path, queries_file: Path, qrels_file: Path, default: str) -> Collection:
    """A collection of the user's: passages and queries as TSV (id, text and, if you like, language, else `default`) and
    judgements in TREC's format.

    Queries without a relevant passage are left out. Raises UserError for files of another form, and if none is left.
    """
    rows, asked = _table(passages_file, default), _table(queries_file, default)
    qrels = read_qrels(qrels_file)
    known = {row[0] for row in rows}
    for query, grades in qrels.items():
        if lost := next((p for p in grades if p not in known), None):
            raise UserError(f"{qrels_file} judges the passage {lost!r} of query {query!r}, which {passages_file} lacks")
    queries = [Query(*row, group=row[0]) for row in asked if any(g > 0 for g in qrels.get(row[0], {}).values())]
    if not queries:
        raise UserError(
            f"no query of {queries_file} has a relevant passage in {qrels_file}: expected the same ids in both"
        )
    if left_out := len(asked) - len(queries):
        note(f"{left_out} of {len(asked)} queries of {queries_file} have no relevant passage: left out")
    ids, texts, languages = zip(*rows, strict=True)
    return Collection(passages_file.stem, ids, texts, languages, queries, {q.id: qrels[q.id] for q in queries})


def _table(path: Path, default: str) -> list[tuple[str, str, str]]:
    rows: dict[str, tuple[str, str, str]] = {}
    for number, line in _lines(path, "id, text and language, divided by tabs"):
        key, text, code, *rest = [*line.split("\t"), "", "", ""][:4]
        if not key or not text or any(rest):
            raise UserError(f"{path}:{number} is no row of id, text and, if you like, language, divided by tabs")
        if key in rows:
            raise UserError(f"{path} has the id {key!r} twice: ids must differ")
        rows[key] = (key, text, language(code).code if code else default)
    return list(rows.values())


def _lines(path: Path, form: str) -> Iterator[tuple[int, str]]:
    """The numbered lines of a file; UserError for one that cannot be read: scores would change without it."""
    if not path.is_file():
        raise UserError(f"there is no file {path}: expected lines of {form}")
    for line in read_lines(path, Skips(shown=0), MOST_CHARS):
        if line.text is None:
            raise UserError(f"{path}:{line.number} cannot be read: expected UTF-8 without control characters")
        yield line.number, line.text


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """The grades of passages by query in a file of judgements; raises UserError for another form."""
    return _by_query(path, "query 0 passage grade", "grade", int)


def read_run(path: Path) -> dict[str, dict[str, float]]:
    """The scores of passages by query in a run file; raises UserError for another form."""
    return _by_query(path, "query Q0 passage rank score name", "score", float)


def _by_query(path: Path, form: str, column: str, number: Callable[[str], Any]) -> dict[str, dict[str, Any]]:
    columns = form.split()
    values: dict[str, dict[str, Any]] = {}
    for line, text in _lines(path, f"`{form}`"):
        row = text.split()
        if len(row) not in (0, len(columns)):
            raise UserError(f"{path}:{line} has {len(row)} columns: expected `{form}`")
        if not row:
            continue
        value = row[columns.index(column)]
        try:
            values.setdefault(row[0], {})[row[2]] = number(value)
        except ValueError:
            expected = "a whole number" if number is int else "a number"
            raise UserError(f"{path}:{line} has the {column} {value!r}: expected {expected}") from None
    return values


def write_qrels(path: Path, qrels: Qrels) -> None:
    """Judgements: `query 0 passage grade`."""
    with whole_file(path) as part, part.open("w", encoding="utf-8") as file:
        for query, grades in qrels.items():
            file.writelines(f"{query} 0 {passage} {grade}\n" for passage, grade in grades.items())


def write_run(path: Path, name: str, rankings: Rankings, queries: Sequence[str], passages: Sequence[str]) -> None:
    """A run of the first 100 passages: `query Q0 passage rank score name`."""
    with whole_file(path) as part, part.open("w", encoding="utf-8") as file:
        for query, row, scores in zip(queries, rankings.ids.tolist(), rankings.scores.tolist(), strict=True):
            for rank, (number, score) in enumerate(zip(row[:DEPTH], scores[:DEPTH], strict=True), 1):
                if number >= 0:
                    file.write(f"{query} Q0 {passages[number]} {rank} {score:.6f} {name}\n")
