"""An index in Qdrant, searched as one of our folders is: the same numbers, scores and hits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rag_mt.base.types import Floats
from retrievers.index.manifest import Manifest, damaged
from retrievers.index.places import FILES, SENTENCES, UNITS, package_of
from retrievers.index.qdrant.place import asked, connected, place_of
from retrievers.index.qdrant.points import SENTENCE, VECTOR
from retrievers.index.stored import Found, Numbers, StoredIndex, TextRow

POINTS_AT_ONCE = 4096
"""Points with vectors that an answer has."""
Row = tuple[int, int, int, int, int]
"""Position of a query, number of a unit, and its place."""


def open_stored(folder: Path, manifest: Manifest) -> QdrantIndex:
    """The index with that manifest; raises UserError if it does not have what the manifest says."""
    index = QdrantIndex(folder, manifest, connected(folder))
    expected = manifest.units + manifest.sentences + int(manifest.files[FILES]["pieces"]) + 1
    points = index.ask("count", exact=True).count
    if points != expected:
        raise damaged(folder, f"its collection has {points} points, not {expected}")
    return index


class QdrantIndex(StoredIndex):
    """Units of target-language text in a collection of Qdrant."""

    def __init__(self, folder: Path, manifest: Manifest, client: Any) -> None:
        super().__init__(folder, manifest)
        self._client, self._models = client, package_of(folder).models
        self._collection, self._local = str(manifest.files[UNITS]["collection"]), place_of(folder).local

    def ask(self, verb: str, **options: Any) -> Any:
        """The answer to a request about the collection."""
        return asked(self.folder, lambda: getattr(self._client, verb)(self._collection, **options))

    def _of_sentences(self, numbers: Sequence[int]) -> Any:
        """The condition that is true of units of these sentences."""
        return self._models.FieldCondition(key="sentence", match=self._models.MatchAny(any=list(numbers)))

    @cached_property
    def _condition(self) -> Any:
        """The condition that is true of units of the sentences of the selection."""
        assert self.selection is not None
        condition, range_of = self._models.FieldCondition, self._models.Range
        runs = [condition(key="sentence", range=range_of(gte=a, lt=b)) for a, b in self.selection.runs.tolist()]
        return self._models.Filter(should=runs)

    def _count_units(self) -> int:
        return int(self.ask("count", count_filter=self._condition, exact=True).count)

    def _selected_units(self) -> Numbers:
        return np.array(self._ids(self._condition), np.int64)

    def _ids(self, condition: Any) -> list[int]:
        """The ids of the points that a condition is true of."""
        options = {"scroll_filter": self._models.Filter(must=[condition]), "with_payload": False}
        ids, offset = list[int](), None
        while True:
            points, offset = self.ask("scroll", limit=POINTS_AT_ONCE, offset=offset, **options)
            ids += [point.id for point in points]
            if offset is None:
                return ids

    def _found(self, queries: Floats, depth: int, without: Sequence[int], probes: int | None) -> Found:
        models, rows, vectors = self._models, list[Row](), [np.zeros((0, self.manifest.dimension), np.float32)]
        options: dict[str, Any] = {"using": VECTOR, "limit": depth, "with_payload": True, "with_vector": True}
        left_out = [self._of_sentences(without)] if without else None
        if self.selection is not None or left_out:
            chosen = None if self.selection is None else [self._condition]
            options["filter"] = models.Filter(must=chosen, must_not=left_out)
        if not self._local:
            quantised = models.QuantizationSearchParams(ignore=probes is None, rescore=True)
            options["params"] = models.SearchParams(exact=probes is None, hnsw_ef=probes, quantization=quantised)
        at_once = max(1, POINTS_AT_ONCE // depth)
        for begin in range(0, len(queries), at_once):
            part = queries[begin : begin + at_once].tolist()
            requests = [models.QueryRequest(query=query, **options) for query in part]
            answers = self.ask("query_batch_points", requests=requests)
            points = [(n, point) for n, answer in enumerate(answers, begin) for point in answer.points]
            rows += [(n, point.id, *_place(point.payload)) for n, point in points]
            vectors.append(self._matrix([point for _, point in points]))
        table = np.array(rows, np.int64).reshape(-1, 5)
        return Found(table[:, 0], table[:, 1], table[:, 2:], np.concatenate(vectors))

    def _matrix(self, points: Sequence[Any]) -> Floats:
        """The vectors of points as float32 (points, dimension)."""
        return np.array([point.vector[VECTOR] for point in points], np.float32).reshape(-1, self.manifest.dimension)

    def _read(
        self, numbers: Numbers, first: int = 0, vectors: bool = False, payload: Sequence[str] = ()
    ) -> Iterable[list[Any]]:
        """Points by number, in their order, POINTS_AT_ONCE at a time, with their vectors or else what they hold, of
        which `payload` may name some; their ids begin with `first`."""
        for begin in range(0, len(numbers), POINTS_AT_ONCE):
            ids = (numbers[begin : begin + POINTS_AT_ONCE] + first).tolist()
            answer = self.ask("retrieve", ids=ids, with_payload=list(payload) or not vectors, with_vectors=vectors)
            points = {point.id: point for point in answer}
            if points.keys() != set(ids):
                raise damaged(self.folder, f"of {len(ids)} points {len(points)} are there")
            yield [points[id] for id in ids]

    def _read_vectors(self, units: Numbers) -> Floats:
        return np.concatenate([self._matrix(points) for points in self._read(units, vectors=True)])

    def _read_places(self, units: Numbers) -> Numbers:
        return np.array([_place(point.payload) for points in self._read(units) for point in points], np.int64)

    def _read_texts(self, sentences: Numbers) -> Iterable[TextRow]:
        for points in self._read(sentences, SENTENCE):
            for point in points:
                row = point.payload
                fields = row["text"], row["file"], row["line"], row["start"], row.get("original", "")
                yield point.id - SENTENCE, *fields

    def units_of(self, sentence: int) -> tuple[int, int]:
        """First (inclusive) and last (exclusive) unit of a sentence."""
        units = self._ids(self._of_sentences([sentence]))
        return (min(units), max(units) + 1) if units else (0, 0)

    @cached_property
    def has_originals(self) -> bool:
        """Whether it is known of any of the sentences that are searched what it translates."""
        known = bool(self.manifest.files[SENTENCES]["originals"])
        if self.selection is None or not known:
            return known
        models, files = self._models, list(self.selection.files)
        of_them = models.FieldCondition(key="file", match=models.MatchAny(any=files))
        empty = models.IsEmptyCondition(is_empty=models.PayloadField(key="original"))
        return bool(self.ask("count", count_filter=models.Filter(must=[of_them], must_not=[empty]), exact=True).count)

    def file_column(self) -> pa.ChunkedArray:
        """The file of each sentence, by number."""
        points = self._read(np.arange(self.manifest.sentences), SENTENCE, payload=["file"])
        return pa.chunked_array([pa.array([point.payload["file"] for part in points for point in part], pa.string())])

    @property
    def sentences(self) -> pa.Table:
        """The sentences by number, with the columns of the manifest's `schema`: all of them, read into memory."""
        names = ["number", "text", "file", "line", "start", "original"]
        columns = zip(*self._read_texts(np.arange(self.manifest.sentences)), strict=True)
        table = pa.table(dict(zip(names, map(list, columns), strict=True)))
        return table.select(self.manifest.schema.names).cast(self.manifest.schema)


def _place(payload: dict[str, int]) -> tuple[int, int, int]:
    """Sentence number, start and end of a unit."""
    return payload["sentence"], payload["start"], payload["end"]
