"""Uploaded files: names that are shown but never used as paths, and sizes that are known before anything is parsed."""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from rag_mt.base.errors import UserError
from rag_mt.formats.opening import open_bytes
from rag_mt.formats.registry import COMPRESSED, SUFFIXES, check_content
from ui.server.limits import LimitError, TooLargeError

MOST_NAME_CHARS = 100
_CHUNK = 1 << 16


def shown_title(text: str) -> str:
    """A name that a user gave, without characters that nobody sees, of at most MOST_NAME_CHARS; never empty."""
    seen = "".join(" " if c.isspace() else c for c in text if c.isspace() or unicodedata.category(c)[0] != "C")
    return " ".join(seen.split())[:MOST_NAME_CHARS].strip(" .") or "unnamed"


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
    bytes, packed or unpacked, and UserError if it cannot be read or is of a kind that is not."""
    place = folder / f"{stem}{safe_suffix(name)}"
    shutil.copyfile(source, place)
    with named(place, name):
        if unpacked_size(place, most) > most:
            raise TooLargeError(f"{shown_name(name)} holds more than {most} bytes and no more are allowed: split it")
        check_content(place, PurePosixPath(shown_name(name)))
    return place


def unpacked_size(path: Path, most: int) -> int:
    """The number of bytes of the unpacked file; any number above `most` says that it is more."""
    size = 0
    with open_bytes(path) as stream:
        while size <= most and (chunk := stream.read(_CHUNK)):
            size += len(chunk)
    return size


@contextmanager
def named(path: Path, name: str) -> Iterator[None]:
    """Errors about the file `path` name it as its user does."""
    try:
        yield
    except LimitError:
        raise
    except UserError as error:
        raise UserError(str(error).replace(str(path), shown_name(name))) from error
