"""PO and POT catalogues of gettext: one segment per message without a translation, two for one with a plural."""

from __future__ import annotations

import gettext
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from babel.messages.plurals import get_plural

from rag_mt.base.errors import UserError
from rag_mt.base.languages import base_code
from rag_mt.base.types import Origin, Skips, TranslatedText
from rag_mt.formats.format import Segment, Side, usable
from rag_mt.formats.opening import BOM
from rag_mt.formats.po_catalog import Catalog, Message, quoted, read_catalog

log = logging.getLogger("rag_mt")

MAX_PLURALS = 10
"""No language has more than six."""

_PLURALS = re.compile(r"nplurals\s*=\s*(\d+)\s*;\s*plural\s*=\s*([^;]+)")


@dataclass(frozen=True)
class Po:
    """gettext catalogues. Filled messages are flagged `fuzzy`, gettext's own mark for what needs a review;
    messages that have a translation, fuzzy ones too, and all other lines stay as they are."""

    name: str = "po"
    suffixes: tuple[str, ...] = (".po", ".pot")

    def segments(self, file: Path, side: Side, skips: Skips) -> Iterator[Segment]:
        """The messages to translate; the finished translations if the side's language is the catalogue's own."""
        catalog = read_catalog(file)
        own = _is_own(catalog, side.language)
        kept = fuzzy = 0
        for message in catalog.messages:
            texts = message.forms if own else message.sources
            if message.is_header or not any(t.strip() for t in texts):
                continue
            if not message.entry.translated() if own else message.is_filled:
                kept += 1
                fuzzy += message.entry.fuzzy
                continue
            line = 1 + (message.forms_at if own else message.source_at)
            yield from (Segment(text, Origin(str(file), line)) for text in texts if text.strip())
        if kept:
            reason = "without a finished translation are left out" if own else "with a translation are kept"
            skips.remark(file, f"{kept} messages {reason}{f' ({fuzzy} fuzzy, kept)' if fuzzy and not own else ''}")

    def check(self, file: Path, side: Side, target: str) -> None:
        """Raise UserError if `fill` would: for a catalogue in another language or with unreadable Plural-Forms."""
        _plural_forms_for(file, read_catalog(file), side, target)

    def fill(self, file: Path, side: Side, target: str, translations: Iterator[TranslatedText], out: BinaryIO) -> None:
        """The catalogue with the open messages filled and its language set.

        Raises UserError if the catalogue is for another language, or `side` is its language.
        """
        catalog = read_catalog(file)
        number, singular_form = _plural_forms_for(file, catalog, side, target)
        changes: dict[int, tuple[int, list[str]]] = {}  # first line -> line after the last one, new lines
        for message in catalog.messages:
            texts = [t for t in message.sources if t.strip()]
            if message.is_header or not texts or message.is_filled:
                continue
            taken = [next(translations) for _ in texts]
            if all(usable(t) for t in taken):
                made = [_bounded(t.text, message.entry.msgid) for t in taken]
                forms = made[:1]
                if message.has_plural:
                    forms = [made[0] if form == singular_form else made[-1] for form in range(number)]
                changes.update(_filled(catalog, message, forms))
        _write(catalog, changes, target, out)


def _base(language: str) -> str:
    """The base code of a Language field, such as `sr` for `sr_RS@latin`."""
    return base_code(language.split("@")[0])


def _is_own(catalog: Catalog, language: str) -> bool:
    """Whether `language` is the one that the catalogue translates into."""
    return _base(catalog.fields().get("language", "")) == base_code(language)


def _plural_forms_for(file: Path, catalog: Catalog, side: Side, target: str) -> tuple[int, int]:
    """What `_plural_forms` returns, once the catalogue's language is known to be the target's and not the side's."""
    language = catalog.fields().get("language", "")
    if _is_own(catalog, side.language):
        raise UserError(
            f"{file}: its Language is {language!r}, so its messages are no {side.language!r} text: "
            "give the language of the msgid lines with --src"
        )
    if language and _base(language) != base_code(target):
        raise UserError(f"{file}: its Language is {language!r}, not {target!r}: give --tgt {language} or another file")
    return _plural_forms(file, catalog, target)


