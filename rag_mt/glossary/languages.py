"""The languages that files of terms name, in their columns and marks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rag_mt.base.languages import base_code, language, language_or_none


def language_named(name: str, pair: Sequence[str] = ()) -> str:
    """The code of the language that a name or code means, `German (Germany)` too; an empty string if it means none. The
    languages of `pair` are also known by their own names."""
    plain = name.partition("(")[0].strip()
    for code in pair:
        if plain.casefold() == language(code).native.casefold():
            return code
    known = language_or_none(plain)
    return known.code if known else ""


def chosen(wanted: str, codes: Mapping[int, str]) -> list[int]:
    """The numbers of what is in exactly the wanted language or, if nothing is, in any region of it."""
    exact = [number for number, code in codes.items() if code == wanted]
    return exact or [number for number, code in codes.items() if base_code(code) == base_code(wanted)]
