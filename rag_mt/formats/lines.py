"""Formats of lines: plain text, tab-separated tables and JSON Lines. What is not translated keeps its bytes.

A table gets its translations as a new last column. Tabs separate and line ends end, nothing else: quotes are characters
like any other. A JSON record gets new fields before its last brace, so that numbers, escapes, repeated keys and spacing
stay as they are.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from rag_mt.base.errors import UserError
from rag_mt.base.languages import base_code, language
from rag_mt.base.terms import Usage
from rag_mt.base.types import Origin, Recalled, Skips, TranslatedText, Translation
from rag_mt.formats.format import Segment, Side
from rag_mt.formats.opening import Line, fault, read_lines
from rag_mt.text.differences import changes

log = logging.getLogger("rag_mt")

_HEADS = "id key text source target src tgt sentence translation context comment note notes domain"
HEADS = frozenset(_HEADS.split())
"""Cells of which one makes the first line of a table a header, besides the name of the language."""
FIELDS = ("text", "source", "src", "sentence")
"""Where a record without a field for the language keeps its text."""
TARGETS = ("target", "tgt", "translation")
"""Where a record or table without a name for the target language keeps a translation."""
MAX_RECORD = 1_000_000
"""Characters of the longest record: it may hold a whole document and more."""

_SEPARATORS = re.compile(r"[\t\r\n]+")
_LINE_ENDS = {ord("\n"): " ", ord("\r"): " "}  # harmless within a record's text


@dataclass(frozen=True, slots=True)
class _Row:
    """A line with its text to translate, empty if there is none. In a table `width` is the number of cells before the
    new one; None if the row gets none."""

    line: Line
    text: str = ""
    width: int | None = None
    header: bool = False


class _Text:
    """Plain text: every line that is not blank is a segment, with the white space around it. The other formats of lines
    find other texts in them (`rows`) and put their translations elsewhere (`filled`)."""

    name = "text"
    suffixes: tuple[str, ...] = (".txt", ".text")

    def segments(self, file: Path, side: Side, skips: Skips) -> Iterator[Segment]:
        for row in self.rows(file, side, skips):
            if row.text:
                yield Segment(row.text, Origin(str(file), row.line.number))

    def fill(self, file: Path, side: Side, translations: Iterator[TranslatedText], out: BinaryIO) -> None:
        for row in self.rows(file, side, Skips(shown=0)):
            new = self.filled(row, side.target, next(translations) if row.text else None)
            out.write(row.line.raw if new is None else row.line.with_text(new))

    def translations(self, file: Path, side: Side, skips: Skips) -> Iterator[Segment]:
        raise UserError(
            f"{file} is read as plain text, which holds one language: give two files, the source and its translation"
        )

    def rows(self, file: Path, side: Side, skips: Skips) -> Iterator[_Row]:
        """All lines; UserError if a column is asked for."""
        if side.column:
            raise UserError(
                f"{file} is read as plain text, which has no column {side.column!r}: add --format tsv or --format jsonl"
            )
        for line in read_lines(file, skips):
            yield _Row(line, _unless_blank(line.text))

    def filled(self, row: _Row, target: str, translated: TranslatedText | None) -> str | None:
        """The new text of a line, with the translation if it has one; None leaves the line as it is."""
        return translated.text if translated else None


class _Tsv(_Text):
    """Tables: the segments are the cells of a column that are not blank. Without `side.column` it is the column whose
    header is the language's code, English or own name, else the first, which the log notes if there are more. That of
    the new column is the target's code, or `translation` where a column has that already."""

    name = "tsv"
    suffixes: tuple[str, ...] = (".tsv", ".tab")

    def rows(self, file: Path, side: Side, skips: Skips) -> Iterator[_Row]:
        """All rows; those without the column are skips. Raises UserError if a named column is not in the first line."""
        column = width = 0
        for line in read_lines(file, skips):
            cells = line.text.split("\t") if line.text else []
            width = width or len(cells)
            if line.number == 1:
                column, header = _column(file, side, cells)
                if not side.column and skips.shown and len(cells) > 1 and not _is_of(side.language, cells[column]):
                    name = f" ({cells[column].strip()[:40]})" if header else ""
                    guess = "%s: none of its %d columns is named %s, so column 1%s is read: give another with --column"
                    log.warning(guess, str(file).removeprefix(skips.folder), len(cells), side.language, name)
                if header:
                    yield _Row(line, "", width, header)
                    continue
            if column < len(cells):
                yield _Row(line, _unless_blank(cells[column]), width)
                continue
            if cells:
                skips.add(Origin(str(file), line.number), "too few cells")
            yield _Row(line)

    def translations(self, file: Path, side: Side, skips: Skips) -> Iterator[Segment]:
        """The cells of the target column beside those of the source column: the one that is named, that whose header is
        the target's code or name or a word for a translation, else the last one."""
        column, target = -1, Side(side.target, side.target_column)
        for row in self.rows(file, side, skips):
            cells = (row.line.text or "").split("\t")
            if column < 0:
                column = _target_column(file, target, cells)
            if row.text and not row.header:
                text = _unless_blank(cells[column]) if column < len(cells) else ""
                yield Segment(text, Origin(str(file), row.line.number), row.text)

    def filled(self, row: _Row, target: str, translated: TranslatedText | None) -> str | None:
        """The row with a new cell: empty beside a blank one, and after as many others as the first row has."""
        if row.width is None:
            return None
        cells = (row.line.text or "").split("\t")
        new = one_cell(translated.text) if translated else ""
        if row.header:
            taken = {cell.strip().casefold() for cell in cells}
            new = target if target.casefold() not in taken else free_name("translation", target.casefold(), taken)
        cells += [""] * (row.width - len(cells))
        return "\t".join([*cells[: row.width], new, *cells[row.width :]])


