"""Making the IVF form of an index: centroids from a sample, a list of units for each, written part by part.

A query then looks into the lists of the `nprobe` centroids of the greatest inner product with it instead of at every
vector. The vectors are those of the exact form (fp16, no residuals), so that scores are the same.
The centroids come from spherical k-means in two levels: sqrt(lists) groups, then lists within each group; that costs
2 sqrt(lists) products per vector and round instead of `lists`.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar, cast

import faiss
import numpy as np
from numpy.typing import NDArray

from rag_mt.base.errors import UserError
from rag_mt.base.paths import whole_file
from rag_mt.base.types import Floats, Unit
from retrievers.index.lists import layout_of, lists_header, places_header
from retrievers.index.store import PLACES, VECTORS

log = logging.getLogger("rag_mt")

Form = Literal["exact", "ivf"]
N = TypeVar("N", np.float32, np.int32)
FORMS = ("auto", "exact", "ivf")

IVF_FROM: dict[Unit, int] = {"phrase": 1 << 16, "sentence": 1 << 20, "passage": 1 << 20}
"""Units from which an index takes the IVF form by itself (`python -m eval.speed.index`): a sentence has some 45 query
phrases, which take about 20 ms in an exact index of that size, but is one query to an index of sentences."""

LISTS_PER_ROOT = 16
"""Lists per square root of the units: more than the usual 4 to 8, because looking for the lists is cheap next to
reading them and phrases form small groups."""
MOST_LISTS = 1 << 15
SAMPLE_PER_LIST = 16
SAMPLE_BYTES = 1 << 28
ROUNDS = 8
SEED = 1
GROUPED_FROM = 1024
GROUPS_SEARCHED = 16
BLOCK_BYTES = 1 << 26


@dataclass(frozen=True)
class Part:
    """Some vectors of an index: `load` reads them, float16 (units, dimension)."""

    units: int
    digest: str
    load: Callable[[], NDArray[np.float16]]


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


def write_lists(folder: Path, parts: Sequence[Part], dimension: int, work: Path) -> int:
    """Write the vectors and places files of an IVF index of all parts; returns the number of lists.

    Centroids and the lists of each part's vectors are kept under `work`, where a later call for the same parts finds
    them. One block of vectors, the training sample and four bytes per unit of one part are in memory.
    """
    units = sum(p.units for p in parts)
    lists = lists_for(units, dimension)
    key = hashlib.sha256(repr([lists, dimension, [(p.units, p.digest) for p in parts]]).encode()).hexdigest()[:16]
    kept = work / key
    kept.mkdir(parents=True, exist_ok=True)
    groups = math.isqrt(lists)
    trained = _kept(kept / "centroids.npy", np.float32, (groups + lists, dimension), partial(_train, parts, lists))
    nearest = _nearest(trained[:groups], trained[groups:])
    centroids = trained[groups:].astype(np.float16).astype(np.float32)
    sizes = np.zeros(lists, np.int64)
    for number, part in enumerate(parts):
        sizes += np.bincount(_assigned(kept, number, part, nearest), minlength=lists)
    _write(folder, parts, lambda n: _assigned(kept, n, parts[n], nearest), centroids, sizes)
    return lists


def _kept(path: Path, kind: type[N], shape: tuple[int, ...], make: Callable[[], NDArray[N]]) -> NDArray[N]:
    """The array in the file, made and stored there if there is none of that type and shape."""
    try:
        found = np.load(path, allow_pickle=False)
        if found.dtype == kind and found.shape == shape:
            return cast("NDArray[N]", found)
    except (OSError, ValueError, EOFError):
        pass
    made = make()
    with whole_file(path) as part, part.open("wb") as file:
        np.save(file, made, allow_pickle=False)
    return made


def _assigned(kept: Path, number: int, part: Part, nearest: Callable[[Floats], NDArray[np.int64]]) -> NDArray[np.int32]:
    """The list of each vector of a part, int32 (units,)."""

    def make() -> NDArray[np.int32]:
        lists = [nearest(block.astype(np.float32)).astype(np.int32) for block in _blocks(part.load())]
        return np.concatenate([np.zeros(0, np.int32), *lists])

    return _kept(kept / f"lists-{number:06d}.npy", np.int32, (part.units,), make)


def _blocks(vectors: NDArray[np.float16]) -> Iterator[NDArray[np.float16]]:
    size = max(1, BLOCK_BYTES // (4 * vectors.shape[1]))
    for begin in range(0, len(vectors), size):
        yield vectors[begin : begin + size]


def _train(parts: Sequence[Part], lists: int) -> Floats:
    """Centroids of the groups and of the lists, float32 (groups + lists, dimension), of length 1."""
    sample = _sample(parts, lists)
    groups = _k_means(sample, math.isqrt(lists))
    own = _flat(groups).search(sample, 1)[1][:, 0]
    ends = np.cumsum(np.bincount(own, minlength=len(groups)))
    shares = np.diff(np.round(ends * (lists / len(sample))).astype(int), prepend=0)
    log.info("centroids of %d lists from %d vectors", lists, len(sample))
    found = [_k_means(sample[own == g], int(share)) for g, share in enumerate(shares) if share]
    return np.concatenate([groups, *found])


def _sample(parts: Sequence[Part], lists: int) -> Floats:
    """Vectors spread evenly over all parts."""
    units = sum(p.units for p in parts)
    rows = np.linspace(0, units - 1, min(units, SAMPLE_PER_LIST * lists)).astype(np.int64)
    ends = np.cumsum([p.units for p in parts])
    found, first = [], 0
    for part, end in zip(parts, ends.tolist(), strict=True):
        wanted = rows[(rows >= first) & (rows < end)] - first
        if len(wanted):
            found.append(part.load()[wanted].astype(np.float32))
        first = end
    return np.concatenate(found)


def _k_means(vectors: Floats, count: int) -> Floats:
    clustering = faiss.Clustering(vectors.shape[1], count)
    clustering.seed, clustering.niter, clustering.spherical = SEED, ROUNDS, True
    clustering.min_points_per_centroid, clustering.max_points_per_centroid = 1, len(vectors)
    clustering.train(np.ascontiguousarray(vectors), faiss.IndexFlatIP(vectors.shape[1]))
    centroids: Floats = faiss.vector_to_array(clustering.centroids).reshape(count, vectors.shape[1])
    return centroids


def _flat(vectors: Floats) -> faiss.Index:
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(np.ascontiguousarray(vectors))
    return index


def _nearest(groups: Floats, centroids: Floats) -> Callable[[Floats], NDArray[np.int64]]:
    """A function from vectors to the list of each: that of the nearest centroid, looked for in the nearest groups of
    them where there are many."""
    every = _flat(centroids)
    near = every
    if len(centroids) >= GROUPED_FROM:
        coarse = _flat(groups)
        near = faiss.IndexIVFFlat(coarse, groups.shape[1], len(groups), faiss.METRIC_INNER_PRODUCT)
        near.train(centroids)
        near.add(centroids)
        near.nprobe = GROUPS_SEARCHED

    def nearest(vectors: Floats) -> NDArray[np.int64]:
        found: NDArray[np.int64] = near.search(vectors, 1)[1][:, 0]
        if len(lost := np.flatnonzero(found < 0)):  # groups without centroids
            found[lost] = every.search(vectors[lost], 1)[1][:, 0]
        return found

    return nearest


def _write(
    folder: Path,
    parts: Sequence[Part],
    assigned: Callable[[int], NDArray[np.int32]],
    centroids: Floats,
    sizes: NDArray[np.int64],
) -> None:
    """Write every vector and unit number into its list, and the row of each unit."""
    layout, units = layout_of(centroids, sizes), int(sizes.sum())
    filled = layout.bounds[:-1].copy()
    unit = 0
    with (folder / VECTORS).open("wb") as file, (folder / PLACES).open("wb") as places:
        file.write(lists_header(centroids, sizes))
        file.flush()
        places.write(places_header(units))
        for number, part in enumerate(parts):
            lists, begin = assigned(number), 0
            for block in _blocks(part.load()):
                own = lists[begin : begin + len(block)].astype(np.int64)
                begin += len(block)
                order = np.argsort(own, kind="stable")
                there, first, counts = np.unique(own[order], return_index=True, return_counts=True)
                rows = np.repeat(filled[there] - first, counts) + np.arange(len(order))
                ids = order.astype("<i8") + unit
                vectors = np.ascontiguousarray(block[order], dtype="<f2")
                begins = filled[there]
                at = zip(
                    first.tolist(),
                    counts.tolist(),
                    layout.vectors_at(begins, there).tolist(),
                    layout.ids_at(begins, there).tolist(),
                    strict=True,
                )
                for start, count, vectors_at, ids_at in at:
                    _put(file.fileno(), vectors[start : start + count].data, vectors_at)
                    _put(file.fileno(), ids[start : start + count].data, ids_at)
                filled[there] += counts
                unit += len(block)
                written = np.empty(len(order), dtype="<i4")
                written[order] = rows
                places.write(written.data)


def _put(file: int, data: memoryview, place: int) -> None:
    """Write all of the data at a place of the file."""
    data = data.cast("B")
    while len(data):
        done = os.pwrite(file, data, place)
        data, place = data[done:], place + done
