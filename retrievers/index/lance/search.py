"""An index in LanceDB, searched as one of our folders is: the same numbers, scores and hits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rag_mt.base.types import Floats, Hit, Origin, Sentence, Span
from retrievers.bm25 import Bm25
from retrievers.index.lance.numbering import Ids, Numbering, condition
from retrievers.index.lance.place import connected, store_errors
from retrievers.index.lance.tables import SENTENCE_SCHEMA, SENTENCES, UNITS, at_version
from retrievers.index.manifest import Manifest, damaged
from retrievers.index.search import MORE_PROBES, Index, LeftOut, Neighbours

QUERIES_AT_ONCE = 512
ROWS_AT_ONCE = 4096
"""Rows that are read by their ids at once."""
FOUND_AT_ONCE = 1 << 17
"""Units that are found, with their vectors, at once: where many score alike, many are looked at for each query."""
MORE = 8
"""Units beyond those that are asked for, for the engine computes with queries in fp16: of these the best by exact
scores are taken."""
ROUNDING = 2.0**-9
"""Twice what rounding a query of length 1 to fp16 can change of its product with a vector of length 1, and as much
again for the engine's own sums."""
REMEMBERED = 1 << 17
"""Units and sentences that are kept in memory, before all of them are forgotten."""

Place = tuple[int, int, int]
"""Sentence number, start and end of a unit."""
_UNIT_COLUMNS = ["unit", "sentence", "start", "end"]


def open_lance(folder: Path, manifest: Manifest) -> LanceIndex:
    """The index of these versions of the tables; raises UserError if they do not have what the manifest says."""
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


