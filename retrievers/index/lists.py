"""The vectors file of an IVF index: the rows of `vectors.faiss` in lists, one per centroid.

It is what FAISS writes for an IndexIVFScalarQuantizer (fp16, inner product) whose coarse quantizer is an
IndexScalarQuantizer: a header with the centroids and the size of every list, then for each list the rows of its
vectors (fp16, as in an exact index) followed by their unit numbers (int64). Within a list, units ascend.
`places.npy` holds for each unit its row, counted through all lists.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from pathlib import Path

import faiss
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from rag_mt.base.types import Floats
from retrievers.index.store import BYTES_PER_NUMBER, PLACES, VECTORS, vectors_header

BYTES_PER_ID = 8
MOST_LISTS = 1 << 20

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Layout:
    """Where everything lies in a vectors file whose list i has rows `bounds[i]` to `bounds[i + 1]`; `begin` is the
    length of the header and `width` that of a vector, both in bytes."""

    begin: int
    width: int
    bounds: NDArray[np.int64]

    def lists_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of the list that each row is in."""
        lists: NDArray[np.int64] = np.searchsorted(self.bounds, rows, side="right") - 1
        return lists

    def vectors_at(self, rows: NDArray[np.int64], lists: NDArray[np.int64]) -> NDArray[np.int64]:
        """The place of each row's vector in the file; `lists` are those of the rows."""
        first = self.bounds[lists]
        return self.begin + first * (self.width + BYTES_PER_ID) + (rows - first) * self.width

    def ids_at(self, rows: NDArray[np.int64], lists: NDArray[np.int64]) -> NDArray[np.int64]:
        """The place of each row's unit number in the file; `lists` are those of the rows."""
        before = self.begin + self.bounds[lists] * BYTES_PER_ID + self.bounds[lists + 1] * self.width
        return before + (rows - self.bounds[lists]) * BYTES_PER_ID


class Rows:
    """Vectors of an IVF index by unit number, read from the mapped files of `folder`."""

    def __init__(self, folder: Path, dimension: int, units: int, lists: int) -> None:
        self._file: Bytes = np.memmap(folder / VECTORS, dtype=np.uint8, mode="r")
        self.layout, _ = _parts(bytes(self._file[: header_length(dimension, lists)]), dimension, lists)
        self._places: NDArray[np.int32] = np.load(folder / PLACES, mmap_mode="r", allow_pickle=False)

    def lists_of(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """The list that each unit is in."""
        return self.layout.lists_of(self._places[units].astype(np.int64))

    def reconstruct(self, units: NDArray[np.int64]) -> Floats:
        """The vectors of units, float32 (len(units), dimension)."""
        rows = self._places[units].astype(np.int64)
        places = self.layout.vectors_at(rows, self.layout.lists_of(rows))
        return sliding_window_view(self._file, self.layout.width)[places].view("<f2").astype(np.float32)

    def misplaced(self, units: NDArray[np.int64]) -> bool:
        """Whether any of the units is not where `places.npy` says."""
        rows = self._places[units].astype(np.int64)
        if (rows < 0).any() or (rows >= self.layout.bounds[-1]).any():
            return True
        places = self.layout.ids_at(rows, self.layout.lists_of(rows))
        found = sliding_window_view(self._file, BYTES_PER_ID)[places].view("<i8")[:, 0]
        return not np.array_equal(found, units)


def lists_header(centroids: Floats, sizes: NDArray[np.int64]) -> bytes:
    """The bytes before the lists of a vectors file: float32 (lists, dimension) centroids, stored as fp16, and the
    number of units in each list.

    FAISS's own bytes for an index with empty lists, with the number of vectors and the sizes set, so that the lists
    can be streamed to disk.
    """
    count, dimension = centroids.shape
    kind, metric = faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
    coarse = faiss.IndexScalarQuantizer(dimension, kind, metric)
    coarse.add(np.ascontiguousarray(centroids, dtype=np.float32))
    empty = faiss.IndexIVFScalarQuantizer(coarse, dimension, count, kind, metric, False)
    empty.is_trained = True
    header = bytearray(faiss.serialize_index(empty).tobytes())
    struct.pack_into("<q", header, 8, int(sizes.sum()))
    # It ends with the sizes of the lists that are not empty: none of them ("sprs"). Ours gives all ("full").
    no_sizes = b"sprs" + struct.pack("<Q", 0)
    if not header.endswith(no_sizes):
        raise RuntimeError("this version of FAISS writes IVF files in another way")
    return bytes(header[: -len(no_sizes)]) + b"full" + struct.pack("<Q", count) + sizes.astype("<i8").tobytes()


def header_length(dimension: int, lists: int) -> int:
    """The number of bytes of `lists_header`."""
    one = len(lists_header(np.zeros((1, dimension), np.float32), np.zeros(1, np.int64)))
    return one + (lists - 1) * (dimension * BYTES_PER_NUMBER + BYTES_PER_ID)


def places_header(units: int) -> bytes:
    """The bytes before the rows of a places file (npy format 1.0)."""
    file = io.BytesIO()
    contents = {"descr": np.dtype("<i4").str, "fortran_order": False, "shape": (units,)}
    np.lib.format.write_array_header_1_0(file, contents)
    return file.getvalue()


def layout_of(centroids: Floats, sizes: NDArray[np.int64]) -> Layout:
    """The layout of the file that begins with `lists_header` of these."""
    bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Layout(header_length(centroids.shape[1], len(sizes)), centroids.shape[1] * BYTES_PER_NUMBER, bounds)


def _parts(header: bytes, dimension: int, lists: int) -> tuple[Layout, Floats]:
    """The layout and the centroids that a header announces."""
    coarse = vectors_header(dimension, lists)
    size = lists * dimension * BYTES_PER_NUMBER
    begin = header.find(coarse) + len(coarse)
    centroids = np.frombuffer(header[begin : begin + size].ljust(size, b"\0"), "<f2").reshape(lists, dimension)
    sizes = np.frombuffer(header[-lists * BYTES_PER_ID :], "<i8").astype(np.int64)
    found = centroids.astype(np.float32)
    return layout_of(found, sizes), found


def lists_problem(folder: Path, dimension: int, units: int, lists: int) -> str:
    """What is wrong with the header of an IVF vectors file or with its places, or an empty string.

    The header must be to the byte what `lists_header` makes of the centroids and sizes in it.
    """
    path, places = folder / VECTORS, places_header(units)
    size = units * (dimension * BYTES_PER_NUMBER + BYTES_PER_ID)
    if not 1 <= lists <= MOST_LISTS or path.stat().st_size != header_length(dimension, lists) + size:
        return f"{VECTORS} does not hold {units} vectors of {dimension} dimensions in {lists} lists"
    with path.open("rb") as file:
        header = file.read(header_length(dimension, lists))
    layout, centroids = _parts(header, dimension, lists)
    sizes = np.diff(layout.bounds)
    if (sizes < 0).any() or (sizes > units).any() or layout.bounds[-1] != units:
        return f"{VECTORS} has lists whose sizes do not add up to {units}"
    if header != lists_header(centroids, sizes):
        return f"{VECTORS} is not a vectors file of {lists} lists"
    with (folder / PLACES).open("rb") as file:
        found = file.read(len(places))
    if found != places or (folder / PLACES).stat().st_size != len(places) + units * np.dtype(np.int32).itemsize:
        return f"{PLACES} is not an int32 array of {units} numbers"
    return ""
