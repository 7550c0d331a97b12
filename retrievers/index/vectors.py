"""Writing the vectors of an index as FAISS itself does, exact or in the lists of an IVF index, and how many lists a
query looks into.

In the IVF form a query looks into the lists of the `nprobe` centroids of the greatest inner product with it instead of
at every vector: into as few as find the exact best unit nearly always. Both forms store the same fp16 vectors (no
residuals), so that scores are the same.

FAISS writes an index that is in memory. So that vectors need not be, they are put in their order in a file beside it,
and FAISS is shown a view of that file where it expects its own arrays. (`faiss.contrib.ondisk` would merge on the disk,
but it prints to the standard output, again whenever its index is opened, and does not run on Windows.)
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from rag_mt.base.console import progress
from rag_mt.base.defaults import FP16
from rag_mt.base.errors import UserError
from rag_mt.base.files import whole_file
from rag_mt.base.types import Floats, Unit
from retrievers.index.codes import SAMPLE, encode, exact_form, in_lists, take_codec
from retrievers.index.manifest import Manifest, change_manifest
from retrievers.index.opening import map_index
from retrievers.index.search import MOST_LISTS, Index

log = logging.getLogger("rag_mt")
lib: Any = faiss
"""FAISS without its type hints, which lack half of what it has."""

FORMS = ("auto", "exact", "ivf")

IVF_FROM: dict[Unit, int] = {"phrase": 1 << 16, "sentence": 1 << 20, "passage": 1 << 20, "memory": 1 << 20}
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
CENTROIDS = "centroids.faiss"
GROUPED_FROM = 1024
"""Lists from which their centroids are looked for in groups."""
GROUPS_SEARCHED = 16
BLOCK_BYTES = 1 << 25
"""Vectors in memory as float32. Blocks begin at multiples of their size, whatever the shards were, so that FAISS
computes the same with the same bytes; of the block that an index ends in which grows, the new rows are a part alone."""

MUCH_MORE = 4
"""Times the lists."""

RECALL = 0.99
QUERIES = 1024
"""Real queries that are enough to tune with."""
OWN = "own vectors"
"""The name of the measurement at build time."""
OWN_QUERIES = 512
OWN_COSINE = 0.7
OWN_MARGIN = 2
"""Times the lists that the index's own vectors need, until real queries tell."""
BLOCK = 128
"""Queries that are searched at once to tune with."""


