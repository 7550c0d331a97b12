"""The cache folder, files that appear whole or not at all, locks between processes, and hashes of files and settings.

A big file is read once and its hash remembered.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import sqlite3
import threading
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import platformdirs
import psutil
from filelock import FileLock, Timeout

from rag_mt.base.errors import DamagedFileError, UserError

SAMPLE_CORPUS = Path(__file__).parents[1] / "sample_corpus"
"""`LANG.txt` per language, one sentence per line, parallel by line number."""
EXAMPLES = Path(__file__).parents[1] / "examples"
"""The texts to try that come with rag_mt, `SUBJECT.LANGUAGE.txt`, and those of the demo's examples row."""


def cache_dir() -> Path:
    """The program's cache folder: `RAG_MT_CACHE` or the platform's user cache. Raises UserError where there is none and
    it cannot be made."""
    path = Path(os.environ.get("RAG_MT_CACHE") or platformdirs.user_cache_dir("rag_mt"))
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"the cache folder {path} cannot be made ({error.strerror}): name a folder that can be written in the "
            "environment variable RAG_MT_CACHE"
        ) from error
    return path


def sync(path: Path) -> None:
    """Force a written file (or a folder's list of names, where the system has a call for that) to disk."""
    windows = os.name == "nt"  # it opens no folders, and syncs only what is open for writing
    if windows and path.is_dir():
        return
    handle = os.open(path, os.O_RDWR if windows else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends without an error. What a killed process
    left behind for the same path is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        process = left.name.split(".")[-2].split("-")[0]
        if not (process.isdecimal() and len(process) < 10 and psutil.pid_exists(int(process))):
            left.unlink(missing_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        yield part
        sync(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Write a UTF-8 text file that appears whole or not at all."""
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON-able value as an indented text file that appears whole or not at all."""
    write_whole(path, json.dumps(value, ensure_ascii=False, indent=1) + "\n")


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside `path` that takes its place when the block ends without an error. Of two processes that
    make the same folder at once the first one wins and the other's is dropped."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = Path(mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
    try:
        yield part
        for file in part.rglob("*"):
            sync(file)
        part.chmod(0o755)
        try:
            part.rename(path)
        except OSError:
            if not path.is_dir():
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def alone_in(folder: Path, job: str, wait: bool = False) -> Iterator[None]:
    """Hold the folder, which is made if need be; the lock is a file `.NAME.lock` beside it, gone afterwards. If another
    process holds it, raises UserError that names that process and the `job`, or waits for its end."""
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()  # one lock for all names of a folder
    path = folder.with_name(f".{folder.name}.lock")
    lock = locked(path, wait)
    if lock is None:
        raise UserError(f"{job} is running already (process {holder_of(path)}): wait for it or stop it first")
    try:
        folder.mkdir(exist_ok=True)  # its last holder may have removed it
        yield
    finally:
        release(lock)


def locked(path: Path, wait: bool = False) -> FileLock | None:
    """The lock of a file, which holds the number of its process; None if another one holds it and `wait` is false."""
    lock = FileLock(path, thread_local=False, on_acquired=_sign)
    try:
        lock.acquire(blocking=wait)
    except Timeout:
        return None
    return lock


def holder_of(path: Path) -> str:
    """The number of the process that holds the lock of a file, or `unknown`."""
    with suppress(OSError):  # it has just ended, or the system lets nobody read a locked file
        return path.read_text(encoding="ascii") or "unknown"
    return "unknown"


def release(lock: FileLock) -> None:
    """Give a lock back and remove its file; whoever waits for it notices that and makes a new one."""
    with suppress(OSError):  # Windows removes no file that is open: there the library does it after the release
        Path(lock.lock_file).unlink()
    lock.release(force=True)


def _sign(handle: int) -> None:
    os.ftruncate(handle, 0)
    os.write(handle, str(os.getpid()).encode())


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
    """The parsed contents of a TOML file that a user named, which is to hold `what`; `example` is one to try. Raises
    UserError for a file that is missing or no TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"there is no {what} {path}: try {example}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not a TOML file: {error}") from error
