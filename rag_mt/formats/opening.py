"""Files as byte streams and as lines that can be written again byte for byte, in constant memory.

Compression is known by its first bytes. Lines end in LF, CRLF or CR and in nothing else: U+2028 and the like are
text.
"""

from __future__ import annotations

import gzip
import io
import logging
import lzma
import re
import stat
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import zstandard

from rag_mt.base.errors import UserError
from rag_mt.base.types import Origin, Skips
from rag_mt.formats.remote import RemoteBytes

log = logging.getLogger("rag_mt")

MAX_CHARS = 100_000
"""A longer line is no text of people; a long paragraph is cut into sentences like any other."""

MAX_DOCUMENT = 512 * 2**20
"""Bytes of a file that is read whole."""

BOM = b"\xef\xbb\xbf"
_CHUNK = 1 << 18
_HEAD = 8192

_NOT_TEXT = {
    b"PK\x03\x04": "a ZIP archive or an Office document: unpack it, or save the document as plain text",
    b"\xd0\xcf\x11\xe0": "an old Office document: save it as plain text",
    b"%PDF-": "a PDF: convert it with `pdftotext`",
    b"\x89PNG": "a PNG image: give a text file",
    b"\xff\xd8\xff": "a JPEG image: give a text file",
    b"GIF89a": "a GIF image: give a text file",
    b"BZh91AY&SY": "a bzip2 file: unpack it with `bunzip2`",
    b"7z\xbc\xaf": "a 7-Zip archive: unpack it",
    b"{\\rtf": "an RTF document: save it as plain text",
    b"\xff\xfe\x00\x00": "UTF-32 text: convert it with `iconv -f utf-32 -t utf-8`",
    b"\x00\x00\xfe\xff": "UTF-32 text: convert it with `iconv -f utf-32 -t utf-8`",
    b"\xff\xfe": "UTF-16 text: convert it with `iconv -f utf-16 -t utf-8`",
    b"\xfe\xff": "UTF-16 text: convert it with `iconv -f utf-16 -t utf-8`",
}

_BREAKS = re.compile(r"[\r\n]+")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_NO_CHARACTER = re.compile(
    "[\ud800-\udfff\ufdd0-\ufdef" + "".join(f"{chr(p << 16 | 0xFFFE)}{chr(p << 16 | 0xFFFF)}" for p in range(17)) + "]"
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file, or one part of a line that is too long to hold. `raw` are its bytes with the byte order mark
    of the file's first line and with the line end; `text` is what it says without these, or None where it cannot be
    read: such a line is written again as `raw`."""

    number: int
    raw: bytes
    text: str | None

    def with_text(self, text: str) -> bytes:
        """The line's bytes with other text. Line ends in `text` become spaces, so that lines stay lines."""
        mark = BOM if self.number == 1 and self.raw.startswith(BOM) else b""
        return mark + _BREAKS.sub(" ", text).encode("utf-8", "replace") + _line_end(self.raw)


def open_bytes(path: Path) -> BinaryIO:
    """A buffered stream of the file's bytes, decompressed if it is a .gz, .xz or .zst whatever its name. Raises
    UserError if there is no such regular file, if it cannot be opened, and from reads where it is damaged."""
    try:
        file = io.BufferedReader(_regular(path) if isinstance(path, Path) else RemoteBytes(path), _CHUNK)
    except FileNotFoundError:
        raise UserError(f"file {path} does not exist: check its name") from None
    except PermissionError:
        raise UserError(f"file {path} may not be read: check its permissions") from None
    except (OSError, ValueError) as error:
        raise UserError(f"file {path} cannot be opened ({error}): check its name") from None
    head = file.peek(_HEAD)
    for magic, (kind, new_member) in _DECOMPRESSORS.items():
        if head.startswith(magic):
            return cast(BinaryIO, io.BufferedReader(_Decompressed(file, kind, new_member, path), _CHUNK))
    return file


def _regular(path: Path) -> io.FileIO:
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise UserError(f"{path} is a folder: expected a file, give one in it")
    if not stat.S_ISREG(mode):
        raise UserError(f"{path} is a pipe or device: expected a file that can be read twice, save it to one")
    return io.FileIO(path)


def read_whole(path: Path, advice: str) -> bytes:
    """All bytes of a file; raises UserError with advice for one of more than MAX_DOCUMENT bytes."""
    with open_bytes(path) as stream:
        data = stream.read(MAX_DOCUMENT + 1)
    if len(data) > MAX_DOCUMENT:
        raise UserError(f"{path} has more than {MAX_DOCUMENT >> 20} MB: {advice}")
    return data


def read_lines(path: Path, skips: Skips, max_chars: int = MAX_CHARS) -> Iterator[Line]:
    """The lines of a UTF-8 file; their bytes joined are the file's bytes. A line that is not valid UTF-8, holds control
    characters or noncharacters or is longer than `max_chars` goes to `skips`, once, and has no text. Mixed line ends
    and an empty file are noted in the log, if `skips` shows anything. Raises UserError for what is not a text file."""
    ends: Counter[bytes] = Counter()
    number = 0
    with open_bytes(path) as stream:
        check_text(cast(io.BufferedReader, stream).peek(_HEAD)[:_HEAD], path)
        for raw, goes_on in _raw_lines(stream, 4 * max_chars + len(BOM) + 2):
            number += not goes_on
            end = _line_end(raw)
            ends[end] += 1
            content = raw.removeprefix(BOM if number == 1 else b"").removesuffix(end)
            text, reason = (None, "") if goes_on else _decoded(content, max_chars)
            if reason:
                skips.add(Origin(str(path), number), reason)
            yield Line(number, raw, text)
    name = str(path).removeprefix(skips.folder)
    if skips.shown and not number:
        log.info("%s is empty", name)
    names = {b"\n": "LF", b"\r\n": "CRLF", b"\r": "CR"}
    kinds = [f"{ends[end]} {name}" for end, name in names.items() if ends[end]]
    if skips.shown and len(kinds) > 1:
        log.info("%s has mixed line ends, kept as they are: %s", name, ", ".join(kinds))


@contextmanager
def compressed(stream: BinaryIO, path: Path) -> Iterator[BinaryIO]:
    """A stream that writes into `stream` what the suffix of `path` promises: .gz, .xz, .zst, or the bytes as they are.
    Equal contents give equal bytes: no time and no name is stored."""
    match path.suffix.lower():
        case ".gz":
            packed: Any = gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0)
        case ".xz":
            packed = lzma.LZMAFile(stream, "wb")  # noqa: SIM115
        case ".zst":
            packed = zstandard.ZstdCompressor().stream_writer(stream, closefd=False)
        case _:
            yield stream
            return
    with packed:
        yield packed


