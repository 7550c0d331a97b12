"""Literals: numbers and placeholders, which a translation has as its source has them, seen as terms whose only
translation is themselves, so that they can be asked for as those of a glossary are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rag_mt.base.terms import Term, TermMatch, Usage, Use
from rag_mt.base.types import Span
from rag_mt.checks.number_forms import BLANKS, form_of, written
from rag_mt.checks.number_sides import Number, numbers
from rag_mt.checks.numbers import differing_numbers
from rag_mt.checks.rules import Pair
from rag_mt.text.answers import differing_placeholders, placeholders


def has_literals(text: str) -> bool:
    """Whether there are numbers or placeholders in a text."""
    return bool(numbers(text) or placeholders(text))


def wrong_literals(pair: Pair) -> tuple[Usage, ...]:
    """What the rules `numbers` and `placeholders` find: literals of the source that the translation lost, and, as
    forbidden words without a place in the source, those that only it has. Where as many were lost as added, each of
    these stands in the place of a lost one."""
    lost, added = differing_placeholders(pair.source, pair.target)
    found = _usages(pair, [(span, span.of(pair.source)) for span in lost], added)
    lost_numbers, added_numbers = differing_numbers(*pair.texts)
    if not lost_numbers and not added_numbers:
        return found
    own = _joined(_outside(lost_numbers, placeholders(pair.source)), pair)
    right = [(span, written(span, pair.source, pair.source_language, pair.target_language)) for span in own]
    return found + _usages(pair, right, _outside(added_numbers, placeholders(pair.target)))


def _outside(found: Iterable[Number], spans: Sequence[Span]) -> list[Span]:
    """Where numbers stand that are no part of a placeholder."""
    own = (Span(number.start, number.end) for number in found)
    return [span for span in own if not any(span.overlaps(other) for other in spans)]


def _joined(spans: Sequence[Span], pair: Pair) -> list[Span]:
    """Numbers of the source, those joined that are one with blanks between its groups of digits (`36 000`)."""
    form, joined = form_of(pair.source_language), list(spans[:1])
    for span in spans[1:]:
        last = joined[-1]
        gap = pair.source[last.end : span.start]
        head = last.of(pair.source).split(gap)[0] if gap else ""
        if form and form.has_blanks and len(gap) == 1 and gap in BLANKS and len(head) <= len(span) == 3:
            joined[-1] = Span(last.start, span.end)
        else:
            joined.append(span)
    return joined


def _usages(pair: Pair, lost: Sequence[tuple[Span, str]], added: Sequence[Span]) -> tuple[Usage, ...]:
    codes = pair.source_language, pair.target_language
    uses = [Use(span.of(pair.target), span) for span in added]
    if len(lost) == len(added):
        instead: list[tuple[Use, ...]] = [(use,) for use in uses]
        uses = []
    else:
        instead = [()] * len(lost)
    missing = (
        Usage(TermMatch(Term(span.of(pair.source), *codes, allowed=(right,)), span), forbidden=wrong)
        for (span, right), wrong in zip(lost, instead, strict=True)
    )
    further = (
        Usage(TermMatch(Term(use.translation, *codes, forbidden=(use.translation,)), Span(0, 0)), forbidden=(use,))
        for use in uses
    )
    return (*missing, *further)
