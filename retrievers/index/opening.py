"""Opening an index: its files are checked before anything reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import file_sha256, remembered_sha256
from retrievers.index.files import (
    SCHEMA,
    SENTENCES,
    SPANS,
    VECTORS,
    map_sentences,
    map_spans,
    map_vectors,
)
from retrievers.index.manifest import Manifest, damaged, differences, read_manifest
from retrievers.index.search import Index
from retrievers.units.unit import QUERY_THRESHOLD

VERIFIED_AT_ONCE = 65536

T = TypeVar("T")


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
    """Sizes and hashes, before any library parses a file."""
    for name in manifest.file_names:
        path, size = folder / name, manifest.files[name]["size"]
        if not path.is_file():
            raise damaged(folder, f"{name} is missing")
        if path.stat().st_size != size:
            raise damaged(folder, f"{name} has {path.stat().st_size} bytes, not {size}")
    for name in manifest.file_names:
        digest = remembered_sha256(folder / name) if remembered else file_sha256(folder / name)
        if digest != manifest.files[name]["sha256"]:
            raise damaged(folder, f"{name} does not match its sha256")


def map_index(folder: Path, manifest: Manifest) -> Index:
    """The index of files that have the size and hash of the manifest; raises UserError if they do not fit together, or
    are none: a hash may be remembered of a file that was damaged since without a trace in its size and time."""
    vectors = _parsed(folder, VECTORS, lambda: map_vectors(folder)) if manifest.dimension else None
    spans = _parsed(folder, SPANS, lambda: map_spans(folder))
    sentences = _parsed(folder, SENTENCES, lambda: map_sentences(folder))
    if vectors is not None and (problem := _vectors_problem(vectors, manifest)):
        raise damaged(folder, f"{VECTORS} {problem}")
    if spans.dtype != np.int32 or spans.shape != (manifest.units, 3):
        raise damaged(folder, f"{SPANS} is not an int32 array of {manifest.units} rows of 3")
    if sentences.schema != SCHEMA or len(sentences) != manifest.sentences:
        raise damaged(folder, f"{SENTENCES} does not hold {manifest.sentences} sentences")
    return Index(folder, manifest, vectors, spans, sentences)


def _parsed(folder: Path, name: str, parse: Callable[[], T]) -> T:
    """What a file holds; raises UserError if it cannot be parsed."""
    try:
        return parse()
    except Exception as error:  # NumPy alone raises five kinds
        raise damaged(folder, f"{name} cannot be read ({str(error).splitlines()[0]})") from error


def _vectors_problem(vectors: Any, manifest: Manifest) -> str:
    """What is wrong with a vectors file that FAISS could read, or an empty string."""
    units, lists = manifest.units, 0 if manifest.ivf is None else int(manifest.ivf["nlist"])
    kind: Any = faiss.IndexIVFScalarQuantizer if lists else faiss.IndexScalarQuantizer
    expected = (manifest.dimension, units, faiss.METRIC_INNER_PRODUCT)
    if not isinstance(vectors, kind) or (vectors.d, vectors.ntotal, vectors.metric_type) != expected:
        return f"does not hold {units} vectors of {manifest.dimension} dimensions"
    if vectors.sq.qtype != faiss.ScalarQuantizer.QT_fp16:
        return "does not hold vectors of fp16"
    if lists and (vectors.nlist, vectors.quantizer.ntotal, vectors.invlists.compute_ntotal()) != (lists, lists, units):
        return f"does not hold {units} vectors in {lists} lists"
    return ""


def verify_index(folder: Path) -> list[str]:
    """Check every byte and what the files say about each other; returns one line per check that passed.

    Raises UserError with the first thing that is wrong.
    """
    manifest = read_manifest(folder)
    _check_files(folder, manifest, remembered=False)
    index = map_index(folder, manifest)
    problem = _spans_invariant(folder, _lengths(index)) or _vectors_invariant(index)
    if not problem and manifest.terms is not None:
        problem = index.terms.problem(len(index))
    if problem:
        raise damaged(folder, problem)
    fact = "have length 1" if _normalised(manifest) else "are finite"
    sizes = [f"{name}: {manifest.files[name]['size']} bytes, sha256 as in the manifest" for name in manifest.file_names]
    return [
        f"manifest.json: format {manifest.format}, matches its own hash",
        *sizes,
        f"{manifest.units} spans lie inside their {manifest.sentences} sentences, in order",
        *([f"{manifest.units} vectors {fact}"] if manifest.dimension else []),
        *([] if manifest.terms is None else [f"{manifest.units} units have their terms"]),
    ]


def _lengths(index: Index) -> NDArray[np.int32]:
    """The length in characters of every sentence; checks the structure of the table."""
    table = map_sentences(index.folder)
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        raise damaged(index.folder, f"{SENTENCES} is inconsistent ({str(error).splitlines()[0]})") from None
    if sum(column.null_count for column in table.columns):
        raise damaged(index.folder, f"{SENTENCES} has empty entries")
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


def _normalised(manifest: Manifest) -> bool:
    """Whether vectors have length 1, as they do unless the unit maker says otherwise."""
    return bool(manifest.settings.get("normalised", True))


def _vectors_invariant(index: Index) -> str:
    if not index.manifest.dimension:
        return ""
    for begin in range(0, len(index), VERIFIED_AT_ONCE // 16):
        units = np.arange(begin, min(begin + VERIFIED_AT_ONCE // 16, len(index)))
        try:
            rows = index.reconstruct(units)
        except RuntimeError:
            return f"{VECTORS} does not hold every unit once"
        if not _normalised(index.manifest):
            if not np.isfinite(rows).all():
                return f"{VECTORS} has vectors that are not finite"
        elif not np.allclose(np.linalg.norm(rows, axis=1), 1, atol=0.01):  # NaN is not close either
            return f"{VECTORS} has vectors whose length is not 1"
    return ""