def fault(text: str) -> str:
    """What keeps a text from being a segment, such as `control character`; empty if nothing does."""
    if text.isprintable():
        return ""
    if _CONTROL.search(text):
        return "control character"
    return "noncharacter or unpaired surrogate" if _NO_CHARACTER.search(text) else ""


def check_text(head: bytes, path: Path) -> None:
    """Raise UserError with what to do if a file that begins with `head` is no UTF-8 text."""
    for magic, kind in _NOT_TEXT.items():
        if head.startswith(magic):
            raise UserError(f"{path} looks like {kind}; expected UTF-8 text")
    if b"\x00" in head:
        raise UserError(f"{path} looks like a binary file (it holds NUL bytes): expected UTF-8 text, give another file")


def _line_end(raw: bytes) -> bytes:
    if raw.endswith(b"\r\n"):
        return b"\r\n"
    return raw[-1:] if raw.endswith((b"\n", b"\r")) else b""


def _raw_lines(stream: BinaryIO, cap: int) -> Iterator[tuple[bytes, bool]]:
    """Lines with their ends; a line of more than `cap` bytes in parts, of which all but the first are marked True."""
    rest, goes_on = b"", False
    while chunk := stream.read(_CHUNK):
        lines = (rest + chunk).splitlines(keepends=True)
        rest = b"" if lines[-1].endswith(b"\n") else lines.pop()  # a CR at the end may be half of a CRLF
        for line in lines:
            yield line, goes_on
            goes_on = False
        if len(rest) > cap:
            held = rest[-1:] if rest.endswith(b"\r") else b""
            yield rest[: len(rest) - len(held)], goes_on
            rest, goes_on = held, True
    if rest:
        yield rest, goes_on


def _decoded(raw: bytes, max_chars: int) -> tuple[str | None, str]:
    """The text of a line, or None and the reason why it has none."""
    if len(raw) > 4 * max_chars:
        return None, "over-long line"
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return None, "not valid UTF-8"
    reason = "over-long line" if len(text) > max_chars else fault(text)
    return (None, reason) if reason else (text, "")


_DECOMPRESSORS: dict[bytes, tuple[str, Callable[[], Any]]] = {
    b"\x1f\x8b": ("gz", lambda: zlib.decompressobj(zlib.MAX_WBITS | 16)),
    b"\xfd7zXZ\x00": ("xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ)),
}
_ZSTD = "zst", lambda: zstandard.ZstdDecompressor().decompressobj()
_DECOMPRESSORS[b"\x28\xb5\x2f\xfd"] = _ZSTD
_DECOMPRESSORS |= {bytes((n, 0x2A, 0x4D, 0x18)): _ZSTD for n in range(0x50, 0x60)}  # skippable: pzstd begins with one


class _Decompressed(io.RawIOBase):
    """The contents of all members of a compressed file. Damage, a last member that is not complete and bytes after it
    are UserErrors: the libraries' own readers overlook some of these."""

    def __init__(self, file: BinaryIO, kind: str, new_member: Callable[[], Any], path: Path) -> None:
        self._file, self._kind, self._new_member, self._path = file, kind, new_member, path
        self._member: Any = None
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        try:
            while not self._ready and (data := self._compressed()):
                if not self._member or self._member.eof:
                    self._member = self._new_member()
                self._ready = memoryview(self._member.decompress(data))
        except (OSError, EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
            raise UserError(
                f"{self._path} is a damaged or truncated .{self._kind} file ({error}): get it again"
            ) from None
        size = min(len(view), len(self._ready))
        view[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def _compressed(self) -> bytes:
        """The next bytes to decompress; empty at the end of the file."""
        ended = self._member is not None and self._member.eof
        left: bytes = self._member.unused_data.lstrip(b"\x00") if ended else b""  # gz and xz pad with NUL
        # A zstd block can grow 32,000-fold: small bites keep the memory small.
        data = left or self._file.read(1024)
        if not data and self._member and not ended:
            raise EOFError("it ends too early")
        return data

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
