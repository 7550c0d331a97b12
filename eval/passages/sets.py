"""What passage retrieval is measured on: passages of several languages in one pool, queries, and what answers them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.data.xquad import LANGUAGES, Part, read_xquad
from eval.passages.trec import Qrels, read_qrels, strict_lines
from rag_mt.base.console import note, progress
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import read_json, settings_hash
from rag_mt.base.languages import language
from rag_mt.base.paths import whole_file
from rag_mt.base.types import Skips
from rag_mt.formats.document_runs import document_runs, passages
from retrievers.calibration import SAMPLE_CORPUS

SAMPLE_LINES = 4
LEAST_WORDS = 30
"""Words of a distractor: shorter passages are the ends of documents."""


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
        return settings_hash(
            [self.name, self.ids, self.texts, self.languages, [asdict(q) for q in self.queries], self.qrels]
        )

    def asked_in(self, code: str) -> list[Query]:
        """The queries in a language."""
        return [query for query in self.queries if query.language == code]

    def relevant(self, queries: Sequence[Query]) -> NDArray[np.bool_]:
        """Which passages are relevant to the queries, (queries, passages)."""
        position = {passage: n for n, passage in enumerate(self.ids)}
        made = np.zeros((len(queries), len(self.ids)), dtype=bool)
        for row, query in enumerate(queries):
            made[row, [position[p] for p, grade in self.qrels.get(query.id, {}).items() if grade > 0]] = True
        return made

    def counts(self) -> dict[str, int]:
        """Passages of each language."""
        return {code: self.languages.count(code) for code in dict.fromkeys(self.languages)}


def xquad_collection(data: Path, part: Part, distractors: int, show: bool = True) -> Collection:
    """The questions on the passages of one part of XQuAD, the passages of all parts in all languages, and as many
    passages of the training data's documents in each language as there are up to `distractors`."""
    whole = read_xquad(data)
    asked = whole.part(part).questions
    ids, texts, languages = [], [], []
    for code in LANGUAGES:
        for key, text in whole.passages[code].items():
            ids.append(f"{code}-{key}")
            texts.append(text)
            languages.append(code)
    queries, qrels = [], {}
    for code in LANGUAGES:
        for question in asked[code]:
            queries.append(Query(f"{code}-{question.id}", question.text, code, str(int(question.passage) // 5)))
            qrels[queries[-1].id] = {f"{other}-{question.passage}": 1 for other in LANGUAGES}
    for code, found in _documents(data, distractors, show).items():
        for number, text in enumerate(found):
            ids.append(f"{code}-train-{number}")
            texts.append(text)
            languages.append(code)
    return Collection(f"xquad-{part}", ids, texts, languages, queries, qrels)


def sample_collection() -> Collection:
    """The lines of the sample corpus, which are parallel, in runs of four: the first one asks for the other three."""
    ids, texts, languages, queries = list[str](), list[str](), list[str](), list[Query]()
    for code in LANGUAGES:
        lines = (SAMPLE_CORPUS / f"{code}.txt").read_text(encoding="utf-8").splitlines()
        for number, begin in enumerate(range(0, len(lines) - SAMPLE_LINES + 1, SAMPLE_LINES)):
            first, *rest = lines[begin : begin + SAMPLE_LINES]
            queries.append(Query(f"{code}-{number}", first, code, str(number)))
            ids.append(f"{code}-{number}")
            texts.append(" ".join(rest))
            languages.append(code)
    qrels = {q.id: {f"{code}-{q.group}": 1 for code in LANGUAGES} for q in queries}
    return Collection("sample", ids, texts, languages, queries, qrels)


def _documents(data: Path, limit: int, show: bool) -> dict[str, list[str]]:
    """Passages of the documents in `train/`, for each language those of most even distance in their file."""
    if not limit:
        return {}
    found: dict[str, list[str]] = {code: [] for code in LANGUAGES}
    others = [code for code in LANGUAGES if code != "en"]
    with closing(progress(len(others), "files", "reading documents", show=show)) as bar:
        for code in others:
            path = data / "train" / f"{code}-en.tsv.xz"
            if not path.is_file():
                raise UserError(f"there is no {path} to take further passages from: give --distractors 0 to do without")
            for documents in document_runs(path, code, Skips(shown=0)):
                for side in documents:
                    found[side.language] += [s.text for s in passages(side) if len(s.text.split()) >= LEAST_WORDS]
            bar.update()
    return {code: _spread(list(dict.fromkeys(own)), limit) for code, own in found.items()}


def _spread(items: Sequence[str], limit: int) -> list[str]:
    if len(items) <= limit:
        return list(items)
    return [items[n] for n in np.linspace(0, len(items) - 1, limit).astype(int).tolist()]


def kept_collection(
    path: Path, settings: Mapping[str, Any], data: Path, part: Part, distractors: int, show: bool
) -> Collection:
    """`xquad_collection`, read from `path` if it was kept there with the same settings."""
    if path.is_file():
        found = read_json(path)
        if found["settings"] == settings:
            own = found["collection"]
            return Collection(**{**own, "queries": [Query(**query) for query in own["queries"]]})
    made = xquad_collection(data, part, distractors, show)
    with whole_file(path) as part_file:
        contents = {"settings": settings, "collection": asdict(made)}
        part_file.write_text(json.dumps(contents, ensure_ascii=False), encoding="utf-8")
    return made


def own_collection(passages_file: Path, queries_file: Path, qrels_file: Path, default: str) -> Collection:
    """A collection of the user's: passages and queries as TSV (id, text and, if you like, language, else `default`) and
    judgements in TREC's format.

    Queries without a relevant passage are left out. Raises UserError for files of another form, and if none is left.
    """
    found, asked = _table(passages_file, default), _table(queries_file, default)
    qrels = read_qrels(qrels_file)
    known = {row[0] for row in found}
    for query, own in qrels.items():
        if lost := next((p for p in own if p not in known), None):
            raise UserError(f"{qrels_file} judges the passage {lost!r} of query {query!r}, which {passages_file} lacks")
    queries = [Query(*row, group=row[0]) for row in asked if any(g > 0 for g in qrels.get(row[0], {}).values())]
    if queries and len(queries) < len(asked):
        note(
            f"{len(asked) - len(queries)} of {len(asked)} queries of {queries_file} have no relevant passage: left out"
        )
    if not queries:
        raise UserError(
            f"no query of {queries_file} has a relevant passage in {qrels_file}: expected the same ids in both"
        )
    ids, texts, languages = zip(*found, strict=True)
    return Collection(passages_file.stem, ids, texts, languages, queries, {q.id: qrels[q.id] for q in queries})


def _table(path: Path, default: str) -> list[tuple[str, str, str]]:
    made = []
    for number, line in strict_lines(path, "id, text and language, divided by tabs"):
        key, text, code, *rest = [*line.split("\t"), "", "", ""][:4]
        if not key or not text or any(rest):
            raise UserError(f"{path}:{number} is no row of id, text and, if you like, language, divided by tabs")
        made.append((key, text, language(code).code if code else default))
    counted = Counter(key for key, _, _ in made)
    if twice := next((key for key, count in counted.items() if count > 1), None):
        raise UserError(f"{path} has the id {twice!r} twice: ids must differ")
    return made
