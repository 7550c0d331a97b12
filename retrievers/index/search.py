"""Searching a finished index, which is mapped into memory: exactly, or in the lists of its IVF form."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rag_mt.base.types import Floats, Hit, Origin, Sentence, Span
from retrievers.bm25 import Bm25
from retrievers.index.files import units_per_part
from retrievers.index.manifest import Manifest, damaged

log = logging.getLogger("rag_mt")

MORE_PROBES = 4
GPU_PROBES = 2048
"""FAISS's limit."""

LeftOut = int | Sequence[int]
"""The number of a sentence that a search leaves out, or several."""

Found = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Scores and unit numbers, both (queries, k)."""


class Index:
    """Units of target-language text with their vectors, memory-mapped from `folder`.

    `parts` are FAISS's indexes of the vectors: the first `units_per_part` units, the next ones, and so on. Those of
    the IVF form share their centroids.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        parts: Sequence[faiss.Index],
        spans: NDArray[np.int32],
        sentences: pa.Table,
    ) -> None:
        self.folder, self.manifest = folder, manifest
        self._faiss, self._spans = parts, spans
        self._size = units_per_part(manifest.dimension) if manifest.dimension else 0
        self._on_gpu: Sequence[faiss.Index] = ()
        self._terms: Bm25 | None = None
        self._mapping = Lock()
        self._texts, self._files, self._lines, self._starts = sentences.columns

    def __len__(self) -> int:
        """The number of units."""
        return self.manifest.units

    def search(self, vectors: Floats, k: int, without: LeftOut | None = None, probes: int | None = None) -> Found:
        """The `k` units of the greatest inner product with each of the `vectors` (queries, dimension).

        Returns scores and unit numbers, both (queries, min(k, units)), best first, equal scores by lowest number. The
        scores are exact over the fp16 vectors, and a query's result does not depend on the others. An IVF index looks
        into the `probes` nearest lists (default: the `nprobe` of its manifest), into more where those hold too little.
        Units of the sentences numbered `without` are left out; where nothing is left the number is -1.
        """
        queries = np.ascontiguousarray(vectors, dtype=np.float32)
        if queries.ndim != 2 or queries.shape[1] != self.manifest.dimension:
            raise ValueError(f"vectors of shape {queries.shape}: expected (queries, {self.manifest.dimension})")
        if k < 1:
            raise ValueError(f"k is {k}: expected at least 1")
        k = min(k, len(self))
        if self.manifest.ivf is None:
            return self._best(queries, k, without, None)
        lists = int(self.manifest.ivf["nlist"])
        probes = min(int(self.manifest.ivf["nprobe"]) if probes is None else probes, lists)
        scores, ids = self._best(queries, k, without, probes)
        while probes < lists and len(short := np.flatnonzero(ids[:, -1] < 0)):
            probes = min(MORE_PROBES * probes, lists)
            scores[short], ids[short] = self._best(queries[short], k, without, probes)
        return scores, ids

    @property
    def _parts(self) -> Sequence[faiss.Index]:
        if not self._faiss:
            raise ValueError(f"index {self.folder} has no vectors: it is searched by its terms")
        return self._faiss

    @property
    def terms(self) -> Bm25:
        """BM25 over the units, which it knows by the same numbers; opened at the first use."""
        if self.manifest.terms is None:
            raise ValueError(f"index {self.folder} has no terms: it is searched by its vectors")
        if self._terms is None:
            self._terms = Bm25.open(self.folder)
        return self._terms

    def _best(self, queries: Floats, k: int, without: LeftOut | None, probes: int | None) -> Found:
        """`search` in `probes` lists (None: the index has none)."""
        # An exact index scans by ascending number and keeps the first of equal scores; lists come in any order.
        depth = 1 if k == 1 and probes is None else min(k + 1, len(self))
        while True:
            by_part = list(self._search_parts(queries, depth, without, probes))
            scores, ids = (np.concatenate(arrays, axis=1) for arrays in zip(*by_part, strict=True))
            order = np.lexsort((ids, -scores), axis=-1)[:, :k]
            scores, ids = np.take_along_axis(scores, order, axis=1), np.take_along_axis(ids, order, axis=1)
            # Which of several equal scores FAISS keeps at the end of its answer is its own affair: look further down.
            tied = any(((s[:, -1:] == scores[:, -1:]) & (i[:, -1:] >= 0)).any() for s, i in by_part)
            if not (k < depth < len(self) and tied):
                return scores, ids
            depth = min(2 * depth, len(self))

    def _search_parts(self, queries: Floats, k: int, without: LeftOut | None, probes: int | None) -> Iterator[Found]:
        """What FAISS finds in each part, with the numbers of the units in the whole index."""
        # Only the CPU can leave units out.
        on_gpu = self._on_gpu if without is None and (probes is None or probes <= GPU_PROBES) else ()
        nearest = None
        if probes is not None and not on_gpu:
            nearest = self._parts[0].quantizer.search(queries, probes)
        left_out = self._left_out(without)
        for number, part in enumerate(on_gpu or self._parts):
            begin = number * self._size
            options: dict[str, Any] = {} if probes is None else {"nprobe": probes}
            if left_out is not None:
                options["sel"] = faiss.IDSelectorNot(faiss.IDSelectorBatch(left_out - begin))
            params = (faiss.SearchParameters if probes is None else faiss.SearchParametersIVF)(**options)
            if nearest is None:
                scores, ids = part.search(queries, k, params=params)
            else:
                scores, ids = _search_lists(part, queries, k, *nearest, params)
            yield scores, np.where(ids < 0, ids, ids + begin)

    def _left_out(self, without: LeftOut | None) -> NDArray[np.int64] | None:
        """The numbers of the units of sentences."""
        if without is None:
            return None
        sentences = without if isinstance(without, Sequence) else [without]
        return np.array([unit for number in sentences for unit in range(*self.units_of(number))], dtype=np.int64)

    def list_ranks(self, vectors: Floats, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each vector (queries, dimension) how many lists of an IVF index come before that of the unit with the
        same position in `units`: one more than that must be looked into to find it."""
        if self.manifest.ivf is None:
            raise ValueError("an exact index has no lists")
        centroids = self._parts[0].quantizer.reconstruct_n(0, int(self.manifest.ivf["nlist"]))
        scores = np.asarray(vectors, dtype=np.float32) @ centroids.T
        lists = np.zeros(len(units), dtype=np.int64)
        for part, rows in self._by_part(units):
            places = self._located(part).direct_map.array
            lists[rows] = faiss.rev_swig_ptr(places.data(), places.size())[units[rows] % self._size] >> 32
        own = np.take_along_axis(scores, lists[:, None], axis=1)
        ranks: NDArray[np.int64] = (scores > own).sum(axis=1)
        return ranks

    def _by_part(self, units: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """The number of each part that has some of the units, and the positions of those in `units`."""
        parts = units // self._size
        for part in np.unique(parts).tolist():
            yield part, np.flatnonzero(parts == part)

    def _located(self, part: int) -> faiss.Index:
        """A part that knows where its units are: eight bytes for each, made at the first use of the IVF form."""
        index = self._parts[part]
        if self.manifest.ivf is not None:
            with self._mapping:
                if index.direct_map.no():
                    index.make_direct_map()
        return index

    def units_of(self, sentence: int) -> tuple[int, int]:
        """First (inclusive) and last (exclusive) unit of a sentence."""
        first, last = np.searchsorted(self._spans[:, 0], [sentence, sentence + 1])
        return int(first), int(last)

    def sentence(self, number: int) -> Sentence:
        """The sentence with that number, with where it came from."""
        try:
            text, *origin = (c[number].as_py() for c in (self._texts, self._files, self._lines, self._starts))
        except (UnicodeDecodeError, pa.ArrowException) as error:
            raise damaged(self.folder, f"sentence {number} cannot be read ({error})") from error
        return Sentence(text, self.manifest.language, Origin(*origin))

    def spans(self, units: NDArray[np.int64]) -> NDArray[np.int32]:
        """Sentence number, start and end character of each of the units, int32 (len(units), 3)."""
        return self._spans[units]

    def hit(self, unit: int, score: float) -> Hit:
        """The unit with that number as a Hit."""
        number, start, end = self._spans[unit].tolist()
        return Hit(self.sentence(number), Span(start, end), float(score))

    def reconstruct(self, ids: NDArray[np.int64]) -> Floats:
        """The stored vectors (fp16 precision) of units, float32 (len(ids), dimension)."""
        units = np.asarray(ids, dtype=np.int64)
        vectors = np.zeros((len(units), self.manifest.dimension), dtype=np.float32)
        for part, rows in self._by_part(units):
            vectors[rows] = self._located(part).reconstruct_batch(units[rows] % self._size)
        return vectors

    def to_gpu(self) -> bool:
        """Search on the first GPU from now on, if this FAISS can and the vectors fit; says whether it does."""
        if not self._faiss or not hasattr(faiss, "StandardGpuResources") or not faiss.get_num_gpus():
            return False
        try:
            resources = faiss.StandardGpuResources()
            self._on_gpu = [faiss.index_cpu_to_gpu(resources, 0, part) for part in self._faiss]
        except RuntimeError as error:
            log.warning("index %s stays on the CPU: %s", self.folder, str(error).splitlines()[0])
            return False
        return True


def _search_lists(
    part: faiss.Index,
    queries: Floats,
    k: int,
    centroid_scores: Floats,
    lists: NDArray[np.int64],
    params: faiss.SearchParametersIVF,
) -> Found:
    """`search` of a part in lists that are known; FAISS's own wrapper of it takes no parameters."""
    scores = np.empty((len(queries), k), dtype=np.float32)
    ids = np.empty((len(queries), k), dtype=np.int64)
    arrays = (faiss.swig_ptr(array) for array in (lists, centroid_scores, scores, ids))
    part.search_preassigned_c(len(queries), faiss.swig_ptr(queries), k, *arrays, False, params)
    return scores, ids
