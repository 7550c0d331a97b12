"""What an index folder has beside vectors and text (models, terms of BM25, adapters), for an index in LanceDB."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from rag_mt.base.files import cache_dir, file_sha256, settings_hash, whole_folder
from retrievers.index.lance.place import connected, is_lance, store_errors
from retrievers.index.lance.tables import FILE_SCHEMA, FILES, at_version, stored_manifest
from retrievers.index.manifest import MANIFEST, ROWS, SENTENCES, SPANS, VECTORS, Manifest

PART = 1 << 25
"""Bytes of a file in a row."""
IN_TABLES = (MANIFEST, VECTORS, ROWS, SPANS, SENTENCES)


def files_in(folder: Path) -> dict[str, Path]:
    """The files of an index folder that are in no other table, by their names in it."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in files}
    return {name: path for name, path in names.items() if name not in IN_TABLES and not name.startswith(".")}


def write_files(folder: Path, database: Any, files: Mapping[str, Path]) -> dict[str, Any]:
    """Write the files as a new version of their table; returns its entry in the manifest."""

    def batches() -> Iterator[pa.RecordBatch]:
        for name, path in files.items():
            with path.open("rb") as file:
                number = 0
                while (data := file.read(PART)) or not number:
                    yield pa.RecordBatch.from_arrays(
                        [
                            pa.array([name], pa.string()),
                            pa.array([number], pa.int32()),
                            pa.array([data], pa.large_binary()),
                        ],
                        schema=FILE_SCHEMA,
                    )
                    number += 1

    with store_errors(folder):
        reader = pa.RecordBatchReader.from_batches(FILE_SCHEMA, batches())
        table = database.create_table(FILES, data=reader, schema=FILE_SCHEMA, mode="overwrite")
    contents = settings_hash([[name, file_sha256(path)] for name, path in files.items()])[:12]
    return {"version": table.version, "contents": contents}


def local_files(folder: Path, manifest: Manifest | None = None) -> Path:
    """The folder with the small files of an index: its own, or for one in LanceDB a copy in the cache, which is made at
    the first call for these contents."""
    if not is_lance(folder):
        return folder
    database = connected(folder)
    manifest = manifest or stored_manifest(folder, database)
    place = cache_dir() / "indexes" / f"lance-{manifest.files[FILES]['contents']}"
    if place.is_dir():
        return place
    with whole_folder(place) as part, store_errors(folder):
        table = at_version(folder, database, manifest, FILES)
        rows = table.search().select(["name", "part"]).limit(None).to_arrow().to_pylist()
        for row in sorted(rows, key=lambda row: (row["name"], row["part"])):
            name, number = row["name"], row["part"]
            path = part / name
            if not path.resolve().is_relative_to(part.resolve()):
                continue  # a name that leads out of the folder is not one that we wrote
            path.parent.mkdir(parents=True, exist_ok=True)
            quoted = name.replace("'", "''")
            found = table.search().where(f"name = '{quoted}' AND part = {number}").select(["data"]).limit(1).to_arrow()
            with path.open("ab") as file:
                file.write(found.column("data")[0].as_py())
    return place