class Rows:
    """The vectors of the units in raw files of fp16 rows, one after the other; `files` are (path, units)."""

    def __init__(self, files: Sequence[tuple[Path, int]], dimension: int) -> None:
        self._files, self.dimension = files, dimension
        self.units = sum(units for _, units in files)

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.float16]:
        """Copies of rows in ascending order, float16 (len(rows), dimension)."""
        taken, first = np.empty((len(rows), self.dimension), dtype="<f2"), 0
        for path, units in self._files:
            low, high = np.searchsorted(rows, [first, first + units])
            if low < high:
                stored = np.memmap(path, "<f2", "r", shape=(units, self.dimension))
                taken[low:high] = stored[rows[low:high] - first]
            first += units
        return taken

    def blocks(self) -> list[tuple[int, int]]:
        """First (inclusive) and last (exclusive) row of blocks that fit into memory."""
        size = max(1, BLOCK_BYTES // (4 * self.dimension))
        return [(low, min(low + size, self.units)) for low in range(0, self.units, size)]

    def read(self, low: int, high: int) -> NDArray[np.float16]:
        """Rows `low` to `high` (exclusive), float16 (high - low, dimension)."""
        return self.take(np.arange(low, high))

    def save(self, path: Path) -> None:
        """Write all rows as one raw file."""
        with path.open("wb") as file:
            for low, high in self.blocks():
                file.write(self.read(low, high).data)


def form_for(wanted: str, units: int, unit: Unit) -> str:
    """The form that was asked for, or with `auto` the one that fits the size; raises UserError for an unknown one."""
    if wanted not in FORMS:
        raise UserError(f"unknown form {wanted!r} of an index: choose one of {', '.join(FORMS)}")
    fitting = "ivf" if units >= IVF_FROM[unit] else "exact"
    return fitting if wanted == "auto" else wanted


def form_of(manifest: Manifest) -> str:
    """The form that an index keeps when it changes: `auto` where it has the one that fits its size."""
    kept = "exact" if manifest.ivf is None else "ivf"
    return "auto" if kept == form_for("auto", manifest.units, manifest.unit) else kept


def lists_for(units: int, dimension: int) -> int:
    """The number of lists for that many vectors: a power of two or what the sample can train."""
    wanted = 1 << round(math.log2(LISTS_PER_ROOT * math.sqrt(units)))
    trainable = min(units, SAMPLE_BYTES // (4 * dimension)) // SAMPLE_PER_LIST
    return max(1, min(wanted, MOST_LISTS, trainable))


def fitting(lists: int, rows: Rows) -> bool:
    """Whether an index of these rows would be given so many lists."""
    return lists == lists_for(rows.units, rows.dimension)


def write_vectors(
    path: Path, rows: Rows, form: str, work: Path, bits: int = FP16, base: Any = None, show: bool = False
) -> int:
    """Write the vectors file of an index with so many bits for each number (see `retrievers.index.codes`); returns the
    number of lists of the IVF form, else 0. `base` are the vectors of another one of the same form and bits, whose
    codec is taken. Centroids and the lists of the vectors are kept in the folder `work`, where a later call for the
    same rows finds them. In memory are the training sample or a block of vectors, and eight bytes per unit of the IVF
    form. `show` shows progress."""
    work.mkdir(exist_ok=True)
    if form == "exact":
        index = exact_form(bits, rows.dimension)
        _train(index, bits, rows, base)
        codes = np.memmap(work / "codes", np.uint8, "w+", shape=(rows.units, index.code_size))
        for low, high in rows.blocks():
            codes[low:high] = encode(index, bits, rows.read(low, high), None)
        index.codes, index.ntotal = _view(codes), rows.units
        lib.write_index(index, str(path))
        return 0
    index = _trained(rows, work / CENTROIDS)
    nearest = _nearest(index)
    if bits != FP16:
        index = in_lists(index.quantizer.reconstruct_n(0, index.nlist), bits)
        _train(index, bits, rows, base)
    codes = np.memmap(work / "codes", np.uint8, "w+", shape=(rows.units, index.code_size))
    # 1. The list of each vector.
    files = _list_files(work, rows)
    sizes = np.zeros(index.nlist, dtype=np.int64)
    with closing(progress(rows.units, "vectors", "looking for their lists", show=show)) as bar:
        for file, (low, high) in zip(files, rows.blocks(), strict=True):
            sizes += np.bincount(_assigned(file, rows, low, high, nearest), minlength=index.nlist)
            bar.update(high - low)
    # 2. Vectors and numbers of the units list by list, in a list by number.
    ids = np.memmap(work / "ids", "<i8", "w+", shape=(rows.units,))
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    filled = bounds[:-1].copy()
    with closing(progress(rows.units, "vectors", "storing them in lists", show=show)) as bar:
        for file, (low, high) in zip(files, rows.blocks(), strict=True):
            assigned = np.load(file, allow_pickle=False)
            order = np.argsort(assigned, kind="stable")
            lists = assigned[order]
            places = filled[lists] + np.arange(len(lists)) - np.searchsorted(lists, lists)
            codes[places] = encode(index, bits, rows.read(low, high)[order], lists.astype(np.int64))
            ids[places] = low + order
            filled += np.bincount(assigned, minlength=index.nlist)
            bar.update(high - low)
    # 3. The same as FAISS's lists: the numbers in memory (the vectors of 0 bytes with them), the vectors as views.
    inverted, views = lib.ArrayInvertedLists(index.nlist, 0), lib.MaybeOwnedVectorUInt8Vector()
    no_codes = np.zeros(1, dtype=np.uint8)
    for number, (low, high) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        if low < high:
            inverted.add_entries(number, high - low, lib.swig_ptr(ids[low:high]), lib.swig_ptr(no_codes))
        views.push_back(_view(codes[low:high]))
    inverted.code_size, inverted.codes = index.code_size, views
    index.replace_invlists(inverted, False)
    index.ntotal = rows.units
    lib.write_index(index, str(path))
    return int(index.nlist)


def seed_lists(work: Path, base: Index, lists: NDArray[np.int32], rows: Rows) -> bool:
    """Let `write_vectors` go on with the lists of the index `base`; `lists` (units,) are those of the first rows, which
    are its vectors. False if the rows need another number of lists; those of an index that has its vectors in few bits
    alone stay until it is MUCH_MORE, because vectors lose more in other ones."""
    centroids, wanted = base.centroids, lists_for(rows.units, rows.dimension)
    if not (wanted == len(centroids) or (base.manifest.lossy and wanted < MUCH_MORE * len(centroids))):
        return False
    work.mkdir(exist_ok=True)
    if not (work / CENTROIDS).exists():
        index = in_lists(centroids, FP16)
        index.train(centroids)
        with whole_file(work / CENTROIDS) as part:
            lib.write_index(index, str(part))
    for file, (low, high) in zip(_list_files(work, rows), rows.blocks(), strict=True):
        if low < len(lists) and not file.exists():
            _store(file, lists[low:high])
    return True


def _list_files(work: Path, rows: Rows) -> list[Path]:
    """Where the lists of each block of rows are kept."""
    return [work / f"lists-{number:06d}.npy" for number in range(len(rows.blocks()))]


def _store(path: Path, lists: NDArray[np.int32]) -> None:
    with whole_file(path) as part, part.open("wb") as file:
        np.save(file, lists, allow_pickle=False)


def _view(codes: NDArray[Any]) -> Any:
    """The bytes of an array, which must outlive it, as FAISS's codes."""
    if not len(codes):
        return lib.MaybeOwnedVectorUInt8()
    no_owner = lib.MaybeOwnedVectorUInt8().owner
    return lib.MaybeOwnedVectorUInt8.create_view(lib.swig_ptr(codes.reshape(-1)), codes.nbytes, no_owner)


def _assigned(
    path: Path, rows: Rows, low: int, high: int, nearest: Callable[[Floats], NDArray[np.int64]]
) -> NDArray[np.int32]:
    """The lists of rows `low` to `high`, int32 (high - low,), from the file; those that it lacks are found and stored
    there."""
    lists = np.empty(0, np.int32)
    with suppress(OSError, ValueError, EOFError):
        stored = np.load(path, allow_pickle=False)
        if stored.dtype == np.int32 and stored.ndim == 1 and len(stored) <= high - low:
            lists = stored
    if low + len(lists) < high:
        rest = nearest(rows.read(low + len(lists), high).astype(np.float32)).astype(np.int32)
        lists = np.concatenate([lists, rest])
        _store(path, lists)
    return lists


def _trained(rows: Rows, path: Path) -> Any:
    """An empty IVF index with its centroids, of length 1, from the file, or made and stored there."""
    with suppress(RuntimeError):
        index = lib.read_index(str(path))
        if index.d == rows.dimension:
            return index
    lists = lists_for(rows.units, rows.dimension)
    size = min(SAMPLE_PER_LIST * lists, SAMPLE_PER_GROUP * math.isqrt(lists))
    sample = rows.take(_evenly(rows, size)).astype(np.float32)
    log.info("centroids of %d lists from %d vectors", lists, len(sample))
    index = in_lists(_centroids(sample, lists), FP16)
    index.train(sample)
    with whole_file(path) as part:
        lib.write_index(index, str(part))
    return index


def _train(index: Any, bits: int, rows: Rows, base: Any) -> None:
    """Make the codec of an empty index, if it needs one, or take that of `base`."""
    if base is not None:
        take_codec(index, bits, base)
    elif bits != FP16:
        index.train(rows.take(_evenly(rows, SAMPLE)).astype(np.float32))


def _evenly(rows: Rows, size: int) -> NDArray[np.int64]:
    """The numbers of so many rows, spread evenly."""
    return np.linspace(0, rows.units - 1, min(size, rows.units)).astype(np.int64)


def _centroids(sample: Floats, lists: int) -> Floats:
    """Spherical k-means in two levels: sqrt(lists) groups, then lists within each group; that costs 2 sqrt(lists)
    products per vector and round instead of `lists`."""
    from faiss.contrib.clustering import two_level_clustering  # which brings SciPy

    options: dict[str, Any] = {"spherical": True, "seed": SEED, "min_points_per_centroid": 1}
    try:
        two_level: Any = two_level_clustering
        centroids: Floats = two_level(sample, math.isqrt(lists), lists, clustering_niter=ROUNDS, **options)[0]
    except RuntimeError:  # FAISS cannot train a group that is too small for a list of its own
        kmeans = lib.Kmeans(sample.shape[1], lists, niter=ROUNDS, **options)
        kmeans.train(sample)
        centroids = kmeans.centroids
    return centroids


def _nearest(trained: Any) -> Callable[[Floats], NDArray[np.int64]]:
    """A function from vectors to the list of each: that of the nearest centroid, looked for in the nearest groups of
    them where there are many."""
    centroids = trained.quantizer.reconstruct_n(0, trained.nlist)
    every = lib.IndexFlatIP(trained.d)
    every.add(centroids)
    near = every
    if trained.nlist >= GROUPED_FROM:
        near = lib.index_factory(trained.d, f"IVF{math.isqrt(trained.nlist)},Flat", lib.METRIC_INNER_PRODUCT)
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


def tune_nprobe(index: Index, queries: Floats, recall: float = RECALL, source: str = "queries") -> int:
    """The number of lists that finds the exact best unit for a share `recall` of the `queries` float32 (n, dimension),
    now what the IVF index searches with unless another source language needs more.

    It is the smallest that does so for a share one standard error above `recall`, so that it holds for other queries of
    their kind. It is stored in the manifest under the name `source`, in the place of what was measured on the index's
    own vectors, and returned. Raises ValueError for an exact index, no queries or a share that is none, UserError if
    the index was replaced meanwhile.
    """
    if index.manifest.ivf is None or not len(queries) or not 0 < recall <= 1:
        raise ValueError(
            f"{len(queries)} queries, recall {recall}: expected queries for an IVF index and 0 < recall <= 1"
        )
    needed = needed_probes(index, queries)
    probes = _enough(needed, recall)

    def change(manifest: Manifest) -> Manifest:
        ivf: dict[str, Any] = dict(manifest.ivf or {})
        measured = {**ivf["measured"], source: _measurement(needed, probes)}
        tuned = [int(m["nprobe"]) for name, m in measured.items() if name != OWN]
        return replace(manifest, ivf={**ivf, "measured": measured, "nprobe": max(tuned)})

    index.manifest = change_manifest(index.folder, index.manifest, "calibration", change)
    return probes


def with_ivf(folder: Path, manifest: Manifest, lists: int) -> Manifest:
    """The manifest of the IVF index in `folder` with `nlist`, and `nprobe` and recall@1 measured on vectors of its
    own."""
    index = map_index(folder, replace(manifest, ivf={"nlist": lists, "nprobe": lists, "measured": {}}))
    return replace(manifest, ivf=measured_on_own(index, lists))


def measured_on_own(index: Index, lists: int) -> dict[str, Any]:
    """What the manifest of an index with so many lists says of them, measured on its own vectors: the queries are
    OWN_QUERIES of them, each turned in a random direction until its cosine with itself is OWN_COSINE, as far as a
    phrase is from its translation."""
    chosen = np.unique(np.linspace(0, len(index) - 1, OWN_QUERIES).astype(np.int64))
    needed = needed_probes(index, turned(index.reconstruct(chosen), OWN_COSINE, np.random.default_rng(SEED)))
    probes = min(OWN_MARGIN * _enough(needed, RECALL), lists)
    log.info("%d of %d lists are searched", probes, lists)
    return {"nlist": lists, "nprobe": probes, "measured": {OWN: _measurement(needed, probes)}}


def turned(vectors: Floats, cosine: float, rng: np.random.Generator) -> Floats:
    """The vectors (n, dimension), each turned in a random direction to that cosine with itself, lengths kept."""
    tiny = np.finfo(np.float32).tiny
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    directions = vectors / np.maximum(lengths, tiny)
    noise = rng.standard_normal(vectors.shape, dtype=np.float32)
    noise -= (noise * directions).sum(axis=1, keepdims=True) * directions
    noise /= np.maximum(np.linalg.norm(noise, axis=1, keepdims=True), tiny)
    rotated: Floats = (lengths * (cosine * directions + math.sqrt(1 - cosine**2) * noise)).astype(np.float32)
    return rotated


def needed_probes(index: Index, queries: Floats) -> NDArray[np.int64]:
    """For each query (n, dimension) the number of lists to look into for its exact best unit."""
    blocks = [queries[begin : begin + BLOCK] for begin in range(0, len(queries), BLOCK)]
    best = [index.search(block, 1, probes=MOST_LISTS)[1][:, 0] for block in blocks]
    return np.concatenate([index.list_ranks(block, ids) + 1 for block, ids in zip(blocks, best, strict=True)])


def _enough(needed: NDArray[np.int64], recall: float) -> int:
    share = min(1.0, recall + math.sqrt(recall * (1 - recall) / len(needed)))
    return int(np.sort(needed)[math.ceil(share * len(needed)) - 1])


def _measurement(needed: NDArray[np.int64], probes: int) -> dict[str, Any]:
    return {"nprobe": probes, "recall": float((needed <= probes).mean()), "queries": len(needed)}
