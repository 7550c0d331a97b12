"""An index that an engine of others keeps, searched as one of our folders is: the same numbers, scores and hits."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rag_mt.base.types import Floats, Hit, Origin, Sentence, Span
from retrievers.bm25 import Bm25
from retrievers.index import search
from retrievers.index.manifest import Manifest
from retrievers.index.search import MORE_PROBES, Index, LeftOut, Neighbours

Numbers = NDArray[np.int64]

QUERIES_AT_ONCE = 512
FOUND_AT_ONCE = 1 << 17
"""Units that are found, with their vectors, at once: where many score alike, many are looked at for each query."""
MORE = 8
"""Units beyond those that are asked for, for engines compute with queries in fp16: of these the best by exact scores
are taken."""
ROUNDING = 2.0**-9
"""Twice what rounding a query of length 1 to fp16 can change of its product with a vector of length 1, and as much
again for the engine's own sums."""
REMEMBERED = 1 << 17
"""Units and sentences that are kept in memory, before all of them are forgotten."""

Place = tuple[int, int, int]
"""Sentence number, start and end of a unit."""
TextRow = tuple[int, str, str, int, int, str]
"""Number, text, file, line and start of a sentence, and what it translates."""


@dataclass(frozen=True)
class Found:
    """Rows that an engine finds, in any order: `queries` (rows,) are positions in the batch, `units` (rows,) their
    numbers, `places` (rows, 3) where they are (see Place), and `vectors` (rows, dimension) theirs in float32."""

    queries: Numbers
    units: Numbers
    places: Numbers
    vectors: Floats


