"""Hashes of files and settings; a big file is read once and its hash remembered."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import tomllib
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from rag_mt.base.errors import DamagedFileError, UserError
from rag_mt.base.paths import cache_dir

REMEMBERED = 10_000


def settings_hash(settings: Any) -> str:
    """A short stable hash of JSON-able settings."""
    text = json.dumps(settings, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_sha256(path: Path) -> str:
    """The sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remembered_sha256(path: Path) -> str:
    """The sha256 of a file, read again only when its size, inode, or a time of change has changed.

    `st_ctime` cannot be set by programs on POSIX, so that what was written over with its old time is read again; bytes
    that decay on the disk are found by reading alone. The hashes of the REMEMBERED files that were read last are in one
    SQLite file of the cache; where that cannot be used, files are read each time.
    """
    stat, name = path.stat(), str(path.resolve())
    state = f"{stat.st_size} {stat.st_ino} {stat.st_mtime_ns} {stat.st_ctime_ns}"
    with closing(_hashes()) as hashes:
        with suppress(sqlite3.Error):
            query = "SELECT sha256 FROM files WHERE path = ? AND state = ?"
            if row := hashes.execute(query, [name, state]).fetchone():
                return str(row[0])
        digest = file_sha256(path)
        with suppress(sqlite3.Error), hashes:
            hashes.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", [name, state, digest])
            hashes.execute("DELETE FROM files WHERE rowid <= (SELECT max(rowid) FROM files) - ?", [REMEMBERED])
    return digest


def _hashes() -> sqlite3.Connection:
    """The database of remembered hashes, made anew if it is damaged, in memory where it is unusable."""
    path = cache_dir() / "hashes.sqlite"
    for name in (path, path, ":memory:"):
        database = None
        try:
            database = sqlite3.connect(name, timeout=5)
            database.execute("CREATE TABLE IF NOT EXISTS files (path TEXT UNIQUE, state TEXT, sha256 TEXT)")
            return database
        except sqlite3.DatabaseError as error:
            if database:
                database.close()
            if error.sqlite_errorcode in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
                path.unlink(missing_ok=True)
    raise AssertionError("a database in memory can always be made")


def remembered_hashes(paths: Iterable[Path]) -> dict[str, str]:
    """`remembered_sha256` of files by their folder's and their own name."""
    return {f"{path.parent.name}/{path.name}": remembered_sha256(path) for path in paths}


def folder_fingerprint(folder: Path, suffixes: tuple[str, ...] = (".safetensors", ".json", ".model")) -> str:
    """A short hash over the weights, configuration and tokenizer files of a model folder."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix in suffixes)
    return settings_hash([[str(p.relative_to(folder)), remembered_sha256(p)] for p in files])


def read_json(path: Path) -> Any:
    """The parsed contents of a UTF-8 JSON file; raises DamagedFileError if it is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DamagedFileError(f"{path} is no JSON file any more ({error}): delete it and make it again") from error


def read_toml(path: Path, what: str, example: str | Path) -> dict[str, Any]:
    """The parsed contents of a TOML file that a user named, which is to hold `what`, as `example` does. Raises
    UserError for a file that is missing or no TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"there is no {what} {path}: try {example}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not a TOML file: {error}") from error
