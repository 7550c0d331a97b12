"""Copying an index into LanceDB."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rag_mt.base.console import progress
from rag_mt.base.errors import UserError
from rag_mt.base.types import Floats
from retrievers.index.lance.files import files_in, local_files, write_files
from retrievers.index.lance.lists import index_ids, index_vectors, lists_for, with_lists
from retrievers.index.lance.place import connected, engine, is_lance, local_folder, store_errors
from retrievers.index.lance.tables import (
    FILES,
    INDEX,
    INDEX_SCHEMA,
    SENTENCE_SCHEMA,
    SENTENCES,
    UNITS,
    VERSIONED,
    Stored,
    commit,
    one_writer,
    read_stored,
    table_of,
    tidy,
    unit_schema,
)
from retrievers.index.manifest import MANIFEST, Manifest
from retrievers.index.search import Index, open_index
from retrievers.index.vectors import form_for

log = logging.getLogger("rag_mt")

BLOCK = 16384
"""Rows that are in memory at once."""


def copy_index(
    source: Path, target: Path, *, replace: bool = False, form: str = "auto", show: bool = False
) -> Manifest:
    """Copy the index in the folder `source` to `target`, a place in LanceDB; returns the manifest of the copy.

    Units and sentences keep their numbers, cut-offs and models are the same, and adapters go with it. Vectors that are
    there in few bits alone are copied as they are, and the copy's manifest tells of it. `form` is as for
    `build_index`: the vectors are put into lists or searched exactly. With `replace` an index that is there gives way
    when the new one is complete, and who has it open goes on with it.
    Raises UserError for a source that is no index or has no vectors, and a target that is taken or cannot be written.
    """
    if not is_lance(target):
        raise UserError(f"{target} is no place in LanceDB: expected lance:FOLDER or lance:s3://BUCKET/FOLDER")
    index = open_index(source)
    manifest = index.manifest
    if not manifest.dimension:
        raise UserError(
            f"index {source} is one of {manifest.retriever} without vectors, which are what LanceDB searches: use the "
            "folder itself, or build an index for another retriever"
        )
    wanted = form_for(form, manifest.units, manifest.unit)
    local = local_folder(target)
    if local is not None and (local / MANIFEST).exists():
        raise UserError(f"{local} is the folder of another index: give a place of its own, such as {target}.lance")
    engine(target)  # before its folder is made
    with one_writer(target, "copy"):
        database = connected(target, new=True)
        revision = _begun(target, database, replace)
        with closing(progress(manifest.units, "units", f"copying {source}", show=show)) as bar:
            units = _written(target, database, UNITS, _unit_rows(index, bar), unit_schema(manifest.dimension))
        sentences = _written(target, database, SENTENCES, _sentence_rows(index), SENTENCE_SCHEMA)
        files = write_files(target, database, files_in(local_files(source)))
        index_ids(target, units, sentences)
        if wanted == "ivf":
            index_vectors(target, units, lists_for(manifest.units))
        numbers = {UNITS: [[0, manifest.units]], SENTENCES: [[0, manifest.sentences]]}
        tables = {name: {"version": table.version} for name, table in ((UNITS, units), (SENTENCES, sentences))}
        entries = {name: {**entry, "numbers": numbers[name]} for name, entry in tables.items()}
        manifest = with_fields(manifest, files={**entries, FILES: files}, ivf=None)
        if manifest.rerank:  # these are copied whole
            manifest = with_fields(manifest, codes=None)
        if wanted == "ivf":
            manifest = with_lists(target, manifest, units, sentences, lists_for(manifest.units))
        commit(target, database, revision, manifest, "copy")
        tidy(target, database)
    return manifest


def _begun(target: Path, database: Any, replace: bool) -> int:
    """The revision of the index that is replaced; a place without one is marked as ours."""
    stored: Stored | None = read_stored(target, database)
    if stored is None:
        if taken := [name for name in VERSIONED if table_of(target, database, name) is not None]:
            raise UserError(f"{target} holds tables of others ({', '.join(taken)}): give another place for the index")
        row = pa.table({"revision": [0], "manifest": [""]}, schema=INDEX_SCHEMA)
        with store_errors(target):
            database.create_table(INDEX, data=row)
        return 0
    if stored.manifest is not None and not replace:
        raise UserError(
            f"index {target} exists already: give another place, or --replace (replace=True) to copy it anew"
        )
    return stored.revision


def _written(target: Path, database: Any, name: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Any:
    """A new version of a table with these rows alone."""
    with store_errors(target):
        reader = pa.RecordBatchReader.from_batches(schema, batches)
        return database.create_table(name, data=reader, schema=schema, mode="overwrite")


def _unit_rows(index: Index, bar: Any) -> Iterator[pa.RecordBatch]:
    for begin in range(0, len(index), BLOCK):
        units = np.arange(begin, min(begin + BLOCK, len(index)))
        spans = index.spans(units)
        yield unit_batch(units, spans[:, 0], spans, index.reconstruct(units))
        bar.update(len(units))


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


def _sentence_rows(index: Index) -> Iterator[pa.RecordBatch]:
    first = 0
    for batch in index.sentences.to_batches(max_chunksize=BLOCK):
        columns: dict[str, Any] = {name: batch.column(name) for name in batch.schema.names}
        columns["file"] = columns["file"].cast(pa.string())
        columns["sentence"] = pa.array(np.arange(first, first + len(batch)))
        columns.setdefault("original", pa.array([""] * len(batch), pa.string()))
        yield pa.RecordBatch.from_arrays([columns[name] for name in SENTENCE_SCHEMA.names], schema=SENTENCE_SCHEMA)
        first += len(batch)
