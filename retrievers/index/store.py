"""The files of an index folder: their names, layouts and headers.

manifest.json     what the index holds, and the size and sha256 of the files below
vectors.faiss     an IndexScalarQuantizer (fp16, inner product): a short header, then the rows of the vectors;
                  in the IVF form they stand in lists (see `retrievers.index.lists`), and there is also
places.npy        int32 (units,): the row of each unit in the lists
spans.npy         int32 (units, 3): sentence number, start and end character of each unit, by sentence number
sentences.arrow   Arrow IPC file: text, name of the file (dictionary-encoded) and line of each sentence
bm25.*            the terms of the units, in an index that is searched by BM25 (see `retrievers.bm25`)

An index that is searched by BM25 alone has no vectors.
"""

from __future__ import annotations

import io
import struct
from pathlib import Path

import faiss
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

MANIFEST = "manifest.json"
VECTORS = "vectors.faiss"
SPANS = "spans.npy"
SENTENCES = "sentences.arrow"
PLACES = "places.npy"
FILES = (VECTORS, SPANS, SENTENCES)
IVF_FILES = (*FILES, PLACES)

SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("file", pa.dictionary(pa.int32(), pa.string())),
        ("line", pa.int64()),
        ("start", pa.int64()),
    ]
)
"""Indexes that were built before there were starts have none."""
TERM_SCORES, TERM_UNITS, TERM_BOUNDS = "bm25.scores.npy", "bm25.units.npy", "bm25.bounds.npy"
TERM_NAMES, TERM_SETTINGS = "bm25.terms.json", "bm25.json"
TERM_TOKENS, TERM_LENGTHS = "bm25.tokens.npy", "bm25.lengths.npy"
TERM_FILES = (TERM_SCORES, TERM_UNITS, TERM_BOUNDS, TERM_NAMES, TERM_SETTINGS, TERM_TOKENS, TERM_LENGTHS)

BYTES_PER_NUMBER = 2  # fp16

_FAISS_KIND = b"IxSQ"
_ARROW_MAGIC = b"ARROW1"
_HEADER_ROOM = 4096


def vectors_header(dimension: int, units: int) -> bytes:
    """The bytes before the rows of a vectors file.

    FAISS's own bytes for an index without vectors, with the two counts set: the number of vectors, and at the
    end the number of bytes that follow. So the rows can be streamed to disk, however many there are.
    """
    empty = faiss.IndexScalarQuantizer(dimension, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
    header = bytearray(faiss.serialize_index(empty).tobytes())
    struct.pack_into("<q", header, 8, units)
    struct.pack_into("<Q", header, len(header) - 8, units * dimension * BYTES_PER_NUMBER)
    return bytes(header)


def spans_header(units: int) -> bytes:
    """The bytes before the rows of a spans file (npy format 1.0)."""
    file = io.BytesIO()
    contents = {"descr": np.dtype("<i4").str, "fortran_order": False, "shape": (units, 3)}
    np.lib.format.write_array_header_1_0(file, contents)
    return file.getvalue()


def header_problem(folder: Path, units: int) -> str:
    """What is wrong with the first (and last) bytes of the spans and the sentences, or an empty string."""
    return _spans_problem(folder / SPANS, units) or _sentences_problem(folder / SENTENCES)


def vectors_problem(folder: Path, dimension: int, units: int) -> str:
    """What is wrong with the header of an exact index's vectors, or an empty string.

    FAISS takes counts from a file on trust and allocates by them: they are checked before it sees the file.
    """
    path = folder / VECTORS
    body = units * dimension * BYTES_PER_NUMBER
    length = path.stat().st_size - body
    if not 24 <= length <= _HEADER_ROOM:
        return f"{VECTORS} does not hold {units} vectors of {dimension} dimensions"
    with path.open("rb") as file:
        header = file.read(length)
    kind, found_dimension, found_units = struct.unpack_from("<4siq", header)
    (found_body,) = struct.unpack_from("<Q", header, length - 8)
    if kind != _FAISS_KIND:
        return f"{VECTORS} is not a vectors file (it begins with {kind!r})"
    if (found_dimension, found_units, found_body) != (dimension, units, body):
        return f"{VECTORS} announces {found_units} vectors of {found_dimension} dimensions, not {units} of {dimension}"
    return ""


def _spans_problem(path: Path, units: int) -> str:
    expected = spans_header(units)
    with path.open("rb") as file:
        found = file.read(len(expected))
    if found != expected or path.stat().st_size != len(expected) + units * 3 * np.dtype(np.int32).itemsize:
        return f"{SPANS} is not an int32 array of {units} rows of 3"
    return ""


def _sentences_problem(path: Path) -> str:
    with path.open("rb") as file:
        begin = file.read(len(_ARROW_MAGIC))
        file.seek(-min(len(_ARROW_MAGIC), path.stat().st_size), 2)
        end = file.read()
    return "" if begin == end == _ARROW_MAGIC else f"{SENTENCES} is not a whole Arrow file"


def map_vectors(folder: Path) -> faiss.Index:
    """The vectors, mapped into memory: pages are read when a search touches them and shared between processes."""
    return faiss.read_index(str(folder / VECTORS), faiss.IO_FLAG_MMAP_IFC)


def map_spans(folder: Path) -> NDArray[np.int32]:
    """The spans, int32 (units, 3), mapped into memory."""
    spans: NDArray[np.int32] = np.load(folder / SPANS, mmap_mode="r", allow_pickle=False)
    return spans


def map_sentences(folder: Path) -> pa.Table:
    """The sentences as a table of SCHEMA, mapped into memory."""
    return pa.ipc.open_file(pa.memory_map(str(folder / SENTENCES))).read_all()
