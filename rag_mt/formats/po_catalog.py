"""gettext catalogues read by polib, with the lines that hold each message: filling one leaves all others alone."""

from __future__ import annotations

import io
import re
from codecs import lookup
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polib

from rag_mt.base.errors import UserError
from rag_mt.formats.opening import BOM, check_text, open_bytes

MAX_CATALOG = 512 * 2**20
WIDTH = 79
"""Lines longer than this are wrapped, unless the catalogue has longer ones itself (gettext's own width)."""

_CHARSET = re.compile(rb'Content-Type:[^"\\]*charset=([-\w.:]+)', re.IGNORECASE)
_COMMENT = re.compile(r"#(,|~(?!\|))\s*(?=\S)")
_STRING = re.compile(r'((?:msg\w+(?:\[\d\])?)?)\s*("(?:[^"\\]|\\.)*")')
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|.)")
_PLACE = re.compile(r'\s*(#,(?=\s*\S)|msg[a-z_]+|")')


@dataclass(frozen=True)
class Message:
    """polib's entry of a message and the indices of its lines in the catalogue."""

    entry: Any  # polib.POEntry, which has no types
    flags_at: int | None
    first: int  # of the first keyword
    source_at: int
    forms_at: int
    end: int

    @property
    def is_header(self) -> bool:
        return self.entry.msgid == "" and self.entry.msgctxt is None

    @property
    def has_plural(self) -> bool:
        return bool(self.entry.msgid_plural or self.entry.msgstr_plural)

    @property
    def sources(self) -> list[str]:
        return [self.entry.msgid] + ([self.entry.msgid_plural] if self.entry.msgid_plural else [])

    @property
    def forms(self) -> list[str]:
        return list(self.entry.msgstr_plural.values()) or [self.entry.msgstr]

    @property
    def is_filled(self) -> bool:
        """Whether all forms have a translation, be it reviewed or fuzzy."""
        return all(self.forms)


@dataclass
class Catalog:
    """The lines of a PO file with their line ends, and its messages without the obsolete ones."""

    lines: list[str]
    messages: list[Message]
    encoding: str
    mark: bool

    @cached_property
    def header(self) -> Message | None:
        return next((m for m in self.messages if m.is_header), None)

    def fields(self) -> dict[str, str]:
        """The header's fields; names in lower case."""
        text = self.header.forms[0] if self.header else ""
        pairs = (line.partition(":") for line in text.split("\n"))
        return {name.strip().lower(): value.strip() for name, colon, value in pairs if colon}

    @property
    def line_end(self) -> str:
        return "\r\n" if self.lines and self.lines[0].endswith("\r\n") else "\n"

    @cached_property
    def width(self) -> int:
        """The width to wrap at; 0 for a catalogue that does not wrap."""
        longest = max((len(line.rstrip()) for line in self.lines if '"' in line and line[0] != "#"), default=0)
        return WIDTH if longest <= WIDTH + 1 else 0


def read_catalog(file: Path) -> Catalog:
    """The catalogue of a PO or POT file. Raises UserError with the line of what cannot be read."""
    with open_bytes(file) as stream:
        check_text(stream, file)
        data = stream.read(MAX_CATALOG + 1)
    if len(data) > MAX_CATALOG:
        raise UserError(f"{file} has more than {MAX_CATALOG >> 20} MB: split it with `msggrep` or `msgfilter`")
    text, encoding = _decoded(file, data)
    lines = list(io.StringIO(text, newline="\n"))  # split at LF only
    try:
        entries = polib.pofile(_Lines(_simplified(file, lines)), encoding=encoding, klass=_Entries)
    except OSError as error:
        at = re.search(r"\(line (\d+)\)(?:: (.+))?", str(error))
        number = int(at[1]) if at else 1
        found = at[2] if at and at[2] else f"unexpected {lines[number - 1].strip()[:40]!r}"
        raise _syntax(file, number, found) from None
    ends = [entry.linenum - 1 for entry in entries[1:]] + [len(lines)]
    pairs = zip(entries, ends, strict=False)  # no entries, one end
    messages = [_message(file, lines, entry, end) for entry, end in pairs if not entry.obsolete]
    return Catalog(lines, messages, encoding, data.startswith(BOM))