class _Jsonl(_Text):
    """JSON Lines: a field of every record; lines that are no JSON object or have no such text are skips. Translations
    become the fields `translation`, `hints`, `notes` and, where there is something to say in them, `memory`, `terms`,
    `findings` and `quality`; to a name that is taken the target is added."""

    name = "jsonl"
    suffixes: tuple[str, ...] = (".jsonl", ".ndjson")

    def rows(self, file: Path, side: Side, skips: Skips) -> Iterator[_Row]:
        for line in read_lines(file, skips, MAX_RECORD):
            if not line.text or not line.text.strip():
                yield _Row(line)
                continue
            record = json_object(line.text)
            text, reason = (None, "not a JSON object") if record is None else text_of(record, side)
            if reason:
                skips.add(Origin(str(file), line.number), reason)
            yield _Row(line, text or "")

    def translations(self, file: Path, side: Side, skips: Skips) -> Iterator[Segment]:
        """The field of the target column: the one that is named, else the text in the target language, else
        `translation`; records without it, and with one that is no text to write, are skips."""
        for row in self.rows(file, side, skips):
            if not row.text:
                continue
            origin, values = Origin(str(file), row.line.number), json.loads(row.line.text or "{}")
            names = [side.target_column] if side.target_column else [side.target, base_code(side.target), *TARGETS]
            nested = values.get("translation")
            holders = [values, nested] if isinstance(nested, Mapping) else [values]
            found = (holder.get(name) for name in names for holder in holders)
            text = next((value for value in found if isinstance(value, str)), None)
            if text is None:
                skips.add(origin, f"no translation in field {' or '.join(map(repr, dict.fromkeys(names)))}")
            elif reason := fault(text.translate(_LINE_ENDS)):
                skips.add(origin, reason)
            else:
                yield Segment(_unless_blank(text), origin, row.text)

    def filled(self, row: _Row, target: str, translated: TranslatedText | None) -> str | None:
        record = row.line.text
        if translated is None or record is None:
            return None
        taken = json.loads(record)
        added = {free_name(n, target, taken): value for n, value in added_fields(row.text, translated).items()}
        members = json.dumps(added, ensure_ascii=False)
        end = record.rindex("}")
        return f"{record[:end]}, {members[1:-1]}{record[end:]}"


def one_cell(text: str) -> str:
    """The text as a cell: tabs and line ends become spaces."""
    return _SEPARATORS.sub(" ", text)


