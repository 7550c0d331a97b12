"""Where an index in LanceDB is: `lance:URI`, a folder or an object store, in the place of the folder of an index."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rag_mt.base.errors import UserError
from retrievers.index.places import CONNECT, no_index, package_of, place_text, seconds_to_answer, store_errors, where_of

PATIENCE = {"client_max_retries": "2", "connect_timeout": f"{CONNECT}s"}
"""What a store is given for a request before it counts as away; LanceDB makes several of each, see `in_time`."""


def uri_of(folder: str | Path) -> str:
    """The URI of the database. Raises UserError where there is none, or one of LanceDB's cloud."""
    scheme, uri = where_of(folder)
    if not uri or scheme == "db":
        raise UserError(
            f"{place_text(folder)} names no database in a folder or an object store: expected lance:FOLDER or "
            "lance:s3://BUCKET/FOLDER"
        )
    return f"/{uri.removeprefix('file://')}" if scheme == "file" else uri


def local_folder(folder: str | Path) -> Path | None:
    """The folder of a database on this machine, None for one in an object store."""
    uri = uri_of(folder)
    return None if where_of(folder)[0] not in ("", "file") else Path(uri).expanduser()


def connected(folder: Path, new: bool = False) -> Any:
    """The connection to the database, whose folder is made if it may be `new`. Raises UserError where LanceDB is not
    installed, and where there is no folder or no store."""
    os.environ.setdefault("LANCEDB_LOG", "error")  # read when it is imported: warnings of what is as it should be
    local, lancedb = local_folder(folder), package_of(folder)
    if local is not None and not new and not local.is_dir():
        raise no_index(folder, "does not exist")
    patience = {**PATIENCE, "timeout": f"{seconds_to_answer():g}s"}
    with store_errors(folder):
        return lancedb.connect(str(local or uri_of(folder)), storage_options=patience if local is None else None)
