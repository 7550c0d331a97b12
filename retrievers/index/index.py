"""A finished index: opened without copying, searched exactly or by lists (IVF), checked before it is trusted."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import file_sha256, remembered_sha256
from rag_mt.base.types import Floats, Hit, Origin, Sentence, Span
from retrievers.bm25 import Bm25
from retrievers.index.lists import Rows, lists_problem
from retrievers.index.manifest import Manifest, damaged, differences, read_manifest
from retrievers.index.store import (
    PLACES,
    SPANS,
    VECTORS,
    header_problem,
    map_sentences,
    map_spans,
    map_vectors,
    vectors_problem,
)
from retrievers.units.unit import QUERY_THRESHOLD

__all__ = ["Index", "LeftOut", "map_index", "open_index", "verify_index"]

log = logging.getLogger("rag_mt")

VERIFIED_AT_ONCE = 65536
MORE_PROBES = 4
GPU_PROBES = 2048
"""FAISS's limit."""

LeftOut = int | Sequence[int]
"""The number of a sentence that a search leaves out, or several."""


class Index:
    """Units of target-language text with their vectors, memory-mapped from `folder`."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        vectors: faiss.Index | None,
        spans: NDArray[np.int32],
        sentences: pa.Table,
        rows: Rows | None = None,
    ) -> None:
        self.folder, self.manifest = folder, manifest
        self._faiss, self._spans, self._rows = vectors, spans, rows
        self._on_gpu: faiss.Index | None = None
        self._terms: Bm25 | None = None
        self._texts, self._files, self._lines = (sentences.column(name) for name in ("text", "file", "line"))
        self._starts = sentences.column("start") if "start" in sentences.column_names else None

    def __len__(self) -> int:
        """The number of units."""
        return self.manifest.units

    def search(
        self, vectors: Floats, k: int, without: LeftOut | None = None, probes: int | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
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
    def _vectors(self) -> faiss.Index:
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

    def _best(
        self, queries: Floats, k: int, without: LeftOut | None, probes: int | None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """`search` in `probes` lists (None: the index has none)."""
        options = self._options(without, probes)
        gpu = self._on_gpu if without is None and (probes is None or probes <= GPU_PROBES) else None
        vectors = self._vectors if gpu is None else gpu  # only the CPU can leave units out
        # An exact index scans by ascending number and keeps the first of equal scores; lists come in any order.
        found = 1 if k == 1 and probes is None else min(k + 1, len(self))
        scores, ids = vectors.search(queries, found, params=options)
        # Which of several equal scores FAISS keeps at the end of a list is its own affair: look further down.
        while k < found < len(self) and bool(((scores[:, k - 1] == scores[:, -1]) & (ids[:, -1] >= 0)).any()):
            found = min(2 * found, len(self))
            scores, ids = vectors.search(queries, found, params=options)
        order = np.lexsort((ids, -scores), axis=-1)[:, :k]
        return np.take_along_axis(scores, order, axis=1), np.take_along_axis(ids, order, axis=1)

    def _options(self, without: LeftOut | None, probes: int | None) -> faiss.SearchParameters | None:
        """FAISS's parameters that leave out sentences and look into that many lists."""
        made: dict[str, Any] = {} if probes is None else {"nprobe": probes}
        if isinstance(without, Sequence):
            units = [unit for sentence in without for unit in range(*self.units_of(sentence))]
            made["sel"] = faiss.IDSelectorNot(faiss.IDSelectorBatch(np.array(units, dtype=np.int64)))
        elif without is not None:
            made["sel"] = faiss.IDSelectorNot(faiss.IDSelectorRange(*self.units_of(without)))
        kind = faiss.SearchParameters if probes is None else faiss.SearchParametersIVF
        return kind(**made) if made else None

    def list_ranks(self, vectors: Floats, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each vector (queries, dimension) how many lists of an IVF index come before that of the unit with the
        same position in `units`: one more than that must be looked into to find it."""
        if self._rows is None:
            raise ValueError("an exact index has no lists")
        centroids = faiss.downcast_index(self._vectors.quantizer)  # type: ignore[attr-defined]
        scores = np.asarray(vectors, dtype=np.float32) @ centroids.reconstruct_n(0, centroids.ntotal).T
        own = np.take_along_axis(scores, self._rows.lists_of(units)[:, None], axis=1)
        ranks: NDArray[np.int64] = (scores > own).sum(axis=1)
        return ranks

    def units_of(self, sentence: int) -> tuple[int, int]:
        """First (inclusive) and last (exclusive) unit of a sentence."""
        first, last = np.searchsorted(self._spans[:, 0], [sentence, sentence + 1])
        return int(first), int(last)

    def sentence(self, number: int) -> Sentence:
        """The sentence with that number, with where it came from."""
        start = 0 if self._starts is None else self._starts[number].as_py()
        origin = Origin(self._files[number].as_py(), self._lines[number].as_py(), start)
        return Sentence(self._texts[number].as_py(), self.manifest.language, origin)

    def spans(self, units: NDArray[np.int64]) -> NDArray[np.int32]:
        """Sentence number, start and end character of each of the units, int32 (len(units), 3)."""
        return self._spans[units]

    def hit(self, unit: int, score: float) -> Hit:
        """The unit with that number as a Hit."""
        number, start, end = self._spans[unit].tolist()
        return Hit(self.sentence(number), Span(start, end), float(score))

    def reconstruct(self, ids: NDArray[np.int64]) -> Floats:
        """The stored vectors (fp16 precision) of units, float32 (len(ids), dimension)."""
        if self._rows is not None:
            return self._rows.reconstruct(np.asarray(ids, dtype=np.int64))
        vectors: Floats = self._vectors.reconstruct_batch(np.ascontiguousarray(ids, dtype=np.int64))
        return vectors

    def misplaced(self, units: NDArray[np.int64]) -> bool:
        """Whether the files of an IVF index disagree on where any of the units is."""
        return self._rows is not None and self._rows.misplaced(units)

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


def open_index(folder: Path, maker_settings: Mapping[str, Any] | None = None) -> Index:
    """The index in `folder`, mapped into memory.

    `maker_settings` are those of the unit maker that will make the queries: vectors of other settings cannot be
    compared. A file is hashed in full when it is first opened and whenever anything has changed it since (see
    `remembered_sha256`); `verify_index` reads every byte.
    Raises UserError for a missing or damaged index, one of another format, and one of other settings.
    """
    manifest = read_manifest(folder)
    if maker_settings is not None:
        _check_settings(folder, manifest, maker_settings)
    _check_files(folder, manifest, remembered=True)
    return map_index(folder, manifest)


def _check_settings(folder: Path, manifest: Manifest, settings: Mapping[str, Any]) -> None:
    # The fingerprint tells encoders apart; the same one may go by different names (hub id, folder). What only queries
    # depend on is recorded and may change.
    own = ("encoder", QUERY_THRESHOLD)
    found = {**manifest.settings, **{key: settings[key] for key in own if key in settings}}
    different = differences(found, settings)
    if different:
        name = "" if manifest.encoder == settings.get("encoder") else f" by encoder {manifest.encoder}"
        raise UserError(
            f"index {folder} was built{name} with other settings ({'; '.join(different)}): "
            "use the encoder it was built with, or build it again with `rag-mt index build --replace`"
        )


def _check_files(folder: Path, manifest: Manifest, remembered: bool) -> None:
    """Sizes, headers and hashes, in that order, before any library parses a file."""
    for name in manifest.file_names:
        path, size = folder / name, manifest.files[name]["size"]
        if not path.is_file():
            raise damaged(folder, f"{name} is missing")
        if path.stat().st_size != size:
            raise damaged(folder, f"{name} has {path.stat().st_size} bytes, not {size}")
    if problem := _header_problem(folder, manifest):
        raise damaged(folder, problem)
    for name in manifest.file_names:
        digest = remembered_sha256(folder / name) if remembered else file_sha256(folder / name)
        if digest != manifest.files[name]["sha256"]:
            raise damaged(folder, f"{name} does not match its sha256")


def _header_problem(folder: Path, manifest: Manifest) -> str:
    if not manifest.dimension:
        problem = ""
    elif manifest.ivf is None:
        problem = vectors_problem(folder, manifest.dimension, manifest.units)
    else:
        problem = lists_problem(folder, manifest.dimension, manifest.units, int(manifest.ivf["nlist"]))
    return problem or header_problem(folder, manifest.units)


def map_index(folder: Path, manifest: Manifest) -> Index:
    """The index of files that are known to be what the manifest says; raises UserError if they do not fit together."""
    try:
        vectors, sentences = map_vectors(folder) if manifest.dimension else None, map_sentences(folder)
        spans = map_spans(folder)
    except (OSError, ValueError, RuntimeError, pa.ArrowException) as error:  # those of FAISS, pyarrow and NumPy
        raise damaged(folder, f"its files cannot be read ({str(error).splitlines()[0]})") from error
    shape = (manifest.units, 0) if vectors is None else (vectors.ntotal, vectors.d)
    if (*shape, len(sentences)) != (manifest.units, manifest.dimension, manifest.sentences):
        raise damaged(folder, "its files do not fit together")
    rows = None
    if manifest.ivf is not None:
        rows = Rows(folder, manifest.dimension, manifest.units, int(manifest.ivf["nlist"]))
    return Index(folder, manifest, vectors, spans, sentences, rows)


def verify_index(folder: Path) -> list[str]:
    """Check every byte and what the files say about each other; returns one line per check that passed.

    Raises UserError with the first thing that is wrong.
    """
    manifest = read_manifest(folder)
    _check_files(folder, manifest, remembered=False)
    index = map_index(folder, manifest)
    lengths = _lengths(folder, manifest)
    if problem := _spans_invariant(folder, lengths) or _vectors_invariant(index) or _terms_invariant(index):
        raise damaged(folder, problem)
    sizes = [f"{name}: {manifest.files[name]['size']} bytes, sha256 as in the manifest" for name in manifest.file_names]
    return [
        f"manifest.json: format {manifest.format}, matches its own hash",
        *sizes,
        f"{manifest.units} spans lie inside their {manifest.sentences} sentences, in order",
        *([] if not manifest.dimension else [_vectors_fact(manifest)]),
        *([] if manifest.terms is None else [f"{manifest.units} units have their terms"]),
    ]


def _lengths(folder: Path, manifest: Manifest) -> NDArray[np.int32]:
    """The length in characters of every sentence; checks the structure of the table."""
    import pyarrow.compute as pc

    table = map_sentences(folder)
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        raise damaged(folder, f"sentences.arrow is inconsistent ({str(error).splitlines()[0]})") from None
    if sum(column.null_count for column in table.columns):
        raise damaged(folder, "sentences.arrow has empty entries")
    lengths: NDArray[np.int32] = pc.utf8_length(table.column("text")).to_numpy()
    return lengths


def _spans_invariant(folder: Path, lengths: NDArray[np.int32]) -> str:
    spans = map_spans(folder)
    last = 0
    for begin in range(0, len(spans), VERIFIED_AT_ONCE):
        number, start, end = spans[begin : begin + VERIFIED_AT_ONCE].T
        if number.min() < 0 or number.max() >= len(lengths):
            return f"{SPANS} points to sentences that are not there"
        if number[0] < last or (np.diff(number) < 0).any():
            return f"{SPANS} is not in the order of the sentences"
        if (start < 0).any() or (start >= end).any() or (end > lengths[number]).any():
            return f"{SPANS} has spans outside their sentence"
        last = number[-1]
    return ""


def _vectors_fact(manifest: Manifest) -> str:
    return (
        f"{manifest.units} vectors have length 1" if _normalised(manifest) else f"{manifest.units} vectors are finite"
    )


def _terms_invariant(index: Index) -> str:
    return "" if index.manifest.terms is None else index.terms.problem(len(index))


def _normalised(manifest: Manifest) -> bool:
    """Whether vectors have length 1, as they do unless the unit maker says otherwise."""
    return bool(manifest.settings.get("normalised", True))


def _vectors_invariant(index: Index) -> str:
    if not index.manifest.dimension:
        return ""
    for begin in range(0, len(index), VERIFIED_AT_ONCE // 16):
        units = np.arange(begin, min(begin + VERIFIED_AT_ONCE // 16, len(index)))
        if index.misplaced(units):
            return f"{PLACES} and {VECTORS} disagree on where the units are"
        rows = index.reconstruct(units)
        if not _normalised(index.manifest):
            if not np.isfinite(rows).all():
                return f"{VECTORS} has vectors that are not finite"
        elif not np.allclose(np.linalg.norm(rows, axis=1), 1, atol=0.01):  # NaN is not close either
            return f"{VECTORS} has vectors whose length is not 1"
    return ""
