"""Folders for users' files that are gone with their process: what a killed one left is removed by the next one."""

from __future__ import annotations

import fcntl
import os
import shutil
import weakref
from pathlib import Path
from tempfile import mkdtemp

NEW = ".new-"


class OwnFolder:
    """A new folder in `parent`, named PREFIX and random letters, which the process locks as long as it lives.

    Folders there of the same prefix that no process has locked are removed first.
    """

    def __init__(self, parent: Path, prefix: str) -> None:
        parent.mkdir(parents=True, exist_ok=True)
        for left in parent.glob(f"{prefix}*"):
            _remove_unused(left)
        made = Path(mkdtemp(prefix=f"{NEW}{prefix}", dir=parent))
        handle = _locked(made)  # before it has a name by which others look for it
        self.path = made.rename(made.with_name(made.name.removeprefix(NEW)))
        self._end = weakref.finalize(self, _remove, self.path, handle)  # at the end of the process at the latest

    def close(self) -> None:
        """Delete the folder with all that is in it."""
        self._end()


def _remove_unused(folder: Path) -> None:
    handle = _locked(folder)
    if handle is not None:
        _remove(folder, handle)


def _remove(folder: Path, handle: int | None) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if handle is not None:
        os.close(handle)


def _locked(folder: Path) -> int | None:
    """A handle that holds the folder; None if somebody else does, it is no folder of ours, or its file system (NFS)
    has no locks on folders, where nothing is ever removed."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle
