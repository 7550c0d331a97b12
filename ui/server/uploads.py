"""Uploaded files: names that are shown but never used as paths, sizes that are known before anything is parsed, and
folders that are removed once their process has ended."""

from __future__ import annotations

import hashlib
import secrets
import shutil
import unicodedata
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path, PurePosixPath

from filelock import FileLock

from rag_mt.base.errors import UserError
from rag_mt.base.files import locked, release
from rag_mt.formats.opening import open_bytes
from rag_mt.formats.registry import COMPRESSED, SUFFIXES, check_content
from ui.server.limits import LimitError, TooLargeError

MOST_NAME_CHARS = 100
CHUNK = 1 << 16


def owner_folder(folder: Path, owner: str) -> Path:
    """Where what belongs to an owner is kept: the owner's name is no part of the path."""
    return folder / hashlib.sha256(owner.encode("utf-8", "replace")).hexdigest()[:32]


def shown_title(text: str) -> str:
    """A user's name for something: no invisible characters, at most MOST_NAME_CHARS, never empty."""
    visible = "".join(" " if c.isspace() else c for c in text if c.isspace() or unicodedata.category(c)[0] != "C")
    return " ".join(visible.split())[:MOST_NAME_CHARS].strip(" .") or "unnamed"


def shown_name(name: str) -> str:
    """The last part of the name of an uploaded file, as `shown_title`."""
    return shown_title(PurePosixPath(name.replace("\\", "/")).name)


def safe_suffix(name: str) -> str:
    """The suffixes of a name that mean a format or a compression, such as `.txt.gz`; empty if there is none."""
    suffixes = [s.lower() for s in PurePosixPath(shown_name(name)).suffixes[-2:]]
    packed = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSED else ""
    kind = suffixes[-1] if suffixes and suffixes[-1] in SUFFIXES else ""
    return kind + packed


def keep(source: Path, folder: Path, stem: str, name: str, most: int) -> Path:
    """Copy an upload to `folder/STEM` with the suffix of its `name`; raises LimitError if it holds more than `most`
    bytes, packed or unpacked, and UserError if it cannot be read or its format is not supported."""
    copy, shown = folder / f"{stem}{safe_suffix(name)}", shown_name(name)
    shutil.copyfile(source, copy)
    with named(copy, shown):
        check_size(copy, shown, most)
        check_content(copy, PurePosixPath(shown))
    return copy


def check_size(path: Path, name: str, most: int) -> None:
    """Raise LimitError if a file, which its user calls `name`, holds more than `most` bytes, packed or unpacked."""
    size = 0
    with open_bytes(path) as stream:
        while chunk := stream.read(CHUNK):
            size += len(chunk)
            if size > most:
                raise TooLargeError(f"{name} holds more than {most} bytes and no more are allowed: split it")


@contextmanager
def named(path: Path, name: str) -> Iterator[None]:
    """Errors about the file `path` call it `name`, as its user does."""
    try:
        yield
    except LimitError:
        raise
    except UserError as error:
        raise UserError(error.public.replace(str(path), name)) from error


class OwnFolder:
    """A new folder in `parent`, named `prefix` and random letters, whose lock `.NAME.lock` the process holds as long as
    it lives.

    Folders there of the same prefix whose lock nobody holds any more are removed; before that `inherit` may move what
    is to live on out of one (the first path) into the new folder (the second).
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
        prefix = escape(prefix)
        locks = {path.with_name(path.name[1:].removesuffix(".lock")) for path in parent.glob(f".{prefix}*.lock")}
        for left in locks.union(parent.glob(f"{prefix}*")) - {self.path}:
            try:
                lock = locked(_lock_file(left))
            except OSError:  # another user's
                continue
            if lock is not None:  # its process has ended
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


def _remove(folder: Path, lock: FileLock | None) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if lock is not None:
        release(lock)
