"""What an index folder has beside vectors and text (models, terms of BM25, adapters), for an index in LanceDB."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from retrievers.index.lance.place import connected
from retrievers.index.lance.tables import FILE_SCHEMA, at_version
from retrievers.index.manifest import Manifest
from retrievers.index.places import FILES, in_time, store_errors

PART = 1 << 25
"""Bytes of a file in a row."""


def write_files(folder: Path, database: Any, pieces: Iterable[tuple[str, int, bytes]], contents: str) -> dict[str, Any]:
    """Write files with these `contents` in pieces of PART bytes, as a new version of their table; returns its entry in
    the manifest."""
    batches = (
        pa.RecordBatch.from_pydict({"name": [name], "part": [number], "data": [data]}, schema=FILE_SCHEMA)
        for name, number, data in pieces
    )
    with store_errors(folder):
        reader = pa.RecordBatchReader.from_batches(FILE_SCHEMA, batches)
        table = database.create_table(FILES, data=reader, schema=FILE_SCHEMA, mode="overwrite")
    return {"version": table.version, "contents": contents}


def stored_files(folder: Path, manifest: Manifest) -> Iterator[tuple[str, bytes]]:
    """The files by name in pieces, those of one file in their order."""
    with store_errors(folder):
        table = in_time(lambda: at_version(folder, connected(folder), manifest, FILES))
        rows = in_time(table.search().select(["name", "part"]).limit(None).to_arrow).to_pylist()
    for name, number in sorted((row["name"], row["part"]) for row in rows):
        quoted = name.replace("'", "''")
        with store_errors(folder):
            query = table.search().where(f"name = '{quoted}' AND part = {number}").select(["data"]).limit(1)
            found = in_time(query.to_arrow)
        yield name, found.column("data")[0].as_py()
