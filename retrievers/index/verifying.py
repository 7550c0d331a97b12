"""Checking every byte of an index, and what its files say about each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_mt.base.files import file_sha256
from retrievers.index.manifest import ROWS, SENTENCES, SPANS, VECTORS, damaged, read_manifest
from retrievers.index.opening import check_files, map_index, open_index
from retrievers.index.places import kind_of
from retrievers.index.search import Index

VERIFIED_AT_ONCE = 65536
FAR = 0.75
"""Share of the length of vectors that compressed ones may be away from them on average."""


def verify_index(folder: Path) -> list[str]:
    """Check every byte and what the files say about each other; returns one line per check that passed. Raises
    UserError with the first thing that is wrong."""
    manifest = read_manifest(folder)
    if kind_of(folder):
        index = open_index(folder, manifest=manifest)
        facts = {
            name: [f"{key} {value}" for key, value in entry.items() if not isinstance(value, list)]
            for name, entry in manifest.files.items()
        }
        same = [f"{name}: {', '.join(known)}" for name, known in facts.items()]
    else:
        check_files(folder, manifest, file_sha256)
        index = map_index(folder, manifest)
        names = {name: manifest.files[name]["size"] for name in manifest.file_names}
        same = [f"{name}: {size} bytes, sha256 as in the manifest" for name, size in names.items()]
    normalised = bool(manifest.settings.get("normalised", True))  # a unit maker says so if its vectors are not
    normalised = normalised and not manifest.lossy  # compressed ones are of about that length
    problem = _text_problem(index) or (_rows_problem(index, normalised) if manifest.dimension else "")
    if not problem and manifest.terms is not None:
        problem = index.terms.problem(len(index))
    if problem:
        raise damaged(folder, problem)
    return [
        f"manifest.json: format {manifest.format}, matches its own hash",
        *same,
        f"{manifest.units} spans lie inside their {manifest.sentences} sentences, in order",
        *([f"{len(index)} vectors {'have length 1' if normalised else 'are finite'}"] if manifest.dimension else []),
        *([] if manifest.terms is None else [f"{manifest.units} units have their terms"]),
    ]


def _text_problem(index: Index) -> str:
    """What is wrong with the structure of the sentences or with the spans, or an empty string."""
    try:
        index.sentences.validate(full=True)
    except pa.ArrowInvalid as error:
        return f"{SENTENCES} is inconsistent ({str(error).splitlines()[0]})"
    if sum(column.null_count for column in index.sentences.columns):
        return f"{SENTENCES} has empty entries"
    lengths = pc.utf8_length(index.sentences.column("text")).to_numpy()
    last = 0
    for begin in range(0, len(index), VERIFIED_AT_ONCE):
        number, start, end = index.spans(np.arange(begin, min(begin + VERIFIED_AT_ONCE, len(index)))).T
        if number.min() < 0 or number.max() >= len(lengths):
            return f"{SPANS} points to sentences that are not there"
        if number[0] < last or (np.diff(number) < 0).any():
            return f"{SPANS} is not in the order of the sentences"
        if (start < 0).any() or (start >= end).any() or (end > lengths[number]).any():
            return f"{SPANS} has spans outside their sentence"
        last = number[-1]
    return ""


def _rows_problem(index: Index, normalised: bool) -> str:
    """What is wrong with the vectors, or an empty string."""
    for begin in range(0, len(index), VERIFIED_AT_ONCE // 16):
        units = np.arange(begin, min(begin + VERIFIED_AT_ONCE // 16, len(index)))
        try:
            rows = index.reconstruct(units)
            searched = index.reconstruct_codes(units) if index.manifest.rerank else rows
        except RuntimeError:
            return f"{VECTORS} does not hold every unit once"
        lengths, name = np.linalg.norm(rows, axis=1), ROWS if index.manifest.rerank else VECTORS
        if not normalised and not np.isfinite(rows).all():
            return f"{name} has vectors that are not finite"
        if normalised and not np.allclose(lengths, 1, atol=0.01):  # NaN is not close either
            return f"{name} has vectors whose length is not 1"
        if np.linalg.norm(rows - searched, axis=1).sum() > FAR * lengths.sum():
            return f"{VECTORS} does not hold the vectors of {ROWS}"
    return ""
