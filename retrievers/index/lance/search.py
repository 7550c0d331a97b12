"""An index in LanceDB, searched as one of our folders is: the same numbers, scores and hits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_mt.base.types import Floats
from retrievers.index.lance.numbering import Ids, Numbering, condition
from retrievers.index.lance.place import connected
from retrievers.index.lance.tables import SENTENCE_SCHEMA, at_version
from retrievers.index.manifest import Manifest, damaged
from retrievers.index.places import SENTENCES, UNITS, in_time, store_errors
from retrievers.index.stored import MORE, Found, Numbers, StoredIndex, TextRow

SQ_BITS, FEW = 8, 2
"""Bits of each number in lists, and in smaller ones."""
MORE_OF_FEW = 64
"""Units beyond those that are asked for whose vectors are compared, where lists have FEW bits a number."""
ROWS_AT_ONCE = 4096
"""Rows that are read by their ids at once."""
_PLACE = ["sentence", "start", "end"]


def open_stored(folder: Path, manifest: Manifest) -> LanceIndex:
    """The index of these versions of the tables; raises UserError if they do not have what the manifest says."""
    with store_errors(folder):
        return in_time(lambda: _opened(folder, manifest))


def _opened(folder: Path, manifest: Manifest) -> LanceIndex:
    database = connected(folder)
    tables = [at_version(folder, database, manifest, name) for name in (UNITS, SENTENCES)]
    index = LanceIndex(folder, manifest, *tables)
    counts = {UNITS: (len(index.unit_ids), manifest.units), SENTENCES: (len(index.sentence_ids), manifest.sentences)}
    for table, (name, (numbered, expected)) in zip(tables, counts.items(), strict=True):
        with store_errors(folder):
            rows = table.count_rows()
        if not rows == numbered == expected:
            raise damaged(folder, f"the table {name!r} has {rows} rows, not {expected}")
    return index


class LanceIndex(StoredIndex):
    """Units of target-language text in tables of LanceDB."""

    def __init__(self, folder: Path, manifest: Manifest, units: Any, sentences: Any) -> None:
        super().__init__(folder, manifest)
        self.unit_ids, self.sentence_ids = (Numbering(manifest.files[name]["numbers"]) for name in (UNITS, SENTENCES))
        self._units, self._rows = units, sentences

    @property
    def _more(self) -> int:
        return MORE_OF_FEW if self.manifest.files[UNITS].get("bits") == FEW else MORE

    def _found(self, queries: Floats, depth: int, without: Sequence[int], probes: int | None) -> Found:
        with store_errors(self.folder):
            query = self._units.search(list(queries)).distance_type("dot").limit(depth)
            conditions = [f"({self._condition})"] if self._condition else []
            if without:
                conditions.append(f"NOT ({condition('sentence', self.sentence_ids.ids(np.array(without)))})")
            if conditions:
                query = query.where(" AND ".join(conditions), prefilter=True)
            if self.manifest.ivf is not None:
                query = query.bypass_vector_index() if probes is None else query.nprobes(probes)
            query = query.select(["unit", *_PLACE, "vector", "_distance"])
            rows = in_time(query.to_arrow).combine_chunks()
        alone = "query_index" not in rows.column_names
        asked = np.zeros(len(rows), np.int64) if alone else rows.column("query_index").to_numpy().astype(np.int64)
        units = self.unit_ids.numbers(rows.column("unit").to_numpy())
        return Found(asked, units, self._places_in(rows), _matrix(rows.column("vector"), self.manifest.dimension))

    @cached_property
    def _condition(self) -> str:
        """The SQL that is true of rows of the sentences of the selection, empty without one."""
        if self.selection is None:
            return ""
        return condition("sentence", self.sentence_ids.ids(self.selection.sentences))

    def _count_units(self) -> int:
        with store_errors(self.folder):
            return int(in_time(lambda: self._units.count_rows(self._condition)))

    def _selected_units(self) -> Numbers:
        with store_errors(self.folder):
            query = self._units.search().where(self._condition).select(["unit"]).limit(None)
            rows = in_time(query.to_arrow)
        return self.unit_ids.numbers(rows.column("unit").to_numpy())

    def _places_in(self, rows: pa.Table) -> Numbers:
        """Sentence number, start and end of rows of units."""
        sentences, *bounds = (rows.column(name).to_numpy() for name in _PLACE)
        return np.column_stack([self.sentence_ids.numbers(sentences), *bounds])

    def _read(self, table: Any, key: str, ids: Ids, columns: Sequence[str]) -> pa.Table:
        """The columns of the rows with these ids, which are ascending and different, in their order."""
        parts = []
        for begin in range(0, len(ids), ROWS_AT_ONCE):
            part = ids[begin : begin + ROWS_AT_ONCE]
            with store_errors(self.folder):
                query = table.search().where(condition(key, part)).select([key, *columns]).limit(len(part) + 1)
                parts.append(in_time(query.to_arrow).sort_by(key))
            if not np.array_equal(parts[-1].column(key).to_numpy(), part):
                raise damaged(self.folder, f"rows of {key}s are missing")
        return pa.concat_tables(parts).combine_chunks()

    def _read_vectors(self, units: Numbers) -> Floats:
        rows = self._read(self._units, "unit", self.unit_ids.ids(units), ["vector"])
        return _matrix(rows.column("vector"), self.manifest.dimension)

    def _read_places(self, units: Numbers) -> Numbers:
        return self._places_in(self._read(self._units, "unit", self.unit_ids.ids(units), _PLACE))

    def _read_texts(self, sentences: Numbers) -> Iterable[TextRow]:
        rows = self._read(self._rows, "sentence", self.sentence_ids.ids(sentences), SENTENCE_SCHEMA.names[1:])
        return zip(sentences.tolist(), *(column.to_pylist() for column in rows.columns[1:]), strict=True)

    def units_of(self, sentence: int) -> tuple[int, int]:
        """First (inclusive) and last (exclusive) unit of a sentence."""
        where = condition("sentence", self.sentence_ids.ids(np.array([sentence])))
        with store_errors(self.folder):
            units = in_time(self._units.search().where(where).select(["unit"]).limit(len(self)).to_arrow)
        if not len(units):
            return 0, 0
        numbers = self.unit_ids.numbers(units.column("unit").to_numpy())
        return int(numbers.min()), int(numbers.max()) + 1

    @cached_property
    def has_originals(self) -> bool:
        """Whether it is known of any of the sentences that are searched what it translates."""
        if self.manifest.unit != "memory":
            return False
        chosen = f" AND ({self._condition})" if self._condition else ""
        with store_errors(self.folder):
            return bool(in_time(lambda: self._rows.count_rows(f"original != ''{chosen}")))

    @property
    def sentences(self) -> pa.Table:
        """The sentences by number, with the columns of the manifest's `schema`: all of them, read into memory."""
        with store_errors(self.folder):
            table = self._rows.to_arrow().sort_by("sentence")
        return table.select(self.manifest.schema.names).cast(self.manifest.schema)

    def file_column(self) -> pa.ChunkedArray:
        """The file of each sentence, by number."""
        with store_errors(self.folder):
            rows = in_time(self._rows.search().select(["sentence", "file"]).limit(None).to_arrow)
        return rows.sort_by("sentence").column("file")

    def sentences_of(self, files: Sequence[str]) -> Ids:
        """The ids of the sentences of these files, ascending."""
        with store_errors(self.folder):
            rows = self._rows.search().select(["sentence", "file"]).limit(None).to_arrow()
        of_them = pc.is_in(rows.column("file"), pa.array(files, pa.string()))
        ids: Ids = np.sort(rows.filter(of_them).column("sentence").to_numpy())
        return ids

    def units_of_sentences(self, ids: Ids) -> Ids:
        """The ids of the units of sentences with these ids, ascending."""
        with store_errors(self.folder):
            rows = self._units.search().select(["unit", "sentence"]).limit(None).to_arrow()
        of_them = np.isin(rows.column("sentence").to_numpy(), ids)
        units: Ids = np.sort(rows.column("unit").to_numpy()[of_them])
        return units


def _matrix(vectors: pa.ChunkedArray, dimension: int) -> Floats:
    """A column of fp16 vectors as float32 (rows, dimension)."""
    chunks = [np.asarray(chunk.flatten()).reshape(-1, dimension) for chunk in vectors.chunks]
    return np.concatenate([np.zeros((0, dimension), np.float16), *chunks]).astype(np.float32)
