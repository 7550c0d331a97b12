"""Where an index in LanceDB is: `lance:URI`, a folder or an object store, in the place of the folder of an index."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rag_mt.base.errors import UserError

PREFIX = "lance:"
PATIENCE = {"client_max_retries": "3", "connect_timeout": "10s", "timeout": "60s"}
"""What a store is given before it counts as away, instead of minutes."""
LONGEST = 200
"""Characters of what the engine says that an error quotes."""

_SCHEME = re.compile(r"^([a-z][a-z0-9+.-]+):/+")


def is_lance(folder: str | Path) -> bool:
    """Whether the place of an index is one in LanceDB."""
    return str(folder).startswith(PREFIX)


def only_in_folders(folder: Path) -> None:
    """Raises UserError for a place in LanceDB, where what is to be done needs the files of an index folder."""
    if is_lance(folder):
        raise UserError(f"{folder} has no files, which this needs: give the folder that it is a copy of")


def uri_of(folder: str | Path) -> str:
    """The URI of the database; a Path has made one slash of the two of `s3://`. Raises UserError where there is none,
    or one of LanceDB's cloud."""
    rest = str(folder).removeprefix(PREFIX)
    scheme = _SCHEME.match(rest)
    if not rest or (scheme and scheme[1] == "db"):
        raise UserError(
            f"{folder} names no database in a folder or an object store: expected lance:FOLDER or "
            "lance:s3://BUCKET/FOLDER"
        )
    if scheme and scheme[1] == "file":
        return f"/{rest[scheme.end() :]}"
    return f"{scheme[1]}://{rest[scheme.end() :]}" if scheme else rest


def local_folder(folder: str | Path) -> Path | None:
    """The folder of a database on this machine, None for one in an object store."""
    uri = uri_of(folder)
    return None if _SCHEME.match(uri) else Path(uri).expanduser()


def engine(folder: Path) -> Any:
    """The package; raises UserError where LanceDB is not installed."""
    os.environ.setdefault("LANCEDB_LOG", "error")  # read when it is imported: warnings of what is as it should be
    try:
        import lancedb
    except ImportError as error:
        raise UserError(
            f"{folder} is a place in LanceDB, which is not installed ({error}): pip install 'rag-mt[lance]'"
        ) from error
    return lancedb


def connected(folder: Path, new: bool = False) -> Any:
    """The connection to the database, whose folder is made if it may be `new`. Raises UserError where LanceDB is not
    installed, and where there is no folder or no store."""
    local, lancedb = local_folder(folder), engine(folder)
    if local is not None and not new and not local.is_dir():
        raise no_index(folder, "does not exist")
    with store_errors(folder):
        return lancedb.connect(str(local or uri_of(folder)), storage_options=PATIENCE if local is None else None)


def no_index(folder: Path, state: str) -> UserError:
    """The error for a place without an index."""
    return UserError(f"index {folder} {state}: copy one there with `rag-mt index copy DIR {folder}`")


@contextmanager
def store_errors(folder: Path) -> Iterator[None]:
    """What LanceDB raises, which has no kinds of its own, as a UserError."""
    try:
        yield
    except UserError:
        raise
    except (ValueError, RuntimeError, OSError) as error:
        said = " ".join(str(error).split())
        short = said if len(said) <= LONGEST else f"{said[:LONGEST]}..."
        raise UserError(
            f"index {folder} cannot be read or written ({short}): see that its folder or store can be reached and its "
            "keys are set; `rag-mt index copy --replace` makes it again if it is damaged"
        ) from error
