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

STOP, EXCLAMATION, QUESTION, COLON = "a full stop", "an exclamation mark", "a question mark", "a colon"
ELLIPSIS = "an ellipsis"
SLIGHT = {"", STOP, EXCLAMATION, ELLIPSIS}
"""Marks that translators exchange for a full stop, or leave out where there is one, as a matter of tone or style."""

_CLOSING = "\"'“”»«’)"
_CLASSES = {
    ".": STOP, "。": STOP, "।": STOP, "۔": STOP, "።": STOP, "!": EXCLAMATION, "！": EXCLAMATION,
    "?": QUESTION, "？": QUESTION, "؟": QUESTION, ":": COLON, "：": COLON, "…": ELLIPSIS,
}  # fmt: skip
_DATE = re.compile(r"(?<!\d)\d{1,2}\.\s?\d{1,2}\.$")
_NO_BRACKETS = re.compile(r"(?<!\w)[:;=]-?[()\[\]]+|^\s*\w{1,3}[)\]](?=\s)")
_DOTS = re.compile(r"\.{3,}")
_DASH = re.compile(r"\w[—–]$")
_TAIL = re.compile(r"(?<![^\w\s])[^\w\s]+$")


def end_mark(text: str) -> str:
    """What a text ends with, in words, closing brackets, quotation marks and markup aside; empty for a letter or
    digit."""
    bare = re.sub(r"<[^<>]*>\s*$", "", text.rstrip()).rstrip()
    while bare and (unicodedata.category(bare[-1]) in ("Pe", "Pf", "Pi") or bare[-1] in "\"'„“«»*"):
        bare = bare[:-1].rstrip()
    if not bare:
        return ""
    if bare.endswith(("...", "..")):
        return ELLIPSIS
    return _CLASSES.get(bare[-1], "")


def other_end(source: str, target: str) -> tuple[str, str]:
    """The marks at the ends of a text and its translation where they differ, else twice nothing: they do not where a
    question or an exclamation only stands elsewhere in a sentence of another order (`I asked: “Who?”`, `„Wer?“, fragte
    ich.`), nor with a full stop behind another mark or an abbreviation."""
    own, other = _end(source), _end(target)
    if own == other or own in _marks_at_end(target) or other in _marks_at_end(source):
        return "", ""
    for mark, signs in ((QUESTION, "?？؟"), (EXCLAMATION, "!！")):
        counts = [sum(text.count(sign) for sign in signs) for text in (source, target)]
        if mark in (own, other) and counts[0] == counts[1]:
            return "", ""
    return own, other


def _end(text: str) -> str:
    """What a text ends with, as `end_mark` says, but for what looks like another mark: a date in digits (`31.8.`) ends
    with none, an abbreviation (`etc..`) with a full stop, and what a dash breaks off with an ellipsis."""
    bare = text.rstrip().rstrip(_CLOSING)
    if _DATE.search(bare):
        return ""
    dots = bare[len(bare.rstrip(".…")) :]
    if "…" in dots or len(dots) >= len("...") or _DASH.search(bare[-2:]):
        return ELLIPSIS
    return STOP if dots == ".." else end_mark(text)


def _marks_at_end(text: str) -> set[str]:
    """All marks that stand in a row at the end of a text, quotation marks and brackets between them aside."""
    tail = _TAIL.search(_DOTS.sub("…", text.rstrip()))
    return {_CLASSES[sign] for sign in tail[0] if sign in _CLASSES} if tail else set()


def foreign_quotes(text: str, language: str) -> list[str]:
    """Quotation marks of a text that the language does not have; none for one whose marks are not known."""
    known = _quotes(base_code(language))
    return sorted({c for c in text if c in QUOTES and c not in known}) if known else []


@lru_cache(64)
def _quotes(code: str) -> frozenset[str]:
    pairs = read_toml(FILE, "table of marks", FILE.name)["quotes"].get(code, ())
    return frozenset("".join(pairs))


def unclosed(text: str) -> list[str]:
    """Brackets that are not closed or not opened; none where they are paired either with or without smileys and numbers
    of lists (`a)`)."""
    return _unpaired(text) and _unpaired(_NO_BRACKETS.sub(" ", text))


def _unpaired(text: str) -> list[str]:
    counts = ((o, c, text.count(o) - text.count(c)) for o, c in BRACKETS.items())
    return [o if more > 0 else c for o, c, more in counts if more]
