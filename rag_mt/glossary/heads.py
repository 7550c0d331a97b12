"""What the columns of a table of terms hold, by its first row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rag_mt.base.errors import UserError
from rag_mt.base.languages import base_code, language
from rag_mt.base.types import Skips
from rag_mt.glossary.languages import chosen, language_named

_ROLES = {
    "source": ("source", "src", "term", "source term"),
    "target": ("target", "tgt", "translation", "translations", "target term"),
    "note": ("note", "notes", "comment", "comments", "description"),
    "case": ("case", "case sensitive", "casesensitive"),
}
_FORBIDDEN = "forbidden"
_MOST_HEADS = 1000
"""Columns that are looked at: a table of more is none of people."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The numbers of a table's columns, counted from 0."""

    source: int = 0
    target: int = 1
    notes: tuple[int, ...] = (2,)
    forbidden: int | None = None
    case: int | None = None


@dataclass(slots=True)
class _Heads:
    """What the cells of a first row name: roles by column, and languages by column."""

    roles: dict[int, str]
    languages: dict[int, str]
    forbidden: dict[int, str]  # the language of the forbidden translations, empty if it is not named


def columns_of(path: Path, first: Sequence[str], source: str, target: str, skips: Skips) -> tuple[Columns, bool]:
    """The columns, and whether the first row is their header: it names both languages (or `source` and `target`), or
    nothing else than what headers name. Raises UserError if it is one and has not both."""
    heads = _heads(first, source, target)
    columns = _columns(heads, source, target, path, skips)
    if columns:
        return columns, True
    named = len(set(heads.languages.values())) + len({r for r in heads.roles.values() if r in ("source", "target")})
    cells = sum(1 for cell in first if cell.strip())
    if named > 1 and cells == len(heads.roles) + len(heads.languages) + len(heads.forbidden):
        shown = ", ".join(cell.strip()[:40] for cell in first[:20])
        names = " and ".join(f"{language(code).name} (`{code}`)" for code in (source, target))
        raise UserError(
            f"{path} has no columns for {names}: its first row names {shown}; correct it or give another file"
        )
    return Columns(), False


def _heads(first: Sequence[str], source: str, target: str) -> _Heads:
    heads = _Heads({}, {}, {})
    for number, cell in enumerate(first[:_MOST_HEADS]):
        name = " ".join(cell.replace("_", " ").casefold().split())
        role = next((role for role, names in _ROLES.items() if name.replace("-", " ") in names), "")
        if role:
            heads.roles[number] = role
        elif _FORBIDDEN in name:
            rest = name.replace(_FORBIDDEN, "").strip(" ()")
            code = language_named(rest, (source, target)) if rest else ""
            if code or not rest:
                heads.forbidden[number] = code
        elif code := language_named(cell.replace("_", "-"), (source, target)) if cell.strip() else "":
            heads.languages[number] = code
    return heads


def _columns(heads: _Heads, source: str, target: str, path: Path, skips: Skips) -> Columns | None:
    """The columns that the heads name, None if they do not name both the source and the target."""
    numbers: list[int] = []
    for role, code in (("source", source), ("target", target)):
        candidates = chosen(code, {n: c for n, c in heads.languages.items() if n not in numbers})
        candidates += [n for n, r in heads.roles.items() if r == role]
        if not candidates:
            return None
        numbers.append(candidates[0])
    forbidden = None
    for number, named in heads.forbidden.items():
        code = named or _language_before(number, heads) or target
        if base_code(code) == base_code(target) and forbidden is None:
            forbidden = number
        else:
            skips.remark(path, f"its column {number + 1} forbids words that are not {target}: it is left out")
    notes = tuple(n for n, r in heads.roles.items() if r == "note")
    case = next((n for n, r in heads.roles.items() if r == "case"), None)
    return Columns(numbers[0], numbers[1], notes, forbidden, case)


def _language_before(number: int, heads: _Heads) -> str:
    """The language of the last column before one, empty if there is none."""
    return heads.languages[max(before)] if (before := [n for n in heads.languages if n < number]) else ""
