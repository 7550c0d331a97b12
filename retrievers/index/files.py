"""The files of an index folder, and how they are mapped into memory.

manifest.json     what the index holds, and the size and sha256 of the files below
vectors.faiss     the vectors of the units (fp16, inner product), as FAISS itself writes them: `SQfp16`, or
                  `IVFn(SQfp16),SQfp16` in the IVF form
spans.npy         int32 (units, 3): sentence number, start and end character of each unit, by sentence number
sentences.arrow   Arrow IPC file: text, name of the file (dictionary-encoded), line and start of each sentence
bm25.*            the terms of the units, in an index that is searched by BM25 (see `retrievers.bm25`)

An index that is searched by BM25 alone has no vectors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

MANIFEST = "manifest.json"
SPANS = "spans.npy"
SENTENCES = "sentences.arrow"
VECTORS = "vectors.faiss"
TERM_SCORES, TERM_UNITS, TERM_BOUNDS = "bm25.scores.npy", "bm25.units.npy", "bm25.bounds.npy"
TERM_NAMES, TERM_SETTINGS = "bm25.terms.json", "bm25.json"
TERM_TOKENS, TERM_LENGTHS = "bm25.tokens.npy", "bm25.lengths.npy"
TERM_FILES = (TERM_SCORES, TERM_UNITS, TERM_BOUNDS, TERM_NAMES, TERM_SETTINGS, TERM_TOKENS, TERM_LENGTHS)

SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("file", pa.dictionary(pa.int32(), pa.string())),
        ("line", pa.int64()),
        ("start", pa.int64()),
    ]
)

_ARROW_MAGIC = b"ARROW1"

MOST_LISTS = 1 << 15
MOST_LISTS = 1 << 15


def map_vectors(folder: Path) -> Any:
    """FAISS's index of the vectors, mapped into memory: pages are read when a search touches them, and processes share
    them. (Its type hints lack most of what it has, hence Any.)

    Raises RuntimeError for what is not FAISS's.
    """
    faiss.set_deserialization_loop_limit(MOST_LISTS)  # counts that an index of ours cannot have are refused
    return faiss.read_index(str(folder / VECTORS), faiss.IO_FLAG_MMAP_IFC)


def map_spans(folder: Path) -> NDArray[np.int32]:
    """The spans, int32 (units, 3), mapped into memory; raises ValueError for a file that holds no array."""
    spans: NDArray[np.int32] = np.load(folder / SPANS, mmap_mode="r", allow_pickle=False)
    return spans


def map_sentences(folder: Path) -> pa.Table:
    """The sentences as a table of SCHEMA, mapped into memory; raises OSError or ArrowInvalid for another file."""
    file = pa.memory_map(str(folder / SENTENCES))
    if file.read(len(_ARROW_MAGIC)) != _ARROW_MAGIC:
        raise pa.ArrowInvalid("it is no Arrow file")
    table = pa.ipc.open_file(file).read_all()
    table.validate()
    return table
