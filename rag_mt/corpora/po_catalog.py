"""gettext catalogues as lines: entries know which lines hold them, so that filling one leaves all others alone."""

from __future__ import annotations

import re
from codecs import lookup
from dataclasses import dataclass, field
from pathlib import Path

from rag_mt.corpora.opening import BOM, check_text, open_bytes
from rag_mt.errors import UserError

MAX_CATALOG = 512 * 2**20
WIDTH = 79
"""Lines longer than this are wrapped, unless the catalogue has longer ones itself (gettext's own width)."""

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_KEYWORD = re.compile(r"(msgctxt|msgid_plural|msgid|msgstr(?:\[(\d+)\])?)\s*(?=\")")
_STRINGS = re.compile(r'(?:"(?:[^"\\]|\\.)*"\s*)+')
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|[0-7]{1,3}|.)")
_CHARSET = re.compile(rb'Content-Type:[^"\\]*charset=([-\w.:]+)', re.IGNORECASE)
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_ESCAPED = {"\\": "\\\\", '"': '\\"', **{char: f"\\{name}" for name, char in _NAMED.items()}}
_WORDS = re.compile(r"\S*\s+|\S+")


@dataclass
class Entry:
    """A message; `first` and `end` are indices into the catalogue's lines, `first` that of its first keyword."""

    first: int
    context: str | None = None
    source: str | None = None
    plural: str | None = None
    forms: dict[int, str] = field(default_factory=dict)
    source_line: int = 0  # 1-based
    forms_at: int = 0
    end: int = 0
    flags_at: int | None = None  # the first line of flags
    fuzzy: bool = False

    @property
    def is_header(self) -> bool:
        return self.source == "" and self.context is None

    @property
    def finished(self) -> bool:
        """Whether it has a translation that needs no review."""
        return not self.fuzzy and bool(self.forms) and all(self.forms.values())


@dataclass
class Catalog:
    """The lines of a PO file with their line ends, and its entries without the obsolete ones."""

    lines: list[str]
    entries: list[Entry]
    encoding: str
    mark: bool

    @property
    def header(self) -> Entry | None:
        return next((e for e in self.entries if e.is_header), None)

    def fields(self) -> dict[str, str]:
        """The header's fields; names in lower case."""
        text = self.header.forms.get(0, "") if self.header else ""
        pairs = (line.partition(":") for line in text.split("\n"))
        return {name.strip().lower(): value.strip() for name, colon, value in pairs if colon}

    @property
    def line_end(self) -> str:
        return "\r\n" if self.lines and self.lines[0].endswith("\r\n") else "\n"

    @property
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
    lines = _LINE.findall(text)
    return Catalog(lines, _entries(file, lines), encoding, data.startswith(BOM))


def quoted(keyword: str, text: str, width: int, line_end: str) -> list[str]:
    """The lines of `keyword "text"`: in one if it fits, else one after each line end in the text, wrapped."""
    rows = _LINE.findall(text)
    whole = f'{keyword} "{_escaped(text)}"'
    if len(rows) <= 1 and (not width or len(whole) <= width):
        return [whole + line_end]
    pieces = [piece for row in rows for piece in (_wrapped(_escaped(row), width - 2) if width else [_escaped(row)])]
    return [f'{keyword} ""{line_end}', *(f'"{piece}"{line_end}' for piece in pieces)]


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


def _entries(file: Path, lines: list[str]) -> list[Entry]:
    entries: list[Entry] = []
    entry: Entry | None = None
    flags: list[int] = []
    keyword, index = "", 0

    def close() -> None:
        nonlocal entry
        if entry is not None:
            if entry.source is None or not entry.forms:
                raise _syntax(file, entry.first + 1, "an entry without " + ("msgid" if entry.forms else "msgstr"))
            entries.append(entry)
        entry = None

    for at, line in enumerate(lines):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            if entry is not None and entry.forms:
                close()
            if stripped.startswith("#,"):
                flags.append(at)
            elif stripped.startswith("#~"):
                flags.clear()
            continue
        match = _KEYWORD.match(stripped)
        strings = stripped[match.end() :] if match else stripped
        if not _STRINGS.fullmatch(strings):
            raise _syntax(file, at + 1, f"expected a keyword and a quoted string, found {stripped[:40]!r}")
        text = "".join(_unescaped(s) for s in _STRING.findall(strings))
        if match:
            keyword, index = match[1].split("[")[0], int(match[2] or 0)
            if entry is not None and entry.forms and keyword in ("msgctxt", "msgid"):
                close()
            if entry is None:
                fuzzy = any("fuzzy" in re.split(r"[\s,]+", lines[n]) for n in flags)
                entry = Entry(at, flags_at=flags[0] if flags else None, fuzzy=fuzzy)
                flags.clear()
        elif entry is None:
            raise _syntax(file, at + 1, "a quoted string outside an entry")
        _add(file, entry, keyword, index, text, at, new=match is not None)
    close()
    return entries


def _add(file: Path, entry: Entry, keyword: str, index: int, text: str, at: int, new: bool) -> None:
    """Set a part of an entry, or continue the part that was begun."""
    if keyword == "msgstr":
        if entry.source is None or (new and index in entry.forms):
            raise _syntax(file, at + 1, "a msgstr without its msgid")
        entry.forms_at = entry.forms_at or at
        entry.forms[index] = entry.forms.get(index, "") + text
        entry.end = at + 1
        return
    name = {"msgctxt": "context", "msgid": "source", "msgid_plural": "plural"}[keyword]
    before = getattr(entry, name)
    if new and before is not None:
        raise _syntax(file, at + 1, f"a second {keyword} before the msgstr")
    setattr(entry, name, (before or "") + text)
    if keyword == "msgid" and new:
        entry.source_line = at + 1


def _syntax(file: Path, line: int, found: str) -> UserError:
    return UserError(f"{file}:{line}: not a valid PO file ({found}): check it with `msgfmt -c`")


def _unescaped(text: str) -> str:
    def char(match: re.Match[str]) -> str:
        name = match[1]
        if name[0] == "x" and len(name) > 1:
            return chr(int(name[1:], 16))
        return chr(int(name, 8)) if name[0] in "01234567" else _NAMED.get(name, name)

    return _ESCAPE.sub(char, text) if "\\" in text else text


def _escaped(text: str) -> str:
    return "".join(_ESCAPED.get(c, c) for c in text)


def _wrapped(text: str, width: int) -> list[str]:
    """Pieces of at most `width` characters where there are spaces to cut at; joined they are `text`."""
    pieces = [""]
    for word in _WORDS.findall(text):
        if pieces[-1] and len(pieces[-1]) + len(word) > width:
            pieces.append("")
        pieces[-1] += word
    return pieces