def json_object(line: str) -> dict[str, Any] | None:
    """The parsed JSON object, None if the line is none."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def text_of(values: Mapping[str, Any], side: Side) -> tuple[str | None, str]:
    """The side's text of a record, or None, and if it has none that can be read the reason why. The text is field
    `side.column`, or the first string of: the language's code, its entry in `translation`, FIELDS. A blank text is None
    without a reason."""
    nested = values.get("translation")
    translations = nested if isinstance(nested, Mapping) else {}
    codes = (side.language, base_code(side.language))
    if side.column:
        value = values.get(side.column)
        candidates = [value.get(code) for code in codes] if isinstance(value, Mapping) else [value]
        candidates.append(translations.get(side.column))
    else:
        candidates = [m.get(code) for m in (values, translations) for code in codes]
        candidates += [values.get(name) for name in FIELDS]
    text = next((text for text in candidates if isinstance(text, str)), None)
    if text is None:
        return None, f"no text in field {side.column!r}" if side.column else f"no field {side.language!r} or 'text'"
    if reason := fault(text.translate(_LINE_ENDS)):
        return None, reason
    return _unless_blank(text) or None, ""


def added_fields(text: str, translated: TranslatedText) -> dict[str, Any]:
    """The fields that a translation adds; spans are offsets into the field's whole text. `memory` is there for
    sentences that a memory was asked about, `terms` for those with terms of a glossary, `findings` for what the checks
    found, `quality` for the lowest estimate of the sentences, `hints_away` (true) where the index did not answer."""
    hints: list[dict[str, Any]] = []
    terms: list[dict[str, Any]] = []
    notes: list[str] = []
    at = target_at = 0
    for sentence in translated.sentences:
        start = max(text.find(sentence.source.text, at), 0)
        at = start + len(sentence.source.text)
        target_start = max(translated.text.find(sentence.text, target_at), 0)
        target_at = target_start + len(sentence.text)
        terms += [_term_fields(usage, sentence.source.text, start, target_start) for usage in sentence.terms]
        for hint, used in zip(sentence.hints, sentence.used, strict=True):
            span, origin = hint.source_span, hint.hit.sentence.source
            hints.append(
                {
                    "source": span.of(sentence.source.text),
                    "source_span": [start + span.start, start + span.end],
                    "phrase": hint.phrase,
                    "context": hint.context().marked("[[", "]]"),
                    "score": hint.hit.stored_score,
                    "file": origin.file,
                    "line": origin.line,
                    "used": used,
                }
            )
        notes.extend(sentence.notes)
    memory = [_recalled_fields(t, t.recalled) for t in translated.sentences if t.recalled is not None]
    findings = [asdict(finding) for finding in translated.findings]
    estimate = translated.estimate
    quality = {} if estimate is None else {"score": estimate.score, "grade": estimate.grade}
    parts: dict[str, Any] = {"memory": memory, "terms": terms, "findings": findings, "quality": quality}
    parts["hints_away"] = bool(translated.hints_away)
    more = {name: value for name, value in parts.items() if value}
    return {"translation": translated.text, "hints": hints, "notes": notes, **more}


def _term_fields(usage: Usage, source: str, start: int, target_start: int) -> dict[str, Any]:
    """A term of the glossary, the translations that it allows and forbids, and where they stand in the output; the
    source sentence begins at `start` of its text, the translation at `target_start`."""
    term, span = usage.match.term, usage.match.span
    spans = [
        [[use.span.start + target_start, use.span.end + target_start] for use in uses]
        for uses in (usage.allowed, usage.forbidden)
    ]
    return {
        "source": span.of(source),
        "source_span": [start + span.start, start + span.end],
        "term": term.source,
        "allowed": list(term.allowed),
        "spans": spans[0],
        "forbidden": list(term.forbidden),
        "forbidden_spans": spans[1],
        "note": term.note,
        "file": term.origin.file,
        "line": term.origin.line,
        "ok": usage.ok,
    }


def _recalled_fields(translation: Translation, recalled: Recalled) -> dict[str, Any]:
    """A sentence's draft, what a memory has for it, whether that was shown, what it changed, and the other translations
    that there were to choose from."""
    hits = [
        {
            "source": hint.source_span.of(translation.source.text),
            "phrase": hint.phrase,
            "original": hint.hit.original,
            "score": hint.hit.stored_score,
            "file": hint.hit.sentence.source.file,
            "line": hint.hit.sentence.source.line,
        }
        for hint in recalled.hints
    ]
    return {
        "source": translation.source.text,
        "draft": translation.draft,
        "hits": hits,
        "shown": recalled.shown,
        "changes": [list(change) for change in changes(translation.draft, translation.text)],
        "alternatives": list(translation.alternatives),
    }


def free_name(name: str, target: str, taken: Container[str]) -> str:
    """`name`, or where it is taken already `name_TARGET`, `name_TARGET_2` and so on."""
    free, number = name, 1
    while free in taken:
        free = f"{name}_{target}" if number == 1 else f"{name}_{target}_{number}"
        number += 1
    return free


def _unless_blank(text: str | None) -> str:
    return text if text and not text.isspace() else ""


def _is_of(code: str, head: str) -> bool:
    """Whether a cell is the name of a column in that language."""
    known = language(code)
    return head.strip().casefold() in {code.casefold(), base_code(code), known.name.casefold(), known.native.casefold()}


def _column(file: Path, side: Side, first: list[str]) -> tuple[int, bool]:
    """The side's column, counted from 0, and whether the first line is a header."""
    heads = [cell.strip().casefold() for cell in first]
    heading = all(" " not in head for head in heads)  # `source` beside a text of several words is a word to translate
    header = heading and any(head in HEADS or _is_of(side.language, head) for head in heads)
    if side.column.isdecimal():
        column = int(side.column) - 1
        if column < 0:
            raise UserError(f"column 0 of {file} does not exist: columns are counted from 1")
        return column, header
    if side.column:
        wanted = side.column.strip().casefold()
        if wanted not in heads:
            shown = ", ".join(cell.strip()[:40] for cell in first[:20])
            raise UserError(
                f"{file} has no column {side.column!r}: expected a number from 1, or a cell of its first line ({shown})"
            )
        return heads.index(wanted), True
    for column, head in enumerate(heads):
        if _is_of(side.language, head):
            return column, True
    return 0, header


def _target_column(file: Path, target: Side, first: list[str]) -> int:
    """The column of a table's translations, counted from 0."""
    if target.column:
        return _column(file, target, first)[0]
    heads = [cell.strip().casefold() for cell in first]
    named = [n for n, head in enumerate(heads) if _is_of(target.language, head)]
    return (named or [n for n, head in enumerate(heads) if head in TARGETS] or [len(first) - 1])[0]


TEXT, TSV, JSONL = _Text(), _Tsv(), _Jsonl()
