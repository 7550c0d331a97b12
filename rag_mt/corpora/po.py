"""PO and POT catalogues of gettext: one segment per untranslated or fuzzy message, two for one with a plural."""

from __future__ import annotations

import gettext
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from babel.messages.plurals import get_plural

from rag_mt.corpora.formats import Segment, Side, usable
from rag_mt.corpora.opening import BOM
from rag_mt.corpora.po_catalog import Catalog, Entry, quoted, read_catalog
from rag_mt.errors import UserError
from rag_mt.languages import base_code
from rag_mt.skips import Skips
from rag_mt.types import Origin, TranslatedText

log = logging.getLogger("rag_mt")

MAX_PLURALS = 10
"""No language has more than six."""

_PLURALS = re.compile(r"nplurals\s*=\s*(\d+)\s*;\s*plural\s*=\s*([^;]+)")


@dataclass(frozen=True)
class Po:
    """gettext catalogues. Filled messages are flagged `fuzzy`, gettext's own mark for what needs a review;
    all other lines stay as they are."""

    name: str = "po"
    suffixes: tuple[str, ...] = (".po", ".pot")

    def segments(self, file: Path, side: Side, skips: Skips) -> Iterator[Segment]:
        """The messages to translate; the finished translations if the side's language is the catalogue's own."""
        catalog = read_catalog(file)
        own = _is_own(catalog, side.language)
        kept = 0
        for entry in catalog.entries:
            texts = list(entry.forms.values()) if own else _sources(entry)
            if entry.is_header or not any(t.strip() for t in texts):
                continue
            if entry.finished != own:
                kept += 1
                continue
            line = entry.forms_at + 1 if own else entry.source_line
            yield from (Segment(text, Origin(str(file), line)) for text in texts if text.strip())
        if kept and skips.shown:
            reason = "without a finished translation are left out" if own else "with a translation are kept"
            log.info("%s: %d messages %s", file, kept, reason)

    def fill(self, file: Path, side: Side, target: str, translations: Iterator[TranslatedText], out: BinaryIO) -> None:
        """The catalogue with the open messages filled and its language set.

        Raises UserError if the catalogue is for another language, or `side` is its language.
        """
        catalog = read_catalog(file)
        language = catalog.fields().get("language", "")
        if _is_own(catalog, side.language):
            raise UserError(
                f"{file}: its Language is {language!r}, so its messages are no {side.language!r} text: "
                "give the language of the msgid lines with --src"
            )
        if language and _base(language) != base_code(target):
            raise UserError(
                f"{file}: its Language is {language!r}, not {target!r}: give --tgt {language} or another file"
            )
        number, singular_form = _plural_forms(file, catalog, target)
        changes: dict[int, tuple[int, list[str]]] = {}  # first line -> line after the last one, new lines
        for entry in catalog.entries:
            texts = [t for t in _sources(entry) if t.strip()]
            if entry.is_header or not texts or entry.finished:
                continue
            taken = [next(translations) for _ in texts]
            if all(usable(t) for t in taken):
                made = [_bounded(t.text, entry.source or "") for t in taken]
                forms = [made[0]]
                if entry.plural is not None:
                    forms = [made[0] if form == singular_form else made[-1] for form in range(number)]
                changes.update(_filled(catalog, entry, forms))
        _write(catalog, changes, target, out)


def _sources(entry: Entry) -> list[str]:
    return [entry.source or ""] + ([entry.plural] if entry.plural is not None else [])


def _base(language: str) -> str:
    """The base code of a Language field, such as `sr` for `sr_RS@latin`."""
    return base_code(language.split("@")[0])


def _is_own(catalog: Catalog, language: str) -> bool:
    """Whether `language` is the one that the catalogue translates into."""
    return _base(catalog.fields().get("language", "")) == base_code(language)


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


def _filled(catalog: Catalog, entry: Entry, forms: list[str]) -> dict[int, tuple[int, list[str]]]:
    """The changed lines of an entry: its msgstr and its flags."""
    end, width = catalog.line_end, catalog.width
    changes: dict[int, tuple[int, list[str]]] = {}
    if not entry.fuzzy:
        if entry.flags_at is None:
            at = entry.first
            while at and catalog.lines[at - 1].startswith("#|"):
                at -= 1
            changes[at] = (at, [f"#, fuzzy{end}"])
        else:
            flags = catalog.lines[entry.flags_at].strip()[2:].strip()
            changes[entry.flags_at] = (entry.flags_at + 1, [f"#, fuzzy, {flags}{end}"])
    names = ["msgstr"] if entry.plural is None else [f"msgstr[{n}]" for n in range(len(forms))]
    lines = [line for name, text in zip(names, forms, strict=True) for line in quoted(name, text, width, end)]
    changes[entry.forms_at] = (entry.end, lines)
    return changes


def _header(catalog: Catalog, target: str, charset: str) -> str:
    """The header with the fields that were empty, missing or those of a template."""
    header = catalog.header
    text = header.forms.get(0, "") if header else ""
    wanted = {"Content-Type": f"text/plain; charset={charset}", "Content-Transfer-Encoding": "8bit"} if charset else {}
    if not catalog.fields().get("language"):
        wanted["Language"] = target.replace("-", "_")
    if _plural_rule(catalog) is None and any(e.plural is not None for e in catalog.entries):
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
        lines = [f'msgid ""{catalog.line_end}', *quoted("msgstr", text, 0, catalog.line_end), catalog.line_end]
        out.write((BOM if catalog.mark else b"") + "".join(lines).encode(encoding))
    else:
        if text != header.forms[0]:
            changes[header.forms_at] = (header.end, quoted("msgstr", text, 0, catalog.line_end))
        out.write(BOM if catalog.mark else b"")
    at = 0
    for first in sorted(changes):
        end, lines = changes[first]
        out.write("".join([*catalog.lines[at:first], *lines]).encode(encoding))
        at = end
    out.write("".join(catalog.lines[at:]).encode(encoding))


FORMAT = Po()
