"""The cache folder, files and folders that appear whole or not at all, and locks between processes."""

from __future__ import annotations

import glob
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

import platformdirs
import psutil
from filelock import FileLock, Timeout

from rag_mt.base.errors import UserError


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
        holder = ""
        with suppress(OSError):  # it has just ended, or the system lets nobody read a locked file
            holder = path.read_text(encoding="ascii")
        raise UserError(f"{job} is running already (process {holder or 'unknown'}): wait for it or stop it first")
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


def release(lock: FileLock) -> None:
    """Give a lock back and remove its file; whoever waits for it notices that and makes a new one."""
    with suppress(OSError):  # Windows removes no file that is open: there the library does it after the release
        Path(lock.lock_file).unlink()
    lock.release(force=True)


def _sign(handle: int) -> None:
    os.ftruncate(handle, 0)
    os.write(handle, str(os.getpid()).encode())
