"""Folders for users' files that are gone with their process: what a killed one left is removed by the next one."""

from __future__ import annotations

import fcntl
import os
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

NEW = ".new-"


class OwnFolder:
    """A new folder in `parent`, named PREFIX and random letters, which the process locks as long as it lives.

    Folders there of the same prefix that no process has locked are removed; before that `inherit` may move out of one
    (the first path) into the new folder (the second) what is to live on.
    """

    def __init__(
        self, parent: Path, prefix: str, inherit: Callable[[Path, Path], object] = lambda left, new: None
    ) -> None:
        parent.mkdir(parents=True, exist_ok=True)
        made = Path(mkdtemp(prefix=f"{NEW}{prefix}", dir=parent))
        handle = _locked(made)  # before it has a name by which others look for it
        self.path = made.rename(made.with_name(made.name.removeprefix(NEW)))
        self._handle = handle
        self._end = weakref.finalize(self, _remove, self.path, handle)  # at the end of the process at the latest
        for left in parent.glob(f"{prefix}*"):
            if left != self.path and (held := _locked(left)) is not None:
                inherit(left, self.path)
                _remove(left, held)

    def close(self) -> None:
        """Delete the folder with all that is in it."""
        self._end()

    def leave(self) -> None:
        """Leave the folder to the next process that makes one of its prefix."""
        if self._end.detach() and self._handle is not None:
            os.close(self._handle)


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
