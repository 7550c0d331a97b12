"""Writing the vectors of an index as FAISS itself does: exact, or in the lists of an IVF index.

In the IVF form a query looks into the lists of the `nprobe` centroids of the greatest inner product with it instead of
at every vector. Both forms store the same fp16 vectors (no residuals), so that scores are the same.

FAISS writes an index that is in memory. So that vectors need not be, they are put in their order in a file beside it,
and FAISS is shown a view of that file where it expects its own arrays. (`faiss.contrib.ondisk` would merge on the disk,
but it prints to the standard output, again whenever its index is opened, and does not run on Windows.)
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import faiss
import numpy as np
from faiss.contrib.clustering import two_level_clustering
from numpy.typing import NDArray

from rag_mt.base.errors import UserError
from rag_mt.base.paths import whole_file
from rag_mt.base.types import Floats, Unit
from retrievers.index.files import MOST_LISTS

log = logging.getLogger("rag_mt")
lib: Any = faiss
"""FAISS without its type hints, which lack half of what it has."""

Form = Literal["exact", "ivf"]
FORMS = ("auto", "exact", "ivf")

IVF_FROM: dict[Unit, int] = {"phrase": 1 << 16, "sentence": 1 << 20, "passage": 1 << 20}
"""Units from which an index takes the IVF form by itself (`python -m eval.speed.index`): a sentence has some 45 query
phrases, which take about 20 ms in an exact index of that size, but is one query to an index of sentences."""

LISTS_PER_ROOT = 16
"""Lists per square root of the units: more than the usual 4 to 8, because looking for the lists is cheap next to
reading them and phrases form small groups."""
SAMPLE_PER_LIST = 16
SAMPLE_PER_GROUP = 2000
"""As many as FAISS looks at to make the groups; it copies a sample that is larger."""
SAMPLE_BYTES = 1 << 28
ROUNDS = 8
SEED = 1
GROUPED_FROM = 1024
"""Lists from which their centroids are looked for in groups."""
GROUPS_SEARCHED = 16
BLOCK_BYTES = 1 << 25
"""Vectors in memory as float32. Blocks begin at multiples of their size, whatever the shards were, so that FAISS
computes the same with the same bytes."""

METRIC = lib.METRIC_INNER_PRODUCT

Nearest = Callable[[NDArray[np.float16]], NDArray[np.int64]]
"""From vectors to the list of each."""


class Rows:
    """The vectors of the units in raw files, one after the other: `read` copies some into memory.

    `files` are (path, units) of files of fp16 rows.
    """

    def __init__(self, files: Sequence[tuple[Path, int]], dimension: int) -> None:
        self._files, self.dimension = files, dimension
        self.units = sum(units for _, units in files)

    def read(self, begin: int, end: int) -> NDArray[np.float16]:
        """Rows `begin` to `end` (exclusive), float16 (end - begin, dimension)."""
        parts, first = [np.zeros(0, "<f2")], 0
        for path, units in self._files:
            low, high = max(begin - first, 0), min(end - first, units)
            if low < high:
                size = self.dimension * np.dtype("<f2").itemsize
                parts.append(np.fromfile(path, "<f2", (high - low) * self.dimension, offset=low * size))
            first += units
        return np.concatenate(parts).reshape(-1, self.dimension)

    def sample(self, count: int) -> Floats:
        """`count` rows spread evenly over all, float32 (count, dimension); all of them if there are fewer."""
        chosen = np.linspace(0, self.units - 1, min(count, self.units)).astype(np.int64)
        rows, first = np.empty((len(chosen), self.dimension), dtype=np.float32), 0
        for path, units in self._files:
            low, high = np.searchsorted(chosen, [first, first + units])
            if low < high:
                vectors = np.memmap(path, "<f2", "r", shape=(units, self.dimension))
                rows[low:high] = vectors[chosen[low:high] - first]
            first += units
        return rows


def form_for(wanted: str, units: int, unit: Unit) -> Form:
    """The form that was asked for, or with `auto` the one that fits the size."""
    if wanted not in FORMS:
        raise UserError(f"unknown form {wanted!r} of an index: choose one of {', '.join(FORMS)}")
    if wanted != "auto":
        return cast(Form, wanted)
    return "ivf" if units >= IVF_FROM[unit] else "exact"


def lists_for(units: int, dimension: int) -> int:
    """The number of lists for that many vectors: a power of two or what the sample can train."""
    wanted = 1 << round(math.log2(LISTS_PER_ROOT * math.sqrt(units)))
    trainable = min(units, SAMPLE_BYTES // (4 * dimension)) // SAMPLE_PER_LIST
    return max(1, min(wanted, MOST_LISTS, trainable))


def write_vectors(path: Path, rows: Rows, form: Form, work: Path) -> int:
    """Write the vectors file of an index; returns the number of lists of the IVF form, else 0.

    Centroids and the lists of the vectors are kept in the folder `work`, where a later call for the same rows finds
    them. In memory are the training sample or a block of vectors, and eight bytes per unit of the IVF form.
    """
    work.mkdir(exist_ok=True)
    if form == "exact":
        index = lib.index_factory(rows.dimension, "SQfp16", METRIC)
        codes = _scratch(work / "codes", "<f2", (rows.units, rows.dimension))
        for low, high in _blocks(rows):
            codes[low:high] = rows.read(low, high)
        index.codes, index.ntotal = _view(codes), rows.units
        lib.write_index(index, str(path))
        return 0
    index = _trained(rows, work / "centroids.faiss")
    nearest = _nearest(index)
    # 1. The list of each vector.
    sizes = np.zeros(index.nlist, dtype=np.int64)
    files = [work / f"lists-{number:06d}.npy" for number in range(len(_blocks(rows)))]
    for file, (low, high) in zip(files, _blocks(rows), strict=True):
        assigned = _assigned(file, rows, low, high, nearest)
        sizes = sizes + np.bincount(assigned, minlength=index.nlist)
    # 2. Vectors and numbers of the units list by list, in a list by number.
    codes = _scratch(work / "codes", "<f2", (rows.units, rows.dimension))
    ids = _scratch(work / "ids", "<i8", (rows.units,))
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    filled = bounds[:-1].copy()
    for file, (low, high) in zip(files, _blocks(rows), strict=True):
        assigned = np.load(file, allow_pickle=False)
        order = np.argsort(assigned, kind="stable")
        lists = assigned[order]
        places = filled[lists] + np.arange(len(lists)) - np.searchsorted(lists, lists)
        codes[places], ids[places] = rows.read(low, high)[order], low + order
        filled = filled + np.bincount(assigned, minlength=index.nlist)
    # 3. The same as FAISS's lists: the numbers in memory (the vectors of 0 bytes with them), the vectors as views.
    inverted, views = lib.ArrayInvertedLists(index.nlist, 0), lib.MaybeOwnedVectorUInt8Vector()
    for number, (low, high) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        if low < high:
            inverted.add_entries(number, high - low, lib.swig_ptr(ids[low:high]), lib.swig_ptr(_NOTHING))
        views.push_back(_view(codes[low:high]))
    inverted.code_size, inverted.codes = index.code_size, views
    index.replace_invlists(inverted, False)
    index.ntotal = rows.units
    lib.write_index(index, str(path))
    return int(index.nlist)


_NOTHING = np.zeros(1, dtype=np.uint8)


def _scratch(path: Path, kind: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """A new array in a file, not in memory."""
    return np.memmap(path, dtype=kind, mode="w+", shape=shape)


def _view(codes: NDArray[Any]) -> Any:
    """The bytes of an array, which must outlive it, as FAISS's codes."""
    if not len(codes):
        return lib.MaybeOwnedVectorUInt8()
    owner = lib.MaybeOwnedVectorUInt8().owner  # none
    return lib.MaybeOwnedVectorUInt8.create_view(lib.swig_ptr(codes.reshape(-1)), codes.nbytes, owner)


