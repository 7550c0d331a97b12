"""Locks between processes. The system frees a lock when the process that holds it ends, however that happens."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from rag_mt.base.errors import UserError


@contextmanager
def alone_in(folder: Path, job: str, wait: bool = False) -> Iterator[None]:
    """Hold the folder, which is made if need be; the lock is a file `.NAME.lock` beside it, gone afterwards.

    If another process holds it, raises UserError that names that process and the `job`, or waits for its end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()  # one lock for all names of a folder
    path = folder.with_name(f".{folder.name}.lock")
    lock = locked(path, wait)
    if lock is None:
        raise UserError(f"{job} is running already (process {_holder(path)}): wait for it or stop it first")
    try:
        folder.mkdir(exist_ok=True)  # its last holder may have removed it
        yield
    finally:
        release(lock)


def locked(path: Path, wait: bool = False) -> FileLock | None:
    """The lock of a file, which holds the number of its process; None if it is held already (unless told to wait)."""
    lock = FileLock(path, thread_local=False, on_acquired=_sign)
    try:
        lock.acquire(blocking=wait)
    except Timeout:
        return None
    return lock


def release(lock: FileLock) -> None:
    """Give a lock back and remove its file; who waits for it notices that and makes a new one."""
    with suppress(OSError):  # Windows removes no file that is open: there the library does it after the release
        Path(lock.lock_file).unlink()
    lock.release(force=True)


def _sign(handle: int) -> None:
    os.ftruncate(handle, 0)
    os.write(handle, str(os.getpid()).encode())


def _holder(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii") or "unknown"
    except OSError:  # it has just ended, or the system lets nobody read a locked file
        return "unknown"
