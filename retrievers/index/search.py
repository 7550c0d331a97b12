"""Searching a finished index, which is mapped into memory."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rag_mt.base.errors import NoSuchFileError
from rag_mt.base.only import Only
from rag_mt.base.types import Floats, Hit, Origin, Sentence, Span
from retrievers.bm25 import Bm25
from retrievers.index.beside import local_files
from retrievers.index.manifest import PAIRS, Manifest, damaged
from retrievers.index.places import place_text
from retrievers.index.selection import ASK_OTHERWISE, Selection, selected

log = logging.getLogger("rag_mt")

MOST_LISTS = 1 << 15
MORE_PROBES = 4
GPU_PROBES = 2048
"""FAISS's limit."""
RERANKED = 64
"""Units of a compressed index whose vectors are compared in fp16, or twice as many as are wanted."""
RERANKED_BYTES = 1 << 26
"""Vectors of units that are in memory at once as float32."""
FEW = 1 << 16
"""Units of a selection up to which all of them are compared, also where vectors are in lists, unless they are lossy."""
OF_A_SELECTION = ("chosen", "searched", "has_originals", "_bits", "_alone", "_condition")
"""What an index remembers that depends on its selection."""

LeftOut = int | Sequence[int]
"""The number of a sentence that a search leaves out, or several."""