def _blocks(rows: Rows) -> list[tuple[int, int]]:
    size = max(1, BLOCK_BYTES // (4 * rows.dimension))
    return [(low, min(low + size, rows.units)) for low in range(0, rows.units, size)]


def _assigned(path: Path, rows: Rows, low: int, high: int, nearest: Nearest) -> NDArray[np.int32]:
    """The lists of rows `low` to `high`, int32 (high - low,), from the file, or found and stored there."""
    try:
        lists: NDArray[np.int32] = np.load(path, allow_pickle=False)
        if lists.dtype == np.int32 and lists.shape == (high - low,):
            return lists
    except (OSError, ValueError, EOFError):
        pass
    lists = nearest(rows.read(low, high)).astype(np.int32)
    with whole_file(path) as part, part.open("wb") as file:
        np.save(file, lists, allow_pickle=False)
    return lists


def _trained(rows: Rows, path: Path) -> Any:
    """An empty IVF index with its centroids, of length 1, from the file, or made and stored there."""
    lists = lists_for(rows.units, rows.dimension)
    try:
        index = lib.read_index(str(path))
        if (index.d, index.nlist) == (rows.dimension, lists):
            return index
    except RuntimeError:
        pass
    sample = rows.sample(min(SAMPLE_PER_LIST * lists, SAMPLE_PER_GROUP * math.isqrt(lists)))
    log.info("centroids of %d lists from %d vectors", lists, len(sample))
    index = lib.index_factory(rows.dimension, f"IVF{lists}(SQfp16),SQfp16", METRIC)
    index.by_residual = False
    index.quantizer.add(_centroids(sample, lists))
    index.train(sample)
    with whole_file(path) as part:
        lib.write_index(index, str(part))
    return index


def _centroids(sample: Floats, lists: int) -> Floats:
    """Spherical k-means in two levels: sqrt(lists) groups, then lists within each group; that costs 2 sqrt(lists)
    products per vector and round instead of `lists`."""
    options = {"spherical": True, "seed": SEED, "min_points_per_centroid": 1}
    try:
        groups = math.isqrt(lists)
        two_level: Any = two_level_clustering
        centroids: Floats = two_level(sample, groups, lists, clustering_niter=ROUNDS, **options)[0]
    except RuntimeError:  # FAISS cannot train a group that is too small for a list of its own
        kmeans = lib.Kmeans(sample.shape[1], lists, niter=ROUNDS, **options)
        kmeans.train(sample)
        centroids = kmeans.centroids
    return centroids


def _nearest(trained: Any) -> Nearest:
    """A function from vectors to the list of each: that of the nearest centroid, looked for in the nearest groups of
    them where there are many."""
    centroids = trained.quantizer.reconstruct_n(0, trained.nlist)
    every = lib.IndexFlatIP(trained.d)
    every.add(centroids)
    near = every
    if trained.nlist >= GROUPED_FROM:
        near = lib.index_factory(trained.d, f"IVF{math.isqrt(trained.nlist)},Flat", METRIC)
        near.cp.min_points_per_centroid = 1
        near.train(centroids)
        near.add(centroids)
        near.nprobe = GROUPS_SEARCHED

    def nearest(vectors: NDArray[np.float16]) -> NDArray[np.int64]:
        block = vectors.astype(np.float32)
        lists: NDArray[np.int64] = near.search(block, 1)[1][:, 0]
        if len(lost := np.flatnonzero(lists < 0)):  # all groups that were searched are empty
            lists[lost] = every.search(block[lost], 1)[1][:, 0]
        return lists

    return nearest
