"""PO and POT catalogues of gettext: one segment per message without a translation, two for one with a plural.

A catalogue is kept as its lines: filling changes some and leaves all others alone. polib wraps and quotes what is
written, but it does not tell where a string begins and reads less than gettext does.
"""

from __future__ import annotations

import gettext
import io
import logging
import re
from codecs import lookup
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import polib
from babel.messages.plurals import get_plural

from rag_mt.base.errors import UserError
from rag_mt.base.languages import base_code
from rag_mt.base.types import Origin, Skips, TranslatedText
from rag_mt.formats.format import Segment, Side, usable
from rag_mt.formats.opening import BOM, check_text, read_whole

log = logging.getLogger("rag_mt")

MAX_PLURALS = 10
"""No language has more than six."""
WIDTH = 79
"""Lines longer than this are wrapped, unless the catalogue has longer ones itself (gettext's own width)."""

_PLURALS = re.compile(r"nplurals\s*=\s*(\d+)\s*;\s*plural\s*=\s*([^;]+)")
_CHARSET = re.compile(rb'Content-Type:[^"\\]*charset=([-\w.:]+)', re.IGNORECASE)
_STRING = re.compile(r'(msg\w+(?:\[\d\])?)?\s*"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|(.))")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "v": "\v", "b": "\b", "f": "\f", "a": "\a", "\\": "\\", '"': '"'}
_BEFORE = {
    "msgctxt": ("",),
    "msgid": ("", "msgctxt"),
    "msgid_plural": ("msgid",),
    "msgstr": ("msgid", "msgid_plural"),
    "msgstr[": ("msgid", "msgid_plural", "msgstr["),
}
"""The keywords that each keyword may follow; empty: it may begin a message."""


@dataclass
class Message:
    """The strings of a message, and the indices of the lines where they begin, by keyword (`msgid`, `msgstr[0]`)."""

    strings: dict[str, str] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    fuzzy: bool = False
    flags_at: int | None = None
    end: int = 0  # index of the line after the last string

    @property
    def is_header(self) -> bool:
        return self.strings["msgid"] == "" and "msgctxt" not in self.strings

    @property
    def has_plural(self) -> bool:
        return bool(self.strings.get("msgid_plural")) or "msgstr" not in self.strings

    @property
    def sources(self) -> list[str]:
        plural = self.strings.get("msgid_plural")
        return [self.strings["msgid"], *([plural] if plural else [])]

    @property
    def forms(self) -> list[str]:
        return [text for keyword, text in self.strings.items() if keyword.startswith("msgstr")]

    @property
    def forms_at(self) -> int:
        return next(at for keyword, at in self.starts.items() if keyword.startswith("msgstr"))

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

    @cached_property
    def fields(self) -> dict[str, str]:
        """The header's fields; names in lower case."""
        text = self.header.forms[0] if self.header else ""
        pairs = (line.partition(":") for line in text.split("\n"))
        return {name.strip().lower(): value.strip() for name, colon, value in pairs if colon}

    @property
    def language(self) -> str:
        """The language that it translates into, empty if it names none."""
        return self.fields.get("language", "")

    @property
    def base_language(self) -> str:
        """`sr` for `sr_RS@latin`."""
        return base_code(self.language.split("@")[0])

    @property
    def plural_rule(self) -> re.Match[str] | None:
        return _PLURALS.search(self.fields.get("plural-forms", ""))

    @property
    def line_end(self) -> str:
        return "\r\n" if self.lines and self.lines[0].endswith("\r\n") else "\n"

    @cached_property
    def width(self) -> int:
        """The width to wrap at; 0 for a catalogue that does not wrap."""
        longest = max((len(line.rstrip()) for line in self.lines if '"' in line and line[0] != "#"), default=0)
        return WIDTH if longest <= WIDTH + 1 else 0

    def set_forms(self, message: Message, forms: list[str], width: int) -> None:
        """Replace the lines of a message's translation; the numbers of all lines stay."""
        new_lines = "".join(quoted(forms, message.has_plural, width, self.line_end))
        self.lines[message.forms_at : message.end] = [new_lines, *[""] * (message.end - message.forms_at - 1)]


class _Po:
    """gettext catalogues. Filled messages are flagged `fuzzy`, gettext's own mark for what needs a review;
    messages that have a translation, fuzzy ones too, and all other lines stay as they are."""

    name = "po"
    suffixes: tuple[str, ...] = (".po", ".pot")

    def segments(self, file: Path, side: Side, skips: Skips) -> Iterator[Segment]:
        """The messages to translate; the finished translations if the side's language is the catalogue's own. With a
        target raises UserError for a catalogue in another language or with unreadable Plural-Forms."""
        catalog = read_catalog(file)
        if side.target:
            _plural_forms(file, catalog, side)
        finished = catalog.base_language == base_code(side.language)
        kept = fuzzy = 0
        for message in catalog.messages:
            texts = message.forms if finished else message.sources
            if message.is_header or not any(t.strip() for t in texts):
                continue
            if (message.fuzzy or not message.is_filled) if finished else message.is_filled:
                kept += 1
                fuzzy += message.fuzzy
                continue
            line = 1 + (message.forms_at if finished else message.starts["msgid"])
            originals = [*message.sources, *[message.sources[-1]] * len(texts)] if finished else [""] * len(texts)
            pairs = zip(texts, originals, strict=False)
            yield from (Segment(text, Origin(str(file), line), original) for text, original in pairs if text.strip())
        if kept:
            reason = "without a finished translation, left out" if finished else "that have a translation and are kept"
            skips.remark(file, f"messages {reason}: {kept}{f' ({fuzzy} fuzzy)' if fuzzy and not finished else ''}")

    def translations(self, file: Path, side: Side, skips: Skips) -> Iterator[Segment]:
        """The translations of all filled messages, fuzzy ones too, each with its singular or plural."""
        catalog = read_catalog(file)
        _plural_forms(file, catalog, side)
        empty = 0
        for message in catalog.messages:
            if message.is_header or not any(text.strip() for text in message.sources):
                continue
            if not message.is_filled:
                empty += 1
                continue
            originals = [*message.sources, *[message.sources[-1]] * len(message.forms)]
            origin = Origin(str(file), 1 + message.forms_at)
            for text, original in zip(message.forms, originals, strict=False):
                yield Segment(text, origin, original)
        if empty:
            skips.remark(file, f"{empty} messages without a translation are left out")

    def fill(self, file: Path, side: Side, translations: Iterator[TranslatedText], out: BinaryIO) -> None:
        """The catalogue with the open messages filled and its language set; a form of a plural that is there stays."""
        catalog = read_catalog(file)
        number, singular_form = _plural_forms(file, catalog, side)
        for message in catalog.messages:
            texts = [t for t in message.sources if t.strip()]
            if message.is_header or not texts or message.is_filled:
                continue
            translated = [next(translations) for _ in texts]
            if all(map(usable, translated)):
                forms = [_bounded(t.text, message.strings["msgid"]) for t in translated]
                if message.has_plural:
                    forms = [
                        message.strings.get(f"msgstr[{form}]") or forms[0 if form == singular_form else -1]
                        for form in range(number)
                    ]
                catalog.set_forms(message, forms, catalog.width)
                _flag(catalog, message)
        _write(catalog, side.target, out)


PO = _Po()


def read_catalog(file: Path) -> Catalog:
    """The catalogue of a PO or POT file. Raises UserError with the line of what cannot be read."""
    data = read_whole(file, "split it with `msggrep` or `msgfilter`")
    check_text(data[:8192], file)
    text, encoding = _decoded(file, data)
    lines = list(io.StringIO(text, newline="\n"))  # split at LF only
    return Catalog(lines, list(_messages(file, lines)), encoding, data.startswith(BOM))


def quoted(forms: list[str], plural: bool, width: int, line_end: str) -> list[str]:
    """The lines of `msgstr`, or of `msgstr[0]` and so on, wrapped at `width` unless it is 0."""
    entry = polib.POEntry(msgstr_plural=dict(enumerate(forms))) if plural else polib.POEntry(msgstr=forms[0])
    _msgid, *lines, _end = entry.__unicode__(wrapwidth=width).split("\n")
    return [line + line_end for line in lines]


def _decoded(file: Path, data: bytes) -> tuple[str, str]:
    """The text and its encoding, which the header names; that of templates (`CHARSET`) is UTF-8."""
    match = _CHARSET.search(data)
    name = match[1].decode() if match else "utf-8"
    try:
        encoding = "utf-8" if name == "CHARSET" else lookup(name).name
        return data.removeprefix(BOM).decode(encoding), encoding
    except LookupError:
        raise UserError(f"{file}: its charset {name!r} is not known: convert it with `msgconv -t UTF-8`") from None
    except UnicodeError as error:
        line = data.count(b"\n", 0, getattr(error, "start", 0)) + 1
        raise UserError(
            f"{file}:{line}: not valid {name} text, which its header promises: correct the charset there"
        ) from None


def _messages(file: Path, lines: list[str]) -> Iterator[Message]:
    """The messages that are not obsolete; comments other than flags are passed over."""
    message, keyword, last = Message(), "", ""  # `last` is the keyword without its number
    for at, line in enumerate(map(str.strip, lines)):
        flags = line[2:].strip() if line.startswith("#,") else ""
        string = _STRING.fullmatch(line)
        kind = (string[1] or "").rstrip("0123456789]") if string else ""
        if last.startswith("msgstr") and (flags or line.startswith("#~") or kind in ("msgctxt", "msgid")):
            yield message
            message, last = Message(), ""
        if flags:
            message.flags_at = at if message.flags_at is None else message.flags_at
            message.fuzzy |= "fuzzy" in map(str.strip, flags.split(","))
        elif string and (last in _BEFORE.get(kind, ()) if kind else last):
            if kind:
                keyword, last = string[1], kind
                message.strings[keyword] = ""
                message.starts.setdefault(keyword, at)
            message.strings[keyword] += _ESCAPE.sub(_unescaped, string[2])
            message.end = at + 1
        elif string or (last and line.startswith("#~")):
            raise _syntax(file, at + 1, f"unexpected {line[:40]!r}")
        elif line.startswith("#~"):
            message = Message()  # without the flags of the obsolete one
        elif line and not line.startswith("#"):
            raise _syntax(file, at + 1, f"expected a keyword and a quoted string, found {line[:40]!r}")
    if last.startswith("msgstr"):
        yield message
    elif last:
        raise _syntax(file, message.end, f"an entry without {'msgstr' if 'msgid' in message.strings else 'msgid'}")


def _unescaped(match: re.Match[str]) -> str:
    if match[3]:
        return _ESCAPED.get(match[3], match[0])
    return chr(int(match[1], 16) if match[1] else int(match[2], 8))


def _syntax(file: Path, line: int, problem: str) -> UserError:
    return UserError(f"{file}:{line}: not a valid PO file ({problem}): check it with `msgfmt -c`")


def _plural_forms(file: Path, catalog: Catalog, side: Side) -> tuple[int, int]:
    """The number of plural forms and which of them is for one thing: by the header, else by CLDR. Raises UserError if
    the catalogue translates into the side's language, or into another one than its target."""
    if catalog.base_language == base_code(side.language):
        raise UserError(
            f"{file}: its Language is {catalog.language!r}, so its messages are no {side.language!r} text: "
            "give the language of the msgid lines with --src"
        )
    if catalog.language and catalog.base_language != base_code(side.target):
        raise UserError(
            f"{file}: its Language is {catalog.language!r}, not {side.target!r}: give --tgt {catalog.language} or "
            "another file"
        )
    rule, known = catalog.plural_rule, get_plural(base_code(side.target))
    number, expression = (int(rule[1]), rule[2]) if rule else (known.num_plurals, known.plural_expr)
    try:
        form = int(gettext.c2py(expression)(1))
        if not 1 <= number <= MAX_PLURALS:
            raise ValueError(number)
    except (ValueError, ArithmeticError):
        raise UserError(
            f"{file}: its Plural-Forms of {number} forms by {expression.strip()!r} cannot be read: expected such as "
            "'nplurals=2; plural=(n != 1);', correct the header"
        ) from None
    return number, form if number > 1 else -1


def _bounded(text: str, source: str) -> str:
    """The text with the line ends at its edges that gettext demands: those of the msgid."""
    safe = text.encode("utf-8", "replace").decode().strip("\n")
    return "\n" * source.startswith("\n") + safe + "\n" * source.endswith("\n")


def _flag(catalog: Catalog, message: Message) -> None:
    """Flag a message as `fuzzy`, in its line of flags or in a new one."""
    lines, end, at = catalog.lines, catalog.line_end, message.flags_at
    if message.fuzzy:
        return
    if at is not None:
        lines[at] = f"#, fuzzy, {lines[at].strip()[2:].strip()}{end}"
        return
    at = min(message.starts.values())
    while at and lines[at - 1].startswith("#|"):
        at -= 1
    lines[at] = f"#, fuzzy{end}{lines[at]}"


def _write(catalog: Catalog, target: str, out: BinaryIO) -> None:
    """Write the catalogue, in UTF-8 if its own encoding cannot hold the translations. The header gets the fields that
    were empty, missing or those of a template."""
    encoding, charset = catalog.encoding, ""
    try:
        "".join(catalog.lines).encode(encoding)
    except UnicodeEncodeError:
        encoding = charset = "utf-8"
        log.info("the catalogue's charset cannot hold the translations: it is written as UTF-8")
    if "charset=" not in catalog.fields.get("content-type", "charset=CHARSET").replace("charset=CHARSET", ""):
        charset = "utf-8"
    fields = {}
    if charset:
        fields = {"Content-Type": "text/plain; charset=UTF-8", "Content-Transfer-Encoding": "8bit"}
    if not catalog.language:
        fields["Language"] = target.replace("-", "_")
    if catalog.plural_rule is None and any(m.has_plural for m in catalog.messages):
        known = get_plural(base_code(target))
        fields["Plural-Forms"] = f"nplurals={known.num_plurals}; plural={known.plural_expr};"
    text = catalog.header.forms[0] if catalog.header else ""
    for name, value in fields.items():
        line = f"{name}: {value}\n"
        text, replaced = re.subn(rf"(?mi)^{name}:.*\n?", lambda _, line=line: line, text)  # type: ignore[misc]
        if not replaced:
            text += line if not text or text.endswith("\n") else f"\n{line}"
    if catalog.header is None:
        end = catalog.line_end
        catalog.lines[:0] = [f'msgid ""{end}', *quoted([text], False, 0, end), end]
    elif text != catalog.header.forms[0]:
        catalog.set_forms(catalog.header, [text], 0)
    out.write((BOM if catalog.mark else b"") + "".join(catalog.lines).encode(encoding))