Neighbours = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Scores and unit numbers, both (queries, k)."""


class Index:
    """Units of target-language text with their vectors, memory-mapped from `folder`; with a `selection` the units of
    some sentences alone are searched, by the numbers that they have."""

    selection: Selection | None = None

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        vectors: Any,
        spans: NDArray[np.int32],
        sentences: pa.Table,
        rows: NDArray[np.float16] | None = None,
    ) -> None:
        """`vectors` are FAISS's, `rows` those in fp16 by which the best hits of a compressed index are compared."""
        self.folder, self.manifest, self._sentences = folder, manifest, sentences
        self._vectors, self._spans, self._whole = vectors, spans, rows
        self._on_gpu: Any = None
        self._terms: Bm25 | None = None
        self._mapping = Lock()
        self._columns = sentences.columns

    def __len__(self) -> int:
        """The number of units."""
        return self.manifest.units

    @property
    def vectors(self) -> Any:
        """FAISS's index of the vectors, None if there are none."""
        return self._vectors

    @property
    def sentences(self) -> pa.Table:
        """The sentences by number, with the columns of the manifest's `schema`."""
        return self._sentences

    def files(self) -> dict[str, int]:
        """The files that its sentences came from, with the number of sentences of each, in the order of the text."""
        counted = pc.value_counts(self.file_column())
        return {entry["values"]: entry["counts"] for entry in counted.to_pylist()}

    def file_column(self) -> pa.ChunkedArray:
        """The file of each sentence, by number."""
        return self.sentences.column("file")

    def within(self, only: Only) -> Index:
        """The same index, in which only the sentences of some files are searched: units and sentences keep their
        numbers, and all else is that of the whole index (how rare terms are, its cut-offs). What was opened of this one
        stays as it is. Raises NoSuchFileError where nothing is left to search."""
        part = copy(self)
        part.selection, part._terms = selected(self.folder, only, self.file_column(), self.manifest.labels), None
        for name in OF_A_SELECTION:
            part.__dict__.pop(name, None)
        if not part.searched:
            lacking = f"has no {self.manifest.unit} in its files {only}"
            raise NoSuchFileError(
                f"index {place_text(self.folder)} {lacking}: leave them out, or name others",
                f"the index {lacking}: {ASK_OTHERWISE}",
            )
        return part

    @cached_property
    def chosen(self) -> NDArray[np.bool_] | None:
        """Whether each unit is searched (units,); None where all are."""
        if self.selection is None:
            return None
        chosen = np.zeros(len(self), dtype=bool)
        for first, last in np.searchsorted(self._spans[:, 0], self.selection.runs).tolist():
            chosen[first:last] = True
        return chosen

    @cached_property
    def _bits(self) -> NDArray[np.uint8]:
        """`chosen` as FAISS wants it, which reads it in place."""
        assert self.chosen is not None
        return np.packbits(self.chosen, bitorder="little")

    @cached_property
    def searched(self) -> int:
        """The number of units that are searched."""
        return len(self) if self.chosen is None else int(self.chosen.sum())

    def search(self, vectors: Floats, k: int, without: LeftOut | None = None, probes: int | None = None) -> Neighbours:
        """The `k` units of the greatest inner product with each of the `vectors` (queries, dimension).

        Returns scores and unit numbers, both (queries, min(k, `searched`)), best first, equal scores by lowest number.
        The scores are exact over the stored vectors, and a query's result does not depend on the others. An IVF index
        looks into the `probes` nearest lists (default: the `nprobe` of its manifest), into more where those hold too
        little. Of a compressed index that is re-ranked scores are those of the fp16 vectors, for RERANKED units of the
        greatest scores of the compressed ones; of units with equal scores at the end of these any may be left out.
        Units of the sentences numbered `without` are left out; where nothing is left the number is -1. With a selection
        there are so many more probes that as many vectors are compared as without one, or all of FEW vectors.
        """
        queries, k = self._asked(vectors, k)
        if self.manifest.ivf is None or self._alone is not None:
            return self._best(queries, k, without, None)
        lists, probes = int(self.manifest.ivf["nlist"]), self._probes(probes)
        scores, ids = self._best(queries, k, without, probes)
        while probes < lists and len(short := np.flatnonzero(ids[:, -1] < 0)):
            probes = min(MORE_PROBES * probes, lists)
            scores[short], ids[short] = self._best(queries[short], k, without, probes)
        return scores, ids

    def _probes(self, probes: int | None) -> int:
        """How many lists of an IVF index are looked into first, of `probes` (None: of the manifest's)."""
        assert self.manifest.ivf is not None
        probes = int(self.manifest.ivf["nprobe"]) if probes is None else probes
        return min(-(-probes * len(self) // self.searched), int(self.manifest.ivf["nlist"]))

    def _asked(self, vectors: Floats, k: int) -> tuple[Floats, int]:
        """The queries and how many units of each there can be; raises ValueError for others than `search` takes."""
        if not self.manifest.dimension:
            raise ValueError(f"index {self.folder} has no vectors: it is searched by its terms")
        queries = np.ascontiguousarray(vectors, dtype=np.float32)
        if queries.ndim != 2 or queries.shape[1] != self.manifest.dimension:
            raise ValueError(f"vectors of shape {queries.shape}: expected (queries, {self.manifest.dimension})")
        if k < 1:
            raise ValueError(f"k is {k}: expected at least 1")
        return queries, min(k, self.searched)

    @property
    def terms(self) -> Bm25:
        """BM25 over the units, which it knows by the same numbers; opened at the first use."""
        if self.manifest.terms is None:
            raise ValueError(f"index {self.folder} has no terms: it is searched by its vectors")
        if self._terms is None:
            terms = Bm25.open(local_files(self.folder, self.manifest))
            self._terms = terms if self.chosen is None else terms.within(self.chosen)
        return self._terms

    def _best(self, queries: Floats, k: int, without: LeftOut | None, probes: int | None) -> Neighbours:
        """`search` in `probes` lists (None: the index has none)."""
        options: dict[str, Any] = {} if probes is None else {"nprobe": probes}
        if (selector := self._selector(without)) is not None:
            options["sel"] = selector
        parameters = (faiss.SearchParameters if probes is None else faiss.SearchParametersIVF)(**options)
        vectors = self._vectors if self._alone is None else self._alone
        if self._on_gpu is not None and self.selection is None and without is None and (probes or 0) <= GPU_PROBES:
            vectors = self._on_gpu  # only the CPU can leave units out
        if self._whole is not None and self._alone is None:
            ids = vectors.search(queries, min(max(RERANKED, 2 * k), self.searched), params=parameters)[1]
            return self._reranked(queries, ids, k)
        # An exact index scans by ascending number and keeps the first of equal scores; lists come in any order.
        depth = 1 if k == 1 and probes is None else min(k + 1, self.searched)
        scores, ids = vectors.search(queries, depth, params=parameters)
        # Which of several equal scores FAISS keeps at the end of a list is its own affair: look further down.
        while k < depth < self.searched and bool(((scores[:, k - 1] == scores[:, -1]) & (ids[:, -1] >= 0)).any()):
            depth = min(2 * depth, self.searched)
            scores, ids = vectors.search(queries, depth, params=parameters)
        return _ordered(scores, ids, k)

    @cached_property
    def _alone(self) -> Any:
        """The vectors of a small selection under the numbers of their units, by FAISS, None where there is none: to
        look for few units in all lists would take far longer than to compare them."""
        if self.chosen is None or self.manifest.ivf is None or self.manifest.lossy or self.searched > FEW:
            return None
        units = np.flatnonzero(self.chosen)
        codes = faiss.IndexScalarQuantizer(
            self.manifest.dimension, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
        )
        alone = faiss.IndexIDMap(codes)
        alone.add_with_ids(self.reconstruct(units), units)
        return alone

    def _selector(self, without: LeftOut | None) -> Any:
        """FAISS's selector of the units that are searched but those of the sentences `without`, None for all."""
        selectors = list[Any]()
        if self.chosen is not None and self._alone is None:
            selectors.append(faiss.IDSelectorBitmap(len(self._bits), faiss.swig_ptr(self._bits)))
        if isinstance(without, Sequence):
            left_out = np.array(self.units_of_all(without), np.int64)
            selectors.append(faiss.IDSelectorNot(faiss.IDSelectorBatch(left_out)))
        elif without is not None:
            selectors.append(faiss.IDSelectorNot(faiss.IDSelectorRange(*self.units_of(without))))
        return faiss.IDSelectorAnd(*selectors) if len(selectors) == 2 else next(iter(selectors), None)

    def _reranked(self, queries: Floats, ids: NDArray[np.int64], k: int) -> Neighbours:
        """The `k` best of units (queries, n) by the vectors in fp16; those of -1 are none."""
        assert self._whole is not None
        none = np.finfo(np.float32).min  # as FAISS has it
        scores = np.empty(ids.shape, np.float32)
        at_once = max(1, RERANKED_BYTES // (4 * ids.shape[1] * queries.shape[1]))
        for begin in range(0, len(ids), at_once):
            part = slice(begin, begin + at_once)
            rows = self._whole[ids[part]].astype(np.float32)  # of -1 it is the last unit
            scores[part] = np.where(ids[part] < 0, none, (rows @ queries[part, :, None])[..., 0])
        return _ordered(scores, ids, k)

    def list_ranks(self, vectors: Floats, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each vector (queries, dimension) how many lists of an IVF index come before that of the unit with the
        same position in `units`: one more than that must be looked into to find it."""
        scores = np.asarray(vectors, dtype=np.float32) @ self.centroids.T
        own = np.take_along_axis(scores, self.lists_of(units)[:, None], axis=1)
        ranks: NDArray[np.int64] = (scores > own).sum(axis=1)
        return ranks

    @property
    def centroids(self) -> Floats:
        """The centroids of the lists of an IVF index, float32 (lists, dimension)."""
        centroids: Floats = self._vectors.quantizer.reconstruct_n(0, self._vectors.nlist)
        return centroids

    def lists_of(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """The list of an IVF index that each of the units is in."""
        places = self._located().direct_map.array
        lists: NDArray[np.int64] = faiss.rev_swig_ptr(places.data(), places.size())[units] >> 32  # below is the offset
        return lists

    def _located(self) -> Any:
        """The vectors, which know where each unit is: in lists that costs eight bytes for each, from the first use."""
        if self.manifest.ivf is not None:
            with self._mapping:
                if self._vectors.direct_map.no():
                    self._vectors.make_direct_map()
        return self._vectors

    def units_of(self, sentence: int) -> tuple[int, int]:
        """First (inclusive) and last (exclusive) unit of a sentence."""
        first, last = np.searchsorted(self._spans[:, 0], [sentence, sentence + 1])
        return int(first), int(last)

    def units_of_all(self, sentences: LeftOut) -> list[int]:
        """The units of one or several sentences."""
        numbers = sentences if isinstance(sentences, Sequence) else [sentences]
        return [unit for number in numbers for unit in range(*self.units_of(number))]

    def sentence(self, number: int) -> Sentence:
        """The sentence with that number, with where it came from."""
        try:
            text, *origin = (column[number].as_py() for column in self._columns[:4])
        except (UnicodeDecodeError, pa.ArrowException) as error:
            raise damaged(self.folder, f"sentence {number} cannot be read ({error})") from error
        return Sentence(text, self.manifest.language, Origin(*origin))

    def spans(self, units: NDArray[np.int64]) -> NDArray[np.int32]:
        """Sentence number, start and end character of each of the units, int32 (len(units), 3)."""
        return self._spans[units]

    def hit(self, unit: int, score: float) -> Hit:
        """The unit with that number as a Hit."""
        number, start, end = self._spans[unit].tolist()
        original = self.originals(np.array([unit]))[0] if self.has_originals else ""
        return Hit(self.sentence(number), Span(start, end), float(score), original)

    @cached_property
    def has_originals(self) -> bool:
        """Whether it is known of any of the sentences that are searched what it translates."""
        if self.sentences.schema != PAIRS:
            return False
        runs = [[0, self.manifest.sentences]] if self.selection is None else self.selection.runs.tolist()
        parts = (self.sentences.column("original").slice(first, last - first) for first, last in runs)
        return any(pc.any(pc.not_equal(part, "")).as_py() for part in parts)

    def texts(self, units: NDArray[np.int64]) -> list[str]:
        """The texts of the sentences of units."""
        return self._column("text", units)

    def originals(self, units: NDArray[np.int64]) -> list[str]:
        """What the sentences of units translate; empty where that is not known."""
        return self._column("original", units)

    def _column(self, name: str, units: NDArray[np.int64]) -> list[str]:
        try:
            texts: list[str] = self.sentences.column(name).take(pa.array(self._spans[units, 0])).to_pylist()
        except (UnicodeDecodeError, pa.ArrowException) as error:
            raise damaged(self.folder, f"sentences cannot be read ({error})") from error
        return texts

    def reconstruct(self, ids: NDArray[np.int64]) -> Floats:
        """The stored vectors of units, float32 (len(ids), dimension), in fp16 precision, or less in a compressed index
        that is not re-ranked."""
        if self._whole is not None:
            return self._whole[ids].astype(np.float32)
        return self.reconstruct_codes(ids)

    def reconstruct_codes(self, ids: NDArray[np.int64]) -> Floats:
        """The vectors of units that are searched, float32 (len(ids), dimension), compressed ones as what they stand
        for."""
        vectors: Floats = self._located().reconstruct_batch(np.ascontiguousarray(ids, dtype=np.int64))
        return vectors

    def to_gpu(self) -> bool:
        """Search on the first GPU from now on, if this FAISS can, the vectors fit and are in fp16; says whether it
        does."""
        if self._vectors is None or self.manifest.codes is not None:
            return False
        if not hasattr(faiss, "StandardGpuResources") or not faiss.get_num_gpus():
            return False
        try:
            self._on_gpu = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, self._vectors)
        except RuntimeError as error:
            log.warning("index %s stays on the CPU: %s", self.folder, str(error).splitlines()[0])
            return False
        return True


def _ordered(scores: Floats, ids: NDArray[np.int64], k: int) -> Neighbours:
    """The `k` best, equal scores by number."""
    order = np.lexsort((ids, -scores), axis=-1)[:, :k]
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(ids, order, axis=1)
