"""Writing the vectors of an index: exact, or in the lists of an IVF index; one bounded file of FAISS after the other.

In the IVF form a query looks into the lists of the `nprobe` centroids of the greatest inner product with it instead of
at every vector. Both forms store the same fp16 vectors (no residuals), so that scores are the same. Units
`n * units_per_part` and following stand in file n, under their numbers within the file; all files of an IVF index have
the same centroids. So no file has to fit into memory together with another one, and finished ones are kept when the
build is killed.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Literal, cast

import faiss
import numpy as np
from faiss.contrib.clustering import two_level_clustering
from faiss.contrib.ivf_tools import add_preassigned
from numpy.typing import NDArray

from rag_mt.base.errors import UserError
from rag_mt.base.paths import whole_file
from rag_mt.base.types import Floats, Unit
from retrievers.index.files import MOST_LISTS, units_per_part, vectors_files

log = logging.getLogger("rag_mt")

Form = Literal["exact", "ivf"]
FORMS = ("auto", "exact", "ivf")

IVF_FROM: dict[Unit, int] = {"phrase": 1 << 16, "sentence": 1 << 20, "passage": 1 << 20}
"""Units from which an index takes the IVF form by itself (`python -m eval.index_speed`): a sentence has some 45 query
phrases, which take about 20 ms in an exact index of that size, but is one query to an index of sentences."""

LISTS_PER_ROOT = 16
"""Lists per square root of the units: more than the usual 4 to 8, because looking for the lists is cheap next to
reading them and phrases form small groups."""
SAMPLE_PER_LIST = 16
SAMPLE_BYTES = 1 << 28
ROUNDS = 8
SEED = 1
GROUPED_FROM = 1024
"""Lists from which their centroids are looked for in groups."""
GROUPS_SEARCHED = 16
BLOCK_BYTES = 1 << 25
"""Vectors in memory as float32. Blocks begin at multiples of their size, whatever the shards were, so that FAISS
computes the same with the same bytes."""

METRIC = faiss.METRIC_INNER_PRODUCT


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
        parts, first = [], 0
        for path, units in self._files:
            own = chosen[(chosen >= first) & (chosen < first + units)] - first
            if len(own):
                parts.append(np.fromfile(path, "<f2").reshape(units, -1)[own].astype(np.float32))
            first += units
        return np.concatenate(parts)


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


def write_vectors(folder: Path, rows: Rows, form: Form, trained_file: Path) -> int:
    """Write the vectors files of an index into `folder`; returns the number of lists of the IVF form, else 0.

    The centroids are kept in `trained_file`. It and the files in `folder` are those of an earlier, interrupted call
    for the same rows and form, if any: whole ones are not made again. In memory are the training sample, then one
    file of vectors and one block of them.
    """
    lists = lists_for(rows.units, rows.dimension) if form == "ivf" else 0
    size = units_per_part(rows.dimension)

    @cache
    def trained() -> faiss.Index:
        return _kept(trained_file, rows.dimension, 0, lists, lambda: _trained(rows, lists))

    @cache
    def nearest() -> Callable[[Floats], NDArray[np.int64]]:
        return _nearest(trained())

    for part, name in enumerate(vectors_files(rows.dimension, rows.units)):
        begin, end = part * size, min((part + 1) * size, rows.units)

        def make(begin: int = begin, end: int = end) -> faiss.Index:
            return _ivf_part(rows, begin, end, trained(), nearest()) if lists else _exact_part(rows, begin, end)

        _kept(folder / name, rows.dimension, end - begin, lists, make)
    return lists


def _kept(path: Path, dimension: int, units: int, lists: int, make: Callable[[], faiss.Index]) -> faiss.Index:
    """The index in the file, made and stored there if there is none with such counts."""
    if path.is_file():
        try:
            index = faiss.read_index(str(path))  # in memory: this reader notices every missing byte
            if (index.d, index.ntotal, getattr(index, "nlist", 0)) == (dimension, units, lists):
                return index
        except RuntimeError:
            pass
        log.warning("%s is damaged and is made again", path)
    with whole_file(path) as part:
        index = make()
        faiss.write_index(index, str(part))
    return index


def _exact_part(rows: Rows, begin: int, end: int) -> faiss.Index:
    index = faiss.index_factory(rows.dimension, "SQfp16", METRIC)
    for low, high in _blocks(begin, end, rows.dimension):
        index.add(rows.read(low, high).astype(np.float32))
    return index


def _ivf_part(
    rows: Rows, begin: int, end: int, trained: faiss.Index, nearest: Callable[[Floats], NDArray[np.int64]]
) -> faiss.Index:
    index = faiss.clone_index(trained)
    for low, high in _blocks(begin, end, rows.dimension):
        block = rows.read(low, high).astype(np.float32)
        add_preassigned(index, block, nearest(block))
    return index


def _blocks(begin: int, end: int, dimension: int) -> list[tuple[int, int]]:
    size = max(1, BLOCK_BYTES // (4 * dimension))
    return [(low, min(low + size, end)) for low in range(begin, end, size)]


def _trained(rows: Rows, lists: int) -> faiss.Index:
    """An empty IVF index with its centroids, of length 1."""
    sample = rows.sample(SAMPLE_PER_LIST * lists)
    log.info("centroids of %d lists from %d vectors", lists, len(sample))
    index = faiss.index_factory(rows.dimension, f"IVF{lists}(SQfp16),SQfp16", METRIC)
    index.by_residual = False
    index.quantizer.add(_centroids(sample, lists))
    index.train(sample)
    return index


def _centroids(sample: Floats, lists: int) -> Floats:
    """Spherical k-means in two levels: sqrt(lists) groups, then lists within each group; that costs 2 sqrt(lists)
    products per vector and round instead of `lists`."""
    options = {"spherical": True, "seed": SEED, "min_points_per_centroid": 1}
    try:
        return cast(
            Floats, two_level_clustering(sample, math.isqrt(lists), lists, clustering_niter=ROUNDS, **options)[0]
        )
    except RuntimeError:  # FAISS cannot train a group that is too small for a list of its own
        kmeans = faiss.Kmeans(sample.shape[1], lists, niter=ROUNDS, **options)
        kmeans.train(sample)
        return cast(Floats, kmeans.centroids)


def _nearest(trained: faiss.Index) -> Callable[[Floats], NDArray[np.int64]]:
    """A function from vectors to the list of each: that of the nearest centroid, looked for in the nearest groups of
    them where there are many."""
    centroids = trained.quantizer.reconstruct_n(0, trained.nlist)
    every = faiss.IndexFlatIP(trained.d)
    every.add(centroids)
    near = every
    if trained.nlist >= GROUPED_FROM:
        near = faiss.index_factory(trained.d, f"IVF{math.isqrt(trained.nlist)},Flat", METRIC)
        near.cp.min_points_per_centroid = 1
        near.train(centroids)
        near.add(centroids)
        near.nprobe = GROUPS_SEARCHED

    def nearest(vectors: Floats) -> NDArray[np.int64]:
        lists: NDArray[np.int64] = near.search(vectors, 1)[1][:, 0]
        if len(lost := np.flatnonzero(lists < 0)):  # all groups that were searched are empty
            lists[lost] = every.search(vectors[lost], 1)[1][:, 0]
        return lists

    return nearest
