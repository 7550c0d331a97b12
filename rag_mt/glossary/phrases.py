"""Terms and texts as words with what stands between them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TypeVar

from rag_mt.base.types import Span
from rag_mt.text.words import MARK, UNSPACED

Item = TypeVar("Item")

_WORD = re.compile(rf"[{UNSPACED}]{MARK}*|(?:(?![{UNSPACED}_])\w|{MARK})+")
_JOINING = re.compile(r"\s*|[-‐‑'’ʼ]")
_AROUND = " \t\r\n\xa0\"'“”„‟«»‹›‘’‚‛()[]{}<>¿¡*"
_AFTER = _AROUND + ".,;:!?…"


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a text and its place. `gap` tells what stands before it: a blank for what merely joins two words (white
    space, a hyphen, an apostrophe, nothing), else the characters themselves."""

    text: str
    span: Span
    gap: str


@dataclass(frozen=True, slots=True)
class Phrase:
    """A term as words and the `gap` before each of them. `lead` and `trail` are the signs that belong to it: the point
    of `.NET`, the signs of `C++`; brackets, quotes and a last full stop do not."""

    words: tuple[str, ...]
    gaps: tuple[str, ...]
    lead: str = ""
    trail: str = ""


# A text is asked about once for each of its terms, one after the other.
@lru_cache(16)
def text_words(text: str) -> tuple[Word, ...]:
    """The words of a text, in order: runs of letters, digits and marks, divided at hyphens and apostrophes; in scripts
    without blanks every character."""
    spans = [m.span() for m in _WORD.finditer(text)]
    ends = [0, *(end for _, end in spans)]
    return tuple(
        Word(text[start:end], Span(start, end), _gap(text[before:start]))
        for (start, end), before in zip(spans, ends, strict=False)
    )


def phrase_of(term: str) -> Phrase:
    """A term as a phrase, without any words where it has neither a letter nor a digit."""
    spans = [m.span() for m in _WORD.finditer(term)]
    if not spans:
        return Phrase((), ())
    gaps = ("", *(_gap(term[end:start]) for (_, end), (start, _) in pairwise(spans)))
    lead, trail = term[: spans[0][0]].lstrip(_AROUND), term[spans[-1][1] :].rstrip(_AFTER)
    return Phrase(tuple(term[start:end] for start, end in spans), gaps, lead, trail)


def phrase_span(phrase: Phrase, text: str, first: Span, last: Span) -> Span | None:
    """The span of a phrase whose words reach from `first` to `last` in a text, with its signs; None without them."""
    start, end = first.start - len(phrase.lead), last.end + len(phrase.trail)
    there = text.startswith(phrase.trail, last.end) and start >= 0 and text.startswith(phrase.lead, start)
    return Span(start, end) if there else None


def without_overlaps(found: Iterable[Item], span: Callable[[Item], Span], length: int) -> Iterator[Item]:
    """Those of what was `found` in a text of so many characters that overlap nothing before them."""
    taken = bytearray(length)
    for each in found:
        start, end = span(each).start, span(each).end
        if taken.find(1, start, end) < 0:
            taken[start:end] = b"\x01" * (end - start)
            yield each


def word_count(text: str) -> int:
    """How many words a text has; two characters of a script without blanks count as one."""
    words = [m[0] for m in _WORD.finditer(text)]
    unspaced = sum(1 for word in words if re.match(f"[{UNSPACED}]", word))
    return len(words) - unspaced + (unspaced + 1) // 2


def _gap(between: str) -> str:
    return " " if _JOINING.fullmatch(between) else " ".join(between.casefold().split())
