"""Which of a term's translations an output uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from rag_mt.base.terms import TermMatch, Usage, Use
from rag_mt.base.types import Span
from rag_mt.glossary.compounds import compound_parts
from rag_mt.glossary.forms import NONE, TermWord, forms_in
from rag_mt.glossary.matching import is_part
from rag_mt.glossary.phrases import Phrase, phrase_of, phrase_span, text_words, without_overlaps


@dataclass(frozen=True, slots=True)
class _Seen:
    use: Use
    likeness: int
    forbidden: bool


def usage_in(match: TermMatch, text: str, code: str) -> Usage:
    """The translations of a match in a text of language `code`, without overlaps: of overlapping ones the longest
    counts, so that a forbidden word within an allowed term does no harm, then the one most like the text. An allowed
    one may be a part of a compound, a forbidden one not."""
    term = match.term
    seen = [_Seen(use, likeness, False) for t in term.allowed for use, likeness in _uses(t, text, code, True)]
    seen += [_Seen(use, likeness, True) for t in term.forbidden for use, likeness in _uses(t, text, code, False)]
    seen.sort(key=lambda s: (-len(s.use.span), -s.likeness, s.forbidden, s.use.span.start))
    chosen = sorted(without_overlaps(seen, lambda s: s.use.span, len(text)), key=lambda s: s.use.span)
    allowed, forbidden = (tuple(s.use for s in chosen if s.forbidden is kind) for kind in (False, True))
    return Usage(match, allowed, forbidden)


@lru_cache(1 << 14)
def _translation(text: str, code: str) -> tuple[Phrase, tuple[TermWord, ...]]:
    """A translation as a phrase and its words; they are looked for in many outputs."""
    phrase = phrase_of(text)
    return phrase, forms_in(code).term_words(phrase.words)


def _uses(translation: str, text: str, code: str, in_compounds: bool) -> Iterator[tuple[Use, int]]:
    """All places of a translation in a text, and the sum of its words' likenesses. Its last word may be inflected in
    ways that no dictionary has."""
    phrase, terms = _translation(translation, code)
    if not terms:
        return
    forms, words = forms_in(code), text_words(text)
    last = len(terms) - 1
    for start in range(len(words) - last):
        total = 0
        for place, (term, gap) in enumerate(zip(terms, phrase.gaps, strict=True)):
            word = words[start + place]
            likeness = forms.likeness(term, word.text, loose=place == last)
            if likeness == NONE or (place and word.gap != gap):
                break
            total += likeness
        else:
            if span := phrase_span(phrase, text, words[start].span, words[start + last].span):
                yield Use(translation, span), total
    if in_compounds and len(terms) == 1 and not (phrase.lead or phrase.trail):
        for word in words:
            for part in compound_parts(word.text, forms):
                likeness = forms.likeness(terms[0], part.of(word.text))
                if is_part(terms[0], part.of(word.text), likeness, part.head):
                    start = word.span.start
                    yield Use(translation, Span(start + part.start, start + part.end)), likeness