class StoredIndex(Index):
    """Units of target-language text in an engine, as they were when it was opened: later changes are seen by who opens
    it later. Rows are read when they are needed, those of a batch of queries together."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        # Not Index.__init__: there are no files to map.
        self.folder, self.manifest = folder, manifest
        self._terms: Bm25 | None = None
        self._reading = RLock()
        self._places: dict[int, Place] = {}
        self._texts: dict[int, tuple[Sentence, str]] = {}
        self._expected: set[int] = set()  # sentences of hits that were not read yet

    @property
    def _more(self) -> int:
        """Units beyond those that are asked for which are compared where lists are searched."""
        return MORE

    @abstractmethod
    def _found(self, queries: Floats, depth: int, without: Sequence[int], probes: int | None) -> Found:
        """The first `depth` units of the selection for each query but those of sentences `without`, by the engine's
        scores; with `probes` it looks into so much of its lists, else at all vectors."""

    @abstractmethod
    def _count_units(self) -> int:
        """The number of units of the selection."""

    @abstractmethod
    def _selected_units(self) -> Numbers:
        """The numbers of the units of the selection."""

    @cached_property
    def searched(self) -> int:
        """The number of units that are searched."""
        return len(self) if self.selection is None else self._count_units()

    @cached_property
    def chosen(self) -> NDArray[np.bool_] | None:
        """Whether each unit is searched (units,); None where all are."""
        if self.selection is None:
            return None
        chosen = np.zeros(len(self), dtype=bool)
        chosen[self._selected_units()] = True
        return chosen

    @abstractmethod
    def _read_places(self, units: Numbers) -> Numbers:
        """Where units are, (units, 3), of different ascending numbers."""

    @abstractmethod
    def _read_vectors(self, units: Numbers) -> Floats:
        """Vectors of units, (units, dimension), of different ascending numbers."""

    @abstractmethod
    def _read_texts(self, sentences: Numbers) -> Iterable[TextRow]:
        """Sentences of different ascending numbers."""

    def search(self, vectors: Floats, k: int, without: LeftOut | None = None, probes: int | None = None) -> Neighbours:
        """As `Index.search`. Without lists all vectors are compared; with them so many are looked into as `probes`
        says (default: the `nprobe` of the manifest), and all vectors if there are no more lists."""
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
            few = self.selection is not None and self.searched <= search.FEW
            probes = lists if few else self._probes(probes)
        numbers = list(without) if isinstance(without, Sequence) else [] if without is None else [without]
        left_out = np.unique(numbers).tolist()
        exact = probes is None or probes >= lists
        depth = min(k + (MORE if exact else self._more), self.searched)
        scores, ids, unsure = self._nearest_of_all(queries, k, depth, left_out, None if exact else probes)
        while len(unsure) and (depth < self.searched or not exact):
            if depth < self.searched:
                depth = min(4 * depth, self.searched)
            if not exact and bool((ids[unsure, -1] < 0).any()):  # lists with too little in them
                assert probes is not None
                probes = min(MORE_PROBES * probes, lists)
                exact = probes >= lists
            scores[unsure], ids[unsure], rows = self._nearest_of_all(
                queries[unsure], k, depth, left_out, None if exact else probes
            )
            unsure = unsure[rows]
        return scores, ids

    def _nearest_of_all(
        self, queries: Floats, k: int, depth: int, without: Sequence[int], probes: int | None
    ) -> tuple[Any, Any, Numbers]:
        """`_nearest`, for so many queries at once as find FOUND_AT_ONCE."""
        at_once = max(1, FOUND_AT_ONCE // depth)
        begins = range(0, len(queries), at_once)
        parts = [self._nearest(queries[begin : begin + at_once], k, depth, without, probes) for begin in begins]
        scores, ids = (np.concatenate([part[column] for part in parts]) for column in (0, 1))
        return scores, ids, np.concatenate([part[2] + begin for part, begin in zip(parts, begins, strict=True)])

    def _nearest(
        self, queries: Floats, k: int, depth: int, without: Sequence[int], probes: int | None
    ) -> tuple[Any, Any, Numbers]:
        """Scores and units (queries, k) of the first `depth` that the engine finds (`probes` None: among all), and the
        queries that may have better or equal ones further down."""
        found = self._found(queries, depth, without, probes)
        # 1. The exact scores, best first for each query.
        products = (queries[found.queries] * found.vectors).sum(axis=1, dtype=np.float32)
        order = np.lexsort((found.units, -products, found.queries))
        asked, products, units = found.queries[order], products[order], found.units[order]
        bounds = np.searchsorted(asked, np.arange(len(queries) + 1))
        ranks = np.arange(len(asked)) - bounds[asked]
        # 2. The first k of them.
        scores = np.full((len(queries), k), np.finfo(np.float32).min, np.float32)
        ids = np.full((len(queries), k), -1, np.int64)
        first = ranks < k
        scores[asked[first], ranks[first]], ids[asked[first], ranks[first]] = products[first], units[first]
        self._remember(units[first], found.places[order[first]])
        # 3. Whether something that was not returned may belong to them.
        counts = np.diff(bounds)
        worst = np.where(counts > 0, products[np.maximum(bounds[1:] - 1, 0)] if len(products) else 0, 0)
        longest = np.linalg.norm(found.vectors, axis=1).max() if len(found.vectors) else 1
        margin = ROUNDING * np.linalg.norm(queries, axis=1) * longest if probes is None else 0
        unsure = (counts >= depth) & (scores[:, -1] <= worst + margin) & (depth < self.searched)
        if probes is not None:
            unsure |= ids[:, -1] < 0
        return scores, ids, np.flatnonzero(unsure)

    def _remember(self, units: Numbers, places: Numbers) -> None:
        """Keep where units are; what their sentences are is read when the first one is asked for, for all at once."""
        with self._reading:
            if len(self._places) + len(units) > REMEMBERED:
                self._places.clear()
                self._texts.clear()
                self._expected.clear()
            self._places.update(zip(units.tolist(), map(tuple, places.tolist()), strict=True))
            self._expected |= set(places[:, 0].tolist()) - self._texts.keys()

    def reconstruct(self, ids: Numbers) -> Floats:
        """The stored vectors (fp16 precision) of units, float32 (len(ids), dimension)."""
        wanted, places = np.unique(np.asarray(ids, dtype=np.int64), return_inverse=True)
        if not len(wanted):
            return np.zeros((0, self.manifest.dimension), np.float32)
        return self._read_vectors(wanted)[places]

    def spans(self, units: Numbers) -> NDArray[np.int32]:
        """Sentence number, start and end character of each of the units, int32 (len(units), 3)."""
        wanted, places = np.unique(np.asarray(units, dtype=np.int64), return_inverse=True)
        if not len(wanted):
            return np.zeros((0, 3), np.int32)
        with self._reading:
            known = [self._places.get(unit) for unit in wanted.tolist()]
        if all(place is not None for place in known):
            return np.array(known, np.int32)[places]
        return self._read_places(wanted).astype(np.int32)[places]

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
                language = self.manifest.language
                for number, text, file, line, start, original in self._read_texts(wanted):
                    self._texts[number] = Sentence(text, language, Origin(file, line, start)), original
                self._expected.clear()
            return [self._texts[number] for number in numbers]

    def text_batches(self, size: int) -> Iterator[pa.RecordBatch]:
        """The sentences by number, `size` at a time: text, file, line, start, and what each translates."""
        for begin in range(0, self.manifest.sentences, size):
            numbers = np.arange(begin, min(begin + size, self.manifest.sentences))
            columns = zip(*self._read_texts(numbers), strict=True)
            names = ["number", "text", "file", "line", "start", "original"]
            yield pa.RecordBatch.from_pydict(dict(zip(names, map(list, columns), strict=True)))

    def _column(self, name: str, units: Numbers) -> list[str]:
        rows = self._texts_of(self.spans(units)[:, 0].tolist())
        return [sentence.text if name == "text" else original for sentence, original in rows]

    def list_ranks(self, vectors: Floats, units: Numbers) -> Numbers:
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
        """Says that it is searched by its engine, on the CPU."""
        return False
