"""Copying an index into LanceDB."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rag_mt.base.errors import UserError
from rag_mt.base.types import Floats
from retrievers.index.copying import Source, not_a_folder
from retrievers.index.lance.files import PART, write_files
from retrievers.index.lance.lists import bits_for, index_ids, index_vectors, lists_for, with_lists
from retrievers.index.lance.place import connected, local_folder
from retrievers.index.lance.tables import (
    INDEX,
    INDEX_SCHEMA,
    SENTENCE_SCHEMA,
    Stored,
    commit,
    one_writer,
    read_stored,
    table_of,
    tidy,
    unit_schema,
)
from retrievers.index.manifest import Manifest
from retrievers.index.places import FILES, PARTS, SENTENCES, UNITS, place_text, store_errors, taken
from retrievers.index.vectors import form_for

BLOCK = 16384
"""Rows that are in memory at once."""


def write_copy(target: Path, source: Source, *, replace: bool, form: str) -> Manifest:
    """Copy an index to a place in LanceDB; see `retrievers.index.copying`."""
    manifest = source.manifest
    wanted, bits = form_for(form, manifest.units, manifest.unit), bits_for(source.index.manifest)
    local = local_folder(target)
    if local is not None:
        not_a_folder(local, target)
    with one_writer(target, "copy"):
        database = connected(target, new=True)
        revision = _begun(target, database, replace)
        rows = (unit_batch(numbers, spans[:, 0], spans, vectors) for numbers, spans, vectors in source.units(BLOCK))
        units = _written(target, database, UNITS, rows, unit_schema(manifest.dimension))
        texts = source.sentences(SENTENCE_SCHEMA, BLOCK)
        sentences = _written(target, database, SENTENCES, texts, SENTENCE_SCHEMA)
        stored = write_files(target, database, source.pieces(PART), source.contents)
        index_ids(target, units, sentences)
        if wanted == "ivf":
            index_vectors(target, units, lists_for(manifest.units), bits, manifest.dimension)
        numbers = {UNITS: [[0, manifest.units]], SENTENCES: [[0, manifest.sentences]]}
        tables = {name: {"version": table.version} for name, table in ((UNITS, units), (SENTENCES, sentences))}
        entries = {name: {**entry, "numbers": numbers[name]} for name, entry in tables.items()}
        entries[UNITS]["bits"] = bits
        manifest = with_fields(manifest, files={**entries, FILES: stored})
        if wanted == "ivf":
            manifest = with_lists(target, manifest, units, sentences, lists_for(manifest.units))
        commit(target, database, revision, manifest, "copy")
        tidy(target, database)
    return manifest


def _begun(target: Path, database: Any, replace: bool) -> int:
    """The revision of the index that is replaced; a place without one is marked as ours."""
    stored: Stored | None = read_stored(target, database)
    if stored is None:
        if others := [name for name in PARTS if table_of(target, database, name) is not None]:
            raise UserError(
                f"{place_text(target)} holds tables of others ({', '.join(others)}): give another place for the index"
            )
        row = pa.table({"revision": [0], "manifest": [""]}, schema=INDEX_SCHEMA)
        with store_errors(target):
            database.create_table(INDEX, data=row)
        return 0
    if stored.manifest is not None and not replace:
        raise taken(target)
    return stored.revision


def _written(target: Path, database: Any, name: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Any:
    """A new version of a table with these rows alone."""
    with store_errors(target):
        reader = pa.RecordBatchReader.from_batches(schema, batches)
        return database.create_table(name, data=reader, schema=schema, mode="overwrite")


def unit_batch(units: Any, sentences: Any, spans: Any, vectors: Floats) -> pa.RecordBatch:
    """Rows of units with these ids, and those of their sentences; of the `spans` (units, 3) start and end count."""
    flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float16).reshape(-1))
    schema = unit_schema(vectors.shape[1])
    columns = [
        pa.array(units, pa.int64()),
        pa.array(sentences, pa.int64()),
        pa.array(spans[:, 1], pa.int32()),
        pa.array(spans[:, 2], pa.int32()),
        pa.FixedSizeListArray.from_arrays(flat, type=schema.field("vector").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