def quoted(forms: list[str], plural: bool, width: int, line_end: str) -> list[str]:
    """The lines of `msgstr`, or of `msgstr[0]` and so on, wrapped at `width` unless it is 0."""
    entry = polib.POEntry(msgstr_plural=dict(enumerate(forms))) if plural else polib.POEntry(msgstr=forms[0])
    _msgid, *lines, _end = entry.__unicode__(wrapwidth=width).split("\n")
    return [line + line_end for line in lines]


class _Lines(list[str]):
    """The lines of a text as polib asks for them: those of a string would end at U+2028 too."""

    def splitlines(self) -> list[str]:
        return self


class _Entries(polib.POFile):  # type: ignore[misc]
    """polib's list of entries with the header, which polib would find and remove, losing its line number."""

    def find(self, *_: object, **__: object) -> None:
        return None


def _decoded(file: Path, data: bytes) -> tuple[str, str]:
    """The text and its encoding, which the header names; that of templates (`CHARSET`) is UTF-8."""
    found = _CHARSET.search(data)
    name = found[1].decode() if found else "utf-8"
    try:
        encoding = "utf-8" if name == "CHARSET" else lookup(name).name
        text = data.removeprefix(BOM).decode(encoding)
    except LookupError:
        raise UserError(f"{file}: its charset {name!r} is not known: convert it with `msgconv -t UTF-8`") from None
    except UnicodeError as error:
        line = data.count(b"\n", 0, getattr(error, "start", 0)) + 1
        raise UserError(
            f"{file}:{line}: not valid {name} text, which its header promises: correct the charset there"
        ) from None
    return text, encoding


def _simplified(file: Path, lines: list[str]) -> Iterator[str]:
    """The lines in the spelling that polib reads, which is stricter than gettext about comments and escapes and laxer
    about quotes. Comments other than flags and obsolete messages are left out: nobody asks polib for them."""
    for number, line in enumerate(map(str.strip, lines), 1):
        if line.startswith("#"):
            comment = _COMMENT.match(line)
            yield f"#{comment[1]} {line[comment.end() :]}" if comment else ""
        elif string := _STRING.fullmatch(line):
            yield f"{string[1]} {_ESCAPE.sub(_escape, string[2])}"
        elif line:
            raise _syntax(file, number, f"expected a keyword and a quoted string, found {line[:40]!r}")
        else:
            yield ""


def _escape(match: re.Match[str]) -> str:
    """An escape as polib knows it: of hexadecimal and octal ones and `\\a`, the character."""
    if match[1] or match[2]:
        return str(polib.escape(chr(int(match[1], 16) if match[1] else int(match[2], 8))))
    return "\a" if match[0] == r"\a" else match[0]


def _message(file: Path, lines: list[str], entry: Any, end: int) -> Message:
    """The message of an entry, whose lines are at least those from its first to `end`, without."""
    first: dict[str, int] = {}
    start = last = max(entry.linenum - 1, 0)
    for at in range(start, end):
        if place := _PLACE.match(lines[at]):
            first.setdefault(place[1], at)
            last = at
    for keyword in ("msgid", "msgstr"):
        if keyword not in first:
            raise _syntax(file, last + 1, f"an entry without {keyword}")
    keyword_at = first.get("msgctxt", first["msgid"])
    return Message(entry, first.get("#,"), keyword_at, first["msgid"], first["msgstr"], last + 1)


def _syntax(file: Path, line: int, found: str) -> UserError:
    return UserError(f"{file}:{line}: not a valid PO file ({found}): check it with `msgfmt -c`")