class LanceIndex(Index):
    """Units of target-language text in tables of LanceDB, as they were when it was opened: later changes are seen by
    who opens it later. Rows are read when they are needed, those of a batch of queries together."""

    def __init__(self, folder: Path, manifest: Manifest, units: Any, sentences: Any) -> None:
        # Not Index.__init__: there are no files to map.
        self.folder, self.manifest = folder, manifest
        self.unit_ids, self.sentence_ids = (Numbering(manifest.files[name]["numbers"]) for name in (UNITS, SENTENCES))
        self._units, self._rows = units, sentences
        self._terms: Bm25 | None = None
        self._reading = RLock()
        self._places: dict[int, Place] = {}
        self._texts: dict[int, tuple[Sentence, str]] = {}
        self._expected: set[int] = set()  # sentences of hits that were not read yet

    def search(self, vectors: Floats, k: int, without: LeftOut | None = None, probes: int | None = None) -> Neighbours:
        """As `Index.search`. A table without a vector index is searched exactly; with one, `probes` of its lists are
        looked into (default: the `nprobe` of the manifest), and all vectors if there are no more lists."""
        queries, k = self._asked(vectors, k)
        parts = [
            self._search(queries[begin : begin + QUERIES_AT_ONCE], k, without, probes)
            for begin in range(0, len(queries), QUERIES_AT_ONCE)
        ]
        parts = parts or [(np.zeros((0, k), np.float32), np.zeros((0, k), np.int64))]
        scores, ids = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return scores, ids

    def _search(self, queries: Floats, k: int, without: LeftOut | None, probes: int | None) -> Neighbours:
        """`search` for queries that are searched at once."""
        lists = 0 if self.manifest.ivf is None else int(self.manifest.ivf["nlist"])
        if self.manifest.ivf is not None:
            probes = min(int(self.manifest.ivf["nprobe"]) if probes is None else probes, lists)
        left_out = self._left_out(without)
        exact = probes is None or probes >= lists
        depth = min(k + MORE, len(self))
        scores, ids, unsure = self._nearest_of_all(queries, k, depth, left_out, None if exact else probes)
        while len(unsure) and (depth < len(self) or not exact):
            if depth < len(self):
                depth = min(4 * depth, len(self))
            if not exact and bool((ids[unsure, -1] < 0).any()):  # lists with too little in them
                assert probes is not None
                probes = min(MORE_PROBES * probes, lists)
                exact = probes >= lists
            scores[unsure], ids[unsure], rows = self._nearest_of_all(
                queries[unsure], k, depth, left_out, None if exact else probes
            )
            unsure = unsure[rows]
        return scores, ids

    def _left_out(self, without: LeftOut | None) -> str:
        """The SQL that is true of units that stay, empty for all."""
        numbers = list(without) if isinstance(without, Sequence) else [] if without is None else [without]
        if not numbers:
            return ""
        return f"NOT ({condition('sentence', self.sentence_ids.ids(np.unique(numbers)))})"

    def _nearest_of_all(self, queries: Floats, k: int, depth: int, left_out: str, probes: int | None) -> Any:
        """`_nearest`, for so many queries at once as find FOUND_AT_ONCE."""
        at_once = max(1, FOUND_AT_ONCE // depth)
        begins = range(0, len(queries), at_once)
        parts = [self._nearest(queries[begin : begin + at_once], k, depth, left_out, probes) for begin in begins]
        scores, ids = (np.concatenate([part[column] for part in parts]) for column in (0, 1))
        return scores, ids, np.concatenate([part[2] + begin for part, begin in zip(parts, begins, strict=True)])

    def _nearest(self, queries: Floats, k: int, depth: int, left_out: str, probes: int | None) -> tuple[Any, Any, Any]:
        """Scores and units (queries, k) of the first `depth` that the engine finds (`probes` None: among all), and the
        queries that may have better or equal ones further down."""
        with store_errors(self.folder):
            query = self._units.search(list(queries)).distance_type("dot").limit(depth)
            if left_out:
                query = query.where(left_out, prefilter=True)
            if self.manifest.ivf is not None:
                query = query.bypass_vector_index() if probes is None else query.nprobes(probes)
            found = query.select([*_UNIT_COLUMNS, "vector", "_distance"]).to_arrow().combine_chunks()
        # 1. The exact scores, best first for each query.
        alone = "query_index" not in found.column_names
        asked = np.zeros(len(found), np.int64) if alone else found.column("query_index").to_numpy().astype(np.int64)
        vectors, units = _matrix(found.column("vector"), self.manifest.dimension), found.column("unit").to_numpy()
        products = (queries[asked] * vectors).sum(axis=1, dtype=np.float32)
        order = np.lexsort((units, -products, asked))
        asked, products = asked[order], products[order]
        numbers = self.unit_ids.numbers(units[order])
        bounds = np.searchsorted(asked, np.arange(len(queries) + 1))
        ranks = np.arange(len(asked)) - bounds[asked]
        # 2. The first k of them.
        scores = np.full((len(queries), k), np.finfo(np.float32).min, np.float32)
        ids = np.full((len(queries), k), -1, np.int64)
        first = ranks < k
        scores[asked[first], ranks[first]], ids[asked[first], ranks[first]] = products[first], numbers[first]
        self._remember(found.take(pa.array(order[first])))
        # 3. Whether something that was not returned may belong to them.
        counts = np.diff(bounds)
        worst = np.where(counts > 0, products[np.maximum(bounds[1:] - 1, 0)] if len(products) else 0, 0)
        lengths = np.linalg.norm(queries, axis=1) * (np.linalg.norm(vectors, axis=1).max() if len(vectors) else 1)
        margin = ROUNDING * lengths if probes is None else 0
        unsure = (counts >= depth) & (scores[:, -1] <= worst + margin) & (depth < len(self))
        if probes is not None:
            unsure |= ids[:, -1] < 0
        return scores, ids, np.flatnonzero(unsure)

    def _remember(self, rows: pa.Table) -> None:
        """Keep where units are; what their sentences are is read when the first one is asked for, for all at once."""
        columns = [rows.column(name).to_numpy() for name in _UNIT_COLUMNS]
        units, sentences = self.unit_ids.numbers(columns[0]), self.sentence_ids.numbers(columns[1])
        with self._reading:
            if len(self._places) + len(units) > REMEMBERED:
                self._places.clear()
                self._texts.clear()
                self._expected.clear()
            places = zip(sentences.tolist(), columns[2].tolist(), columns[3].tolist(), strict=True)
            self._places.update(zip(units.tolist(), places, strict=True))
            self._expected |= set(sentences.tolist()) - self._texts.keys()

    def _read(self, table: Any, key: str, ids: Ids, columns: Sequence[str]) -> pa.Table:
        """The columns of the rows with these ids, which are ascending and different, in their order."""
        parts = []
        for begin in range(0, len(ids), ROWS_AT_ONCE):
            part = ids[begin : begin + ROWS_AT_ONCE]
            with store_errors(self.folder):
                query = table.search().where(condition(key, part)).select([key, *columns]).limit(len(part) + 1)
                parts.append(query.to_arrow().sort_by(key))
            if not np.array_equal(parts[-1].column(key).to_numpy(), part):
                raise damaged(self.folder, f"rows of {key}s are missing")
        return pa.concat_tables(parts).combine_chunks()

    def reconstruct(self, ids: NDArray[np.int64]) -> Floats:
        """The stored vectors (fp16 precision) of units, float32 (len(ids), dimension)."""
        wanted, places = np.unique(np.asarray(ids, dtype=np.int64), return_inverse=True)
        if not len(wanted):
            return np.zeros((0, self.manifest.dimension), np.float32)
        rows = self._read(self._units, "unit", self.unit_ids.ids(wanted), ["vector"])
        return _matrix(rows.column("vector"), self.manifest.dimension)[places]

    def spans(self, units: NDArray[np.int64]) -> NDArray[np.int32]:
        """Sentence number, start and end character of each of the units, int32 (len(units), 3)."""
        wanted, places = np.unique(np.asarray(units, dtype=np.int64), return_inverse=True)
        if not len(wanted):
            return np.zeros((0, 3), np.int32)
        with self._reading:
            known = [self._places.get(unit) for unit in wanted.tolist()]
        if all(place is not None for place in known):
            return np.array(known, np.int32)[places]
        rows = self._read(self._units, "unit", self.unit_ids.ids(wanted), _UNIT_COLUMNS[1:])
        columns = [rows.column(name).to_numpy() for name in _UNIT_COLUMNS[1:]]
        stacked = np.column_stack([self.sentence_ids.numbers(columns[0]), *columns[1:]])
        return stacked.astype(np.int32)[places]

    def units_of(self, sentence: int) -> tuple[int, int]:
        """First (inclusive) and last (exclusive) unit of a sentence."""
        where = condition("sentence", self.sentence_ids.ids(np.array([sentence])))
        with store_errors(self.folder):
            units = self._units.search().where(where).select(["unit"]).limit(len(self)).to_arrow()
        if not len(units):
            return 0, 0
        numbers = self.unit_ids.numbers(units.column("unit").to_numpy())
        return int(numbers.min()), int(numbers.max()) + 1

    def sentence(self, number: int) -> Sentence:
        """The sentence with that number, with where it came from."""
        return self._texts_of([number])[0][0]

    def hit(self, unit: int, score: float) -> Hit:
        """The unit with that number as a Hit."""
        number, start, end = self.spans(np.array([unit]))[0].tolist()
        sentence, original = self._texts_of([number])[0]
        return Hit(sentence, Span(start, end), float(score), original)

    def _texts_of(self, numbers: Sequence[int]) -> list[tuple[Sentence, str]]:
        """Sentences with what they translate; those that are not in memory are read, with those of recent hits."""
        with self._reading:
            missing = set(numbers) - self._texts.keys()
            if missing:
                wanted = np.array(sorted(missing | self._expected), np.int64)
                rows = self._read(self._rows, "sentence", self.sentence_ids.ids(wanted), SENTENCE_SCHEMA.names[1:])
                values = zip(wanted.tolist(), *(column.to_pylist() for column in rows.columns[1:]), strict=True)
                language = self.manifest.language
                for number, text, file, line, start, original in values:
                    self._texts[number] = Sentence(text, language, Origin(file, line, start)), original
                self._expected.clear()
            return [self._texts[number] for number in numbers]

    def _column(self, name: str, units: NDArray[np.int64]) -> list[str]:
        rows = self._texts_of(self.spans(units)[:, 0].tolist())
        return [sentence.text if name == "text" else original for sentence, original in rows]

    @cached_property
    def has_originals(self) -> bool:
        """Whether it is known of any of its sentences what it translates."""
        if self.manifest.unit != "memory":
            return False
        with store_errors(self.folder):
            return bool(self._rows.count_rows("original != ''"))

    @property
    def sentences(self) -> pa.Table:
        """The sentences by number, with the columns of the manifest's `schema`: all of them, read into memory."""
        with store_errors(self.folder):
            table = self._rows.to_arrow().sort_by("sentence")
        return table.select(self.manifest.schema.names).cast(self.manifest.schema)

    def files(self) -> dict[str, int]:
        """The files that its sentences came from, with the number of sentences of each, in the order of the text."""
        with store_errors(self.folder):
            rows = self._rows.search().select(["sentence", "file"]).limit(None).to_arrow().sort_by("sentence")
        counted = pc.value_counts(rows.column("file"))
        return {entry["values"]: entry["counts"] for entry in counted.to_pylist()}

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

    def list_ranks(self, vectors: Floats, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each vector (queries, dimension) a number of lists such that one more finds the unit with the same
        position in `units`, at most half as many again as it takes; one below that of all where none else finds it."""
        lists = int((self.manifest.ivf or {"nlist": 1})["nlist"])
        ranks = np.full(len(vectors), lists - 1, np.int64)
        open_rows, probes = np.arange(len(vectors)), 1
        while len(open_rows) and probes < lists:
            found = self.search(vectors[open_rows], 1, probes=probes)[1][:, 0] == units[open_rows]
            ranks[open_rows[found]] = probes - 1
            open_rows, probes = open_rows[~found], max(probes + 1, 3 * probes // 2)
        return ranks

    def to_gpu(self) -> bool:
        """Says that it is searched by LanceDB, on the CPU."""
        return False


def _matrix(vectors: pa.ChunkedArray, dimension: int) -> Floats:
    """A column of fp16 vectors as float32 (rows, dimension)."""
    chunks = [np.asarray(chunk.flatten()).reshape(-1, dimension) for chunk in vectors.chunks]
    return np.concatenate([np.zeros((0, dimension), np.float16), *chunks]).astype(np.float32)
