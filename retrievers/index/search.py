"""Searching a finished index, which is mapped into memory: exactly, or in the lists of its IVF form."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rag_mt.base.types import Floats, Hit, Origin, Sentence, Span
from retrievers.bm25 import Bm25
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
    """Units of target-language text with their vectors, memory-mapped from `folder`."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        vectors: Any,
        spans: NDArray[np.int32],
        sentences: pa.Table,
    ) -> None:
        self.folder, self.manifest = folder, manifest
        self._faiss, self._spans = vectors, spans
        self._on_gpu: Any = None
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
    def _vectors(self) -> Any:
        if self._faiss is None:
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
        options = self._options(without, probes)
        gpu = self._on_gpu if without is None and (probes is None or probes <= GPU_PROBES) else None
        vectors = self._vectors if gpu is None else gpu  # only the CPU can leave units out
        # An exact index scans by ascending number and keeps the first of equal scores; lists come in any order.
        depth = 1 if k == 1 and probes is None else min(k + 1, len(self))
        scores, ids = vectors.search(queries, depth, params=options)
        # Which of several equal scores FAISS keeps at the end of a list is its own affair: look further down.
        while k < depth < len(self) and bool(((scores[:, k - 1] == scores[:, -1]) & (ids[:, -1] >= 0)).any()):
            depth = min(2 * depth, len(self))
            scores, ids = vectors.search(queries, depth, params=options)
        order = np.lexsort((ids, -scores), axis=-1)[:, :k]
        return np.take_along_axis(scores, order, axis=1), np.take_along_axis(ids, order, axis=1)

    def _options(self, without: LeftOut | None, probes: int | None) -> faiss.SearchParameters:
        """FAISS's parameters that leave out sentences and look into that many lists."""
        options: dict[str, Any] = {} if probes is None else {"nprobe": probes}
        if isinstance(without, Sequence):
            units = [unit for sentence in without for unit in range(*self.units_of(sentence))]
            options["sel"] = faiss.IDSelectorNot(faiss.IDSelectorBatch(np.array(units, dtype=np.int64)))
        elif without is not None:
            options["sel"] = faiss.IDSelectorNot(faiss.IDSelectorRange(*self.units_of(without)))
        return (faiss.SearchParameters if probes is None else faiss.SearchParametersIVF)(**options)

    def list_ranks(self, vectors: Floats, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each vector (queries, dimension) how many lists of an IVF index come before that of the unit with the
        same position in `units`: one more than that must be looked into to find it."""
        if self.manifest.ivf is None:
            raise ValueError("an exact index has no lists")
        centroids = self._vectors.quantizer.reconstruct_n(0, self._vectors.nlist)
        scores = np.asarray(vectors, dtype=np.float32) @ centroids.T
        places = self._located().direct_map.array
        lists = faiss.rev_swig_ptr(places.data(), places.size())[units] >> 32  # FAISS keeps the offset below
        ranks: NDArray[np.int64] = (scores > np.take_along_axis(scores, lists[:, None], axis=1)).sum(axis=1)
        return ranks

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
        vectors: Floats = self._located().reconstruct_batch(np.ascontiguousarray(ids, dtype=np.int64))
        return vectors

    def to_gpu(self) -> bool:
        """Search on the first GPU from now on, if this FAISS can and the vectors fit; says whether it does."""
        if self._faiss is None or not hasattr(faiss, "StandardGpuResources") or not faiss.get_num_gpus():
            return False
        try:
            self._on_gpu = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, self._vectors)
        except RuntimeError as error:
            log.warning("index %s stays on the CPU: %s", self.folder, str(error).splitlines()[0])
            return False
        return True
