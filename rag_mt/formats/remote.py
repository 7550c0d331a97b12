"""Files behind URLs: any storage that fsspec knows, such as `s3://bucket/folder` or `https://host/text.gz`.

The paths of universal-pathlib stand for them. They do what `pathlib.Path` does, which is the type that they are given
here, but are no instances of it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from rag_mt.base.errors import UserError

URL = re.compile(r"[a-z][a-z0-9+.-]+://")
Result = TypeVar("Result")


def is_remote(name: str) -> bool:
    """Whether the name of a file is a URL."""
    return URL.match(name) is not None


def path_of(name: str) -> Path:
    """The path of a file or folder, also of a URL. Raises UserError where a package for that is missing."""
    if not is_remote(name):
        return Path(name)
    try:
        from upath import UPath
    except ImportError:
        raise UserError(f"reading {name} needs universal-pathlib: `pip install 'rag-mt[scale]'`") from None
    path = asked(name, lambda: UPath(name))
    asked(name, lambda: path.fs)  # a storage may need a package of its own
    return cast(Path, path)


def is_folder(path: Path) -> bool:
    """Whether a path is that of a folder; whatever is a file is none, although some storages list what is in it."""
    return path.is_dir() if isinstance(path, Path) else asked(path, lambda: not path.is_file() and path.is_dir())


def files_in(folder: Path) -> list[Path]:
    """All files in a folder at any depth, sorted."""
    if isinstance(folder, Path):
        return sorted(path for path in folder.rglob("*") if path.is_file())
    return asked(folder, lambda: sorted((path for path in folder.rglob("*") if path.is_file()), key=str))


def stamp(path: Path) -> list[object]:
    """What tells a file from a changed one: name, size and time or, behind a URL, whatever its storage has for that."""
    if isinstance(path, Path):
        return [str(path), path.stat().st_size, path.stat().st_mtime_ns]
    return [str(path), asked(path, lambda: path.fs.ukey(path.path))]


def asked(name: object, question: Callable[[], Result]) -> Result:
    """The answer of a storage; whatever it raises, save for a file that is not there, is a UserError."""
    try:
        return question()
    except FileNotFoundError:
        raise
    except Exception as error:  # each storage has errors of its own
        reason = str(error).split("\n")[0][:200].rstrip(".") or type(error).__name__
        raise UserError(
            f"{name} cannot be read ({reason}): check the URL, the network and your access to it"
        ) from error


class RemoteBytes(io.RawIOBase):
    """The bytes of a file behind a URL, which are fetched as they are read. Raises UserError where that fails, and
    FileNotFoundError."""

    def __init__(self, path: Any) -> None:
        self._path = path
        self._file: Any = asked(path, lambda: path.open("rb"))

    def readable(self) -> bool:
        """It can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer; returns the number of bytes, 0 at the end."""
        data = asked(self._path, lambda: self._file.read(len(buffer)))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Let the storage go."""
        if not self.closed:
            self._file.close()
        super().close()
