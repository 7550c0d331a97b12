"""Opening a finished index, whose files are checked and mapped into memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rag_mt.base.errors import UserError
from rag_mt.base.files import remembered_sha256
from retrievers.index import codes
from retrievers.index.engines import engine_of
from retrievers.index.manifest import ROWS, SENTENCES, SPANS, VECTORS, Manifest, damaged, differences, read_manifest
from retrievers.index.places import only_in_folders
from retrievers.index.search import MOST_LISTS, Index
from retrievers.units.unit import QUERY_THRESHOLD

ARROW_MAGIC = b"ARROW1"


def map_vectors(folder: Path) -> Any:
    """FAISS's index of the vectors, mapped into memory: pages are read when a search touches them, and processes share
    them. (Its type hints lack most of what it has, hence Any.) Raises RuntimeError for what is not FAISS's."""
    faiss.set_deserialization_loop_limit(MOST_LISTS)  # counts that an index of ours cannot have are refused
    return faiss.read_index(str(folder / VECTORS), faiss.IO_FLAG_MMAP_IFC)


def map_rows(folder: Path, manifest: Manifest) -> NDArray[np.float16]:
    """The vectors of a re-ranked index, fp16 (units, dimension), mapped into memory."""
    return np.memmap(folder / ROWS, "<f2", "r", shape=(manifest.units, manifest.dimension))


def map_spans(folder: Path) -> NDArray[np.int32]:
    """The spans, int32 (units, 3), mapped into memory; raises ValueError for a file that holds no array."""
    only_in_folders(folder)
    spans: NDArray[np.int32] = np.load(folder / SPANS, mmap_mode="r", allow_pickle=False)
    return spans


def map_sentences(folder: Path) -> pa.Table:
    """The sentences as a table, mapped into memory; raises OSError or ArrowInvalid for another file, UserError for an
    index in an engine."""
    only_in_folders(folder)
    file = pa.memory_map(str(folder / SENTENCES))
    if file.read(len(ARROW_MAGIC)) != ARROW_MAGIC:
        raise pa.ArrowInvalid("it is no Arrow file")
    table = pa.ipc.open_file(file).read_all()
    table.validate()
    return table


def open_index(
    folder: Path, maker_settings: Mapping[str, Any] | None = None, manifest: Manifest | None = None
) -> Index:
    """The index in `folder`, mapped into memory; `manifest` is its own, if it has been read already.

    `maker_settings` are those of the unit maker that will make the queries: vectors of other settings cannot be
    compared. A file is hashed in full when it is first opened and whenever anything has changed it since (see
    `remembered_sha256`); `verify_index` reads every byte.
    Raises UserError for a missing or damaged index, one of another format, and one of other settings.
    """
    manifest = manifest or read_manifest(folder)
    check_settings(folder, manifest, maker_settings)
    if (engine := engine_of(folder)) is not None:
        return engine.open_stored(folder, manifest)
    check_files(folder, manifest, remembered_sha256)
    return map_index(folder, manifest)


def check_settings(folder: Path, manifest: Manifest, maker_settings: Mapping[str, Any] | None) -> None:
    """Raises UserError if vectors that a unit maker with these settings makes cannot be compared with the index's."""
    settings = manifest.settings if maker_settings is None else maker_settings
    # The fingerprint tells encoders apart; the same one may go by different names (hub id, folder). What only queries
    # depend on is recorded and may change.
    free = {key: settings[key] for key in ("encoder", QUERY_THRESHOLD) if key in settings}
    if different := differences({**manifest.settings, **free}, settings):
        name = "" if manifest.encoder == settings.get("encoder") else f" by encoder {manifest.encoder}"
        raise UserError(
            f"index {folder} was built{name} with other settings ({'; '.join(different)}): "
            "use the encoder it was built with, or build it again with `rag-mt index build --replace`"
        )


def check_files(folder: Path, manifest: Manifest, sha256: Callable[[Path], str]) -> None:
    """Sizes and hashes, before any library parses a file."""
    for name in manifest.file_names:
        path, size = folder / name, manifest.files[name]["size"]
        if not path.is_file():
            raise damaged(folder, f"{name} is missing")
        if path.stat().st_size != size:
            raise damaged(folder, f"{name} has {path.stat().st_size} bytes, not {size}")
    for name in manifest.file_names:
        if sha256(folder / name) != manifest.files[name]["sha256"]:
            raise damaged(folder, f"{name} does not match its sha256")


def map_index(folder: Path, manifest: Manifest) -> Index:
    """The index of files that have the size and hash of the manifest; raises UserError if they do not fit together, or
    are none: a hash may be remembered of a file that was damaged since without a trace in its size and time."""
    vectors = _parsed(folder, VECTORS, map_vectors) if manifest.dimension else None
    spans = _parsed(folder, SPANS, map_spans)
    sentences = _parsed(folder, SENTENCES, map_sentences)
    if vectors is not None and (problem := _vectors_problem(vectors, manifest)):
        raise damaged(folder, f"{VECTORS} {problem}")
    rows = _parsed(folder, ROWS, lambda place: map_rows(place, manifest)) if manifest.rerank else None
    if spans.dtype != np.int32 or spans.shape != (manifest.units, 3):
        raise damaged(folder, f"{SPANS} is not an int32 array of {manifest.units} rows of 3")
    if sentences.schema != manifest.schema or len(sentences) != manifest.sentences:
        raise damaged(folder, f"{SENTENCES} does not hold {manifest.sentences} sentences")
    return Index(folder, manifest, vectors, spans, sentences, rows)


def _parsed(folder: Path, name: str, parse: Callable[[Path], Any]) -> Any:
    try:
        return parse(folder)
    except Exception as error:  # NumPy alone raises five kinds
        raise damaged(folder, f"{name} cannot be read ({str(error).splitlines()[0]})") from error


def _vectors_problem(vectors: Any, manifest: Manifest) -> str:
    """What is wrong with a vectors file that FAISS could read, or an empty string."""
    units, lists = manifest.units, 0 if manifest.ivf is None else int(manifest.ivf["nlist"])
    expected = (manifest.dimension, units, faiss.METRIC_INNER_PRODUCT)
    shape = (vectors.d, vectors.ntotal, vectors.metric_type)
    if shape != expected or isinstance(vectors, faiss.IndexIVF) != bool(lists):
        return f"does not hold {units} vectors of {manifest.dimension} dimensions"
    if problem := codes.problem(vectors, manifest.bits, bool(lists), manifest.dimension):
        return problem
    if lists and (vectors.nlist, vectors.quantizer.ntotal, vectors.invlists.compute_ntotal()) != (lists, lists, units):
        return f"does not hold {units} vectors in {lists} lists"
    return ""
