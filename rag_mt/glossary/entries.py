"""What one row, concept or unit of a file says, and the terms that all of them make together."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rag_mt.base.languages import language
from rag_mt.base.terms import Term
from rag_mt.base.types import Origin, Skips
from rag_mt.formats.opening import fault
from rag_mt.glossary.phrases import phrase_of

LONGEST = 200
"""Characters of the longest term or translation."""
CONTRADICTION = "translation both allowed and forbidden"


@dataclass(frozen=True, slots=True)
class Entry:
    """Synonyms of the source language and what they are translated as."""

    sources: Sequence[str]
    allowed: Sequence[str]
    forbidden: Sequence[str]
    origin: Origin
    note: str = ""
    case_sensitive: bool = False


@dataclass(slots=True)
class _Gathered:
    """What all entries say of one term: translations by what tells them apart, each with where it stands first."""

    source: str
    case_sensitive: bool
    origin: Origin
    allowed: dict[str, tuple[str, Origin]] = field(default_factory=dict)
    forbidden: dict[str, tuple[str, Origin]] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)


def clean(text: str) -> str:
    """A text of a file with single blanks and composed letters."""
    return unicodedata.normalize("NFC", " ".join(text.split()))


def wrong_with(entry: Entry) -> str:
    """Why an entry cannot be used, an empty string if it can."""
    texts = [*entry.sources, *entry.allowed, *entry.forbidden]
    if not entry.sources:
        return "no term"
    if not entry.allowed and not entry.forbidden:
        return "no translation"
    if any(map(fault, [*texts, entry.note])):
        return "control character or noncharacter"
    if any(len(text) > LONGEST for text in texts):
        return f"longer than {LONGEST} characters"
    return "" if all(phrase_of(text).words for text in texts) else "no letter or digit"


def terms_of(entries: Iterable[Entry], source: str, target: str, skips: Skips) -> tuple[Term, ...]:
    """The terms of a language pair in the order of the entries. Equal terms become one with the translations and notes
    of all; a translation that is both allowed and forbidden is neither, and a skip."""
    gathered: dict[tuple[str, bool], _Gathered] = {}
    for entry in entries:
        for text in entry.sources:
            key = (text if entry.case_sensitive else _identity(text), entry.case_sensitive)
            term = gathered.setdefault(key, _Gathered(text, entry.case_sensitive, entry.origin))
            for translations, known in ((entry.allowed, term.allowed), (entry.forbidden, term.forbidden)):
                for translation in translations:
                    known.setdefault(_identity(translation), (translation, entry.origin))
            if entry.note:
                term.notes[entry.note] = None
    terms = (_term(g, language(source).code, language(target).code, skips) for g in gathered.values())
    return tuple(term for term in terms if term)


def _term(gathered: _Gathered, source: str, target: str, skips: Skips) -> Term | None:
    both = gathered.allowed.keys() & gathered.forbidden.keys()
    for key in (key for key in gathered.allowed if key in both):
        skips.add(max(gathered.allowed[key][1], gathered.forbidden[key][1], key=lambda o: o.line), CONTRADICTION)
    allowed, forbidden = (
        tuple(text for key, (text, _) in known.items() if key not in both)
        for known in (gathered.allowed, gathered.forbidden)
    )
    if not allowed and not forbidden:
        return None
    note = "; ".join(gathered.notes)
    return Term(gathered.source, source, target, allowed, forbidden, note, gathered.case_sensitive, gathered.origin)


def _identity(text: str) -> str:
    """What tells a term or translation from others: letter case only where one of its words is an abbreviation."""
    abbreviated = any(word.isupper() for word in phrase_of(text).words)
    return text if abbreviated else text.casefold()
