"""The tables of an index in LanceDB, and the one row that says which versions of them are the index.

units       one row a unit: unit and sentence (their ids), start, end, vector (fp16)
sentences   one row a sentence: sentence (its id), text, file, line, start, and what it translates
files       what else an index folder has (models of confidence, terms of BM25, adapters), in parts
index       one row: revision, and the manifest as in a folder

Every change of a table is a new version of it, and LanceDB keeps the old ones for a time. The manifest names a version
of each table, so that a change of several tables is seen as a whole or not at all: its last step is to replace the
manifest of the revision that it began with. `numbers` in the manifest are the ids that there are (see `Numbering`); a
change never gives an id again that it has taken away.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from rag_mt.base.errors import UserError
from rag_mt.base.files import alone_in
from retrievers.index.lance.place import connected, local_folder
from retrievers.index.manifest import Manifest, damaged, manifest_of, manifest_text
from retrievers.index.places import FILES, PARTS, changed_by_others, in_time, no_index, place_text, store_errors

INDEX = "index"
SENTENCE_SCHEMA = pa.schema(
    [
        ("sentence", pa.int64()),
        ("text", pa.string()),
        ("file", pa.string()),
        ("line", pa.int64()),
        ("start", pa.int64()),
        ("original", pa.string()),
    ]
)
FILE_SCHEMA = pa.schema([("name", pa.string()), ("part", pa.int32()), ("data", pa.large_binary())])
INDEX_SCHEMA = pa.schema([("revision", pa.int64()), ("manifest", pa.string())])
OLD_AFTER = timedelta(days=7)
"""Age of versions that are deleted when they are not the newest: who has one open opens the index again by then."""

MARGIN = timedelta(minutes=1)
"""By which clocks of a store and of this machine may differ."""

LOOSE, LOOSE_SHARE, PIECES = 2048, 0.02, 16
"""Rows, as a number and as a share, and pieces of a table, from which on it is compacted."""


def unit_schema(dimension: int) -> pa.Schema:
    """The columns of the units."""
    vector = pa.list_(pa.float16(), dimension)
    ids = [("unit", pa.int64()), ("sentence", pa.int64())]
    return pa.schema([*ids, ("start", pa.int32()), ("end", pa.int32()), ("vector", vector)])


@dataclass(frozen=True)
class Stored:
    """What the row of an index says: `manifest` is None while the first copy is being made."""

    revision: int
    manifest: Manifest | None


def table_of(folder: Path, database: Any, name: str) -> Any | None:
    """The newest version of a table, None where there is no such table."""
    with store_errors(folder):
        try:
            return database.open_table(name)
        except ValueError as error:
            if "not found" in str(error):
                return None
            raise


def read_stored(folder: Path, database: Any) -> Stored | None:
    """The row of the index, None where there is none; raises UserError for tables that are not ours."""
    table = table_of(folder, database, INDEX)
    if table is None:
        return None
    with store_errors(folder):
        if table.schema.names != INDEX_SCHEMA.names:
            raise UserError(f"{place_text(folder)} holds a table {INDEX!r} of others: give another place for the index")
        rows = table.to_arrow().to_pylist()
    if len(rows) != 1:
        raise damaged(folder, f"the table {INDEX!r} has {len(rows)} rows, not one")
    if not rows[0]["manifest"]:
        return Stored(rows[0]["revision"], None)
    try:
        contents = json.loads(rows[0]["manifest"])
    except ValueError:
        raise damaged(folder, "its manifest is not JSON") from None
    return Stored(rows[0]["revision"], manifest_of(folder, contents, PARTS))


def stored_manifest(folder: Path, database: Any | None = None) -> Manifest:
    """The manifest of an index; raises UserError where there is none, or no whole one."""
    with store_errors(folder):
        stored = in_time(lambda: read_stored(folder, database or connected(folder)))
    return finished(folder, stored)[1]


def finished(folder: Path, stored: Stored | None) -> tuple[int, Manifest]:
    """Revision and manifest; raises UserError where there is none, or no whole one."""
    if stored is None:
        raise no_index(folder, "is no index (it has no table with a manifest)")
    if stored.manifest is None:
        raise no_index(folder, "is not complete, its copy was interrupted")
    return stored.revision, stored.manifest


def at_version(folder: Path, database: Any, manifest: Manifest, name: str) -> Any:
    """A table as it was when the manifest was written."""
    version = int(manifest.files[name]["version"])
    table = table_of(folder, database, name)
    if table is None:
        raise damaged(folder, f"the table {name!r} is missing")
    with store_errors(folder):
        table.checkout(version)
    return table


def commit(folder: Path, database: Any, revision: int, manifest: Manifest, job: str) -> None:
    """Let the index be what the manifest says, if it is still of that revision; else raises UserError."""
    table = table_of(folder, database, INDEX)
    with store_errors(folder):
        values = {"revision": revision + 1, "manifest": manifest_text(manifest)}
        changed = 0 if table is None else table.update(where=f"revision = {revision}", values=values).rows_updated
    if changed != 1:
        raise changed_by_others(folder, job)


def write(folder: Path, table: Any, change: Callable[[], Any], job: str) -> None:
    """Do one change of a table, whose result tells its version. Raises UserError if others have changed the table since
    it was last read or changed here."""
    before = table.version
    with store_errors(folder):
        after = change().version
    if after > before + 1:
        raise changed_by_others(folder, job)


def change_stored(folder: Path, known: Manifest, job: str, change: Callable[[Manifest], Manifest]) -> Manifest:
    """`change_manifest` for an index in LanceDB."""
    with one_writer(folder, job):
        database = connected(folder)
        revision, manifest = finished(folder, read_stored(folder, database))
        if manifest.files != known.files:
            raise UserError(f"index {place_text(folder)} was replaced during its {job}: start the {job} again")
        manifest = change(manifest)
        commit(folder, database, revision, manifest, job)
    return manifest


@contextmanager
def one_writer(folder: Path, job: str) -> Iterator[None]:
    """Hold a database on this machine while it is changed; in an object store the last step tells of others."""
    local = local_folder(folder)
    with nullcontext() if local is None else alone_in(local, f"a {job} of index {folder}", wait=True):
        yield


def compact(table: Any, deleted: int, kept: int) -> None:
    """Join small files, take new rows into the indexes of a table, and delete what is OLD_AFTER, if there is enough of
    it: a vector index is then written anew, and new rows beside it are found without. `deleted` rows have just gone.
    The version `kept`, which is the index until the change is committed, and all after it stay."""
    new = max((index.num_unindexed_rows or 0 for index in table.list_indices()), default=0)
    enough = max(LOOSE, round(LOOSE_SHARE * table.count_rows()))
    if max(new, deleted) > enough or table.stats()["fragment_stats"]["num_fragments"] > PIECES:
        since = next(entry["timestamp"] for entry in table.list_versions() if entry["version"] == kept)
        age = datetime.now(since.tzinfo) - since
        table.optimize(cleanup_older_than=max(OLD_AFTER, age + MARGIN))


def tidy(folder: Path, database: Any) -> None:
    """Delete what is OLD_AFTER in the small tables, which every change writes anew."""
    for name in (FILES, INDEX):
        table = table_of(folder, database, name)
        with store_errors(folder):
            if table is not None:
                table.optimize(cleanup_older_than=OLD_AFTER)
