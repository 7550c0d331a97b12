"""Folders for users' files that are gone with their process: what a killed one left is removed by the next one."""

from __future__ import annotations

import secrets
import shutil
import weakref
from glob import escape
from pathlib import Path

from filelock import FileLock

from rag_mt.locks import locked, release


class OwnFolder:
    """A new folder in `parent`, named PREFIX and random letters, whose lock `.NAME.lock` the process holds as long as
    it lives.

    Folders there of the same prefix whose lock nobody holds any more are removed first.
    """

    def __init__(self, parent: Path, prefix: str) -> None:
        parent.mkdir(parents=True, exist_ok=True)
        for left in parent.glob(f".{escape(prefix)}*.lock"):
            _remove_unused(left)
        self.path = parent / f"{prefix}{secrets.token_hex(8)}"
        try:  # before there is a folder to remove
            lock = locked(parent / f".{self.path.name}.lock", wait=True)
        except OSError:  # a file system without locks, where nothing is ever removed after a kill
            lock = None
        self.path.mkdir(mode=0o700)
        self._end = weakref.finalize(self, _remove, self.path, lock)  # at the end of the process at the latest

    def close(self) -> None:
        """Delete the folder with all that is in it."""
        self._end()


def _remove_unused(path: Path) -> None:
    try:
        lock = locked(path)
    except OSError:  # another user's
        return
    if lock is not None:
        _remove(path.with_name(path.name.removeprefix(".").removesuffix(".lock")), lock)


def _remove(folder: Path, lock: FileLock | None) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if lock is not None:
        release(lock)
