"""The rules by which a translation is checked against its source, each by its name.

A rule is a function of both texts and their languages that returns what it found, one sentence each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rag_mt.base.findings import Finding, Severity
from rag_mt.checks import amounts, marks, months, units, wording
from rag_mt.checks.numbers import differing_numbers
from rag_mt.checks.sentences import sentences_off
from rag_mt.text.answers import differing_placeholders


@dataclass(frozen=True, slots=True)
class Pair:
    """A text and its translation, with their languages' codes."""

    source: str
    target: str
    source_language: str
    target_language: str

    @property
    def texts(self) -> tuple[str, str, str, str]:
        """Both texts and both codes, as the functions of the rules take them."""
        return self.source, self.target, self.source_language, self.target_language


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of a severity; `about` says in one line what it finds, `found` returns its messages for a pair."""

    name: str
    severity: Severity
    about: str
    found: Callable[[Pair], Sequence[str]]


def _empty(pair: Pair) -> list[str]:
    return ["the translation is empty"] if pair.source.strip() and not pair.target.strip() else []


def _numbers(pair: Pair) -> list[str]:
    lost, added = ([number.text for number in side] for side in differing_numbers(*pair.texts))
    if len(lost) == len(added) == 1:
        return [f"number changed: {lost[0]} → {added[0]}"]
    return [*(f"number lost: {number}" for number in lost), *(f"number added: {number}" for number in added)]


def _months(pair: Pair) -> list[str]:
    lost, added = months.differing_months(*pair.texts)
    if len(lost) == len(added) == 1:
        return [f"month changed: {lost[0]} → {added[0]}"]
    return [*(f"month lost: {month}" for month in lost), *(f"month added: {month}" for month in added)]


def _units(pair: Pair) -> list[str]:
    return [f"unit lost: {unit}" for unit in units.lost_units(pair.source, pair.target, pair.target_language)]


def _placeholders(pair: Pair) -> list[str]:
    lost, added = differing_placeholders(pair.source, pair.target)
    return [
        *(f"placeholder lost: {span.of(pair.source)}" for span in lost),
        *(f"placeholder added: {span.of(pair.target)}" for span in added),
    ]


def _untranslated(pair: Pair) -> list[str]:
    if wording.is_untranslated(*pair.texts):
        return ["not translated"]
    run = wording.copied_run(*pair.texts)
    return [f"copied from the source: {run}"] if run else []


def _length(pair: Pair) -> list[str]:
    if not pair.target.strip() or not amounts.is_long_or_short(*pair.texts):
        return []
    lengths = f"{len(pair.target.strip())} characters for {len(pair.source.strip())}"
    return [f"{'long' if amounts.length_off(*pair.texts) > 0 else 'short'}: {lengths}"]


def _sentences(pair: Pair) -> list[str]:
    more = sentences_off(*pair.texts)
    if not more or not pair.target.strip():
        return []
    return [f"{abs(more)} sentence{'s' * (abs(more) > 1)} {'more' if more > 0 else 'less'} than the source"]


def _repeated(pair: Pair) -> list[str]:
    words = wording.repeated_words(pair.source, pair.target, pair.target_language)
    return [f"said twice: {word}" for word in words]


def _ends(pair: Pair) -> list[str]:
    return [] if _is_slight(pair) else _end(pair)


def _stops(pair: Pair) -> list[str]:
    return _end(pair) if _is_slight(pair) else []


def _is_slight(pair: Pair) -> bool:
    """Whether a full stop is all that is lost or added, or another mark than a question mark or colon stands for it."""
    own, other = marks.other_end(pair.source, pair.target)
    return marks.STOP in (own, other) and {own, other} <= marks.SLIGHT


def _end(pair: Pair) -> list[str]:
    own, other = marks.other_end(pair.source, pair.target)
    if own == other or not pair.target.strip():
        return []
    return [f"ends with {other or 'no mark'}, the source with {own or 'no mark'}"]


def _quotes(pair: Pair) -> list[str]:
    return [f"quotation mark of another language: {c}" for c in marks.foreign_quotes(pair.target, pair.target_language)]


def _brackets(pair: Pair) -> list[str]:
    if marks.unclosed(pair.source):
        return []
    return [f"bracket without its other half: {bracket}" for bracket in marks.unclosed(pair.target)]


RULES = {
    rule.name: rule
    for rule in (
        Rule("empty", "error", "nothing was translated", _empty),
        Rule("numbers", "error", "a number is lost, added or changed", _numbers),
        Rule("placeholders", "error", "a placeholder, tag or entity is lost, added or changed", _placeholders),
        Rule("untranslated", "error", "the text, or a run of its words, stands in the source language", _untranslated),
        Rule("months", "warning", "a month of a date is lost, added or changed", _months),
        Rule("units", "warning", "a unit or currency beside a number is lost or changed", _units),
        Rule("length", "warning", "the text is much longer or shorter than expected", _length),
        Rule("sentences", "warning", "a sentence is lost or added", _sentences),
        Rule("repeated", "warning", "a word stands twice in a row, or the text loops", _repeated),
        Rule("ends", "warning", "the text ends with another mark than its source", _ends),
        Rule("stops", "note", "a full stop at the end is lost or added, or stands for ! or …", _stops),
        Rule("quotes", "warning", "quotation marks are not those of the language", _quotes),
        Rule("brackets", "warning", "a bracket is not closed, or not opened", _brackets),
    )
}
"""In the order in which findings are told."""


def check(pair: Pair, rules: Sequence[Rule] = tuple(RULES.values())) -> list[Finding]:
    """What the rules find in a translation, in their order."""
    return [Finding(rule.name, rule.severity, message) for rule in rules for message in rule.found(pair)]
