"""Marks: a question stays a question, brackets and quotation marks are closed, and are those of the language."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from pathlib import Path

from rag_mt.base.files import read_toml
from rag_mt.base.languages import base_code

FILE = Path(__file__).with_name("marks.toml")
QUOTES = "“”„‚‘«»‹›"
"""Marks that only quote; `’` is an apostrophe as well."""
BRACKETS = {"(": ")", "[": "]", "{": "}", "（": "）", "【": "】"}

_CLASSES = {
    ".": "a full stop", "。": "a full stop", "।": "a full stop", "۔": "a full stop", "።": "a full stop",
    "!": "an exclamation mark", "！": "an exclamation mark",
    "?": "a question mark", "？": "a question mark", "؟": "a question mark",
    ":": "a colon", "：": "a colon",
    "…": "an ellipsis",
}  # fmt: skip


def end_mark(text: str) -> str:
    """What a text ends with, in words, closing brackets, quotation marks and markup aside; empty for a letter or
    digit."""
    bare = re.sub(r"<[^<>]*>\s*$", "", text.rstrip()).rstrip()
    while bare and (unicodedata.category(bare[-1]) in ("Pe", "Pf", "Pi") or bare[-1] in "\"'„“«»*"):
        bare = bare[:-1].rstrip()
    if not bare:
        return ""
    if bare.endswith(("...", "..")):
        return _CLASSES["…"]
    return _CLASSES.get(bare[-1], "")


def foreign_quotes(text: str, language: str) -> list[str]:
    """Quotation marks of a text that the language does not have; none for one whose marks are not known."""
    known = _quotes(base_code(language))
    return sorted({c for c in text if c in QUOTES and c not in known}) if known else []


@lru_cache(64)
def _quotes(code: str) -> frozenset[str]:
    pairs = read_toml(FILE, "table of marks", FILE.name)["quotes"].get(code, ())
    return frozenset("".join(pairs))


def unclosed(text: str) -> list[str]:
    """Brackets that are not closed or not opened, smileys and numbers of lists (`a)`) aside."""
    plain = re.sub(r"(?<!\w)[:;=]-?[()\[\]]+|^\s*\w{1,3}[)\]](?=\s)", " ", text)
    counts = ((o, c, plain.count(o) - plain.count(c)) for o, c in BRACKETS.items())
    return [o if more > 0 else c for o, c, more in counts if more]