def _bounded(text: str, source: str) -> str:
    """The text with the line ends at its edges that gettext demands: those of the msgid."""
    lead, trail = source.startswith("\n"), source.endswith("\n")
    safe = text.encode("utf-8", "replace").decode()
    return "\n" * lead + safe.strip("\n") + "\n" * trail


def _plural_rule(catalog: Catalog) -> re.Match[str] | None:
    return _PLURALS.search(catalog.fields().get("plural-forms", ""))


def _plural_forms(file: Path, catalog: Catalog, target: str) -> tuple[int, int]:
    """The number of plural forms and which of them is for one thing: by the header, else by CLDR."""
    rule = _plural_rule(catalog)
    if rule is None:
        known = get_plural(base_code(target))
        number, expression = known.num_plurals, known.plural_expr
    else:
        number, expression = int(rule[1]), rule[2]
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


def _filled(catalog: Catalog, message: Message, forms: list[str]) -> dict[int, tuple[int, list[str]]]:
    """The changed lines of a message: its msgstr and its flags."""
    end, at = catalog.line_end, message.flags_at
    lines = quoted(forms, message.has_plural, catalog.width, end)
    changes = {message.forms_at: (message.end, lines)}
    if message.entry.fuzzy:
        return changes
    if at is not None:
        flags = catalog.lines[at].strip()[2:].strip()
        return changes | {at: (at + 1, [f"#, fuzzy, {flags}{end}"])}
    at = message.first
    while at and catalog.lines[at - 1].startswith("#|"):
        at -= 1
    return changes | {at: (at, [f"#, fuzzy{end}"])}


def _header(catalog: Catalog, target: str, charset: str) -> str:
    """The header with the fields that were empty, missing or those of a template."""
    header = catalog.header
    text = header.forms[0] if header else ""
    wanted = {"Content-Type": f"text/plain; charset={charset}", "Content-Transfer-Encoding": "8bit"} if charset else {}
    if not catalog.fields().get("language"):
        wanted["Language"] = target.replace("-", "_")
    if _plural_rule(catalog) is None and any(m.has_plural for m in catalog.messages):
        known = get_plural(base_code(target))
        wanted["Plural-Forms"] = f"nplurals={known.num_plurals}; plural={known.plural_expr};"
    for name, value in wanted.items():
        line = f"{name}: {value}\n"
        text, found = re.subn(rf"(?mi)^{name}:.*\n?", lambda _, line=line: line, text)  # type: ignore[misc]
        if not found:
            text += line if not text or text.endswith("\n") else f"\n{line}"
    return text


def _write(catalog: Catalog, changes: dict[int, tuple[int, list[str]]], target: str, out: BinaryIO) -> None:
    """Write the catalogue, in UTF-8 if its own encoding cannot hold the translations."""
    encoding, header = catalog.encoding, catalog.header
    new = "".join(line for _, lines in changes.values() for line in lines)
    charset = ""
    try:
        new.encode(encoding)
    except UnicodeEncodeError:
        encoding = charset = "utf-8"
        log.info("the catalogue's charset cannot hold the translations: it is written as UTF-8")
    if "charset=" not in catalog.fields().get("content-type", "charset=CHARSET").replace("charset=CHARSET", ""):
        charset = "utf-8"
    text = _header(catalog, target, charset.upper())
    if header is None:
        lines = [f'msgid ""{catalog.line_end}', *quoted([text], False, 0, catalog.line_end), catalog.line_end]
        out.write((BOM if catalog.mark else b"") + "".join(lines).encode(encoding))
    else:
        if text != header.forms[0]:
            changes[header.forms_at] = (header.end, quoted([text], False, 0, catalog.line_end))
        out.write(BOM if catalog.mark else b"")
    at = 0
    for first in sorted(changes):
        end, lines = changes[first]
        out.write("".join([*catalog.lines[at:first], *lines]).encode(encoding))
        at = end
    out.write("".join(catalog.lines[at:]).encode(encoding))


FORMAT = Po()
