"""Folders of a process that are removed once it has ended, by itself or, after a kill, by the next one."""

from __future__ import annotations

import secrets
import shutil
import weakref
from collections.abc import Callable
from glob import escape
from pathlib import Path

from filelock import FileLock

from rag_mt.base.paths import locked, release


class OwnFolder:
    """A new folder in `parent`, named PREFIX and random letters, whose lock `.NAME.lock` the process holds as long as
    it lives.

    Folders there of the same prefix whose lock nobody holds any more are removed; before that `inherit` may move out of
    one (the first path) into the new folder (the second) what is to live on.
    """

    def __init__(
        self, parent: Path, prefix: str, inherit: Callable[[Path, Path], object] = lambda left, new: None
    ) -> None:
        parent.mkdir(parents=True, exist_ok=True)
        self.path = parent / f"{prefix}{secrets.token_hex(8)}"
        try:  # before there is a folder to remove
            self._lock = locked(_lock_file(self.path), wait=True)
        except OSError:  # a file system without locks, where nothing is ever removed after a kill
            self._lock = None
        self.path.mkdir(mode=0o700)
        self._end = weakref.finalize(self, _remove, self.path, self._lock)  # at the end of the process at the latest
        locked_folders = (
            path.with_name(path.name[1:].removesuffix(".lock")) for path in parent.glob(f".{escape(prefix)}*.lock")
        )
        for left in {*locked_folders, *parent.glob(f"{escape(prefix)}*")} - {self.path}:
            if (lock := _lock_of_the_dead(left)) is not None:
                if left.is_dir():
                    inherit(left, self.path)
                _remove(left, lock)

    def close(self) -> None:
        """Delete the folder with all that is in it."""
        self._end()

    def leave(self) -> None:
        """Leave the folder to the next process that makes one of its prefix."""
        if self._end.detach() and self._lock is not None:
            self._lock.release()


def _lock_file(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.lock")


def _lock_of_the_dead(folder: Path) -> FileLock | None:
    try:
        return locked(_lock_file(folder))
    except OSError:  # another user's
        return None


def _remove(folder: Path, lock: FileLock | None) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if lock is not None:
        release(lock)
