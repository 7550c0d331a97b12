"""Which translations an output uses."""

from __future__ import annotations

import pytest

from rag_mt.base.terms import Term, TermMatch, Usage
from rag_mt.base.types import Span
from rag_mt.checks.rules import Pair
from rag_mt.glossary.glossary import Glossary
from rag_mt.glossary.rule import terms_rule


def usage(code: str, allowed: str, forbidden: str, text: str) -> Usage:
    term = Term("x", "xx", code, *(tuple(filter(None, t.split("|"))) for t in (allowed, forbidden)))
    return Glossary("en", code).used(TermMatch(term, Span(0, 1)), text)


@pytest.mark.parametrize(
    ("code", "allowed", "forbidden", "text", "expected", "ok"),
    [
        ("en", "computer", "", "Two computers.", ["computers"], True),
        ("en", "computer", "", "A machine.", [], False),
        ("en", "computer|machine", "calculator", "The machine", ["machine"], True),
        ("en", "computer", "calculator", "Computers are no calculators", ["Computers", "!calculators"], False),
        ("en", "", "calculator", "A computer", [], True),
        ("en", "", "calculator", "A calculator", ["!calculator"], False),
        ("en", "personal computer", "computer", "A personal computer", ["personal computer"], True),
        (
            "en",
            "personal computer",
            "computer",
            "A computer: personal computer",
            ["!computer", "personal computer"],
            False,
        ),
        ("en", "computer", "personal computer", "personal computers", ["!personal computers"], False),
        ("en", "contract", "contracts", "the contracts", ["!contracts"], False),
        ("en", "contract", "contracts", "the contract", ["contract"], True),
        ("en", "IT", "", "it does", [], False),
        ("en", "IT", "", "the IT", ["IT"], True),
        ("fi", "tietokone", "", "Se on tietokoneella.", ["tietokoneella"], True),
        ("fi", "tietokone", "", "tietokoneohjelma", ["tietokone"], True),
        ("de", "Datenbank", "Bank", "Datenbankverbindung", ["Datenbank"], True),
        ("de", "Rechner", "Datenbank", "Rechner mit Datenbankverbindung", ["Rechner"], True),
        ("de", "Rechner", "Computer", "Computern", ["!Computern"], False),
        ("zh", "数据库", "资料库", "新数据库", ["数据库"], True),
        ("en", "C++", "", "in C", [], False),
        ("en", "C++", "", "in C++.", ["C++"], True),
        ("en", "***", "", "in C++.", [], False),
    ],
)
def test_what_is_used(code: str, allowed: str, forbidden: str, text: str, expected: list[str], ok: bool) -> None:
    found = usage(code, allowed, forbidden, text)
    uses = [(u.span, u.span.of(text)) for u in found.allowed] + [
        (u.span, "!" + u.span.of(text)) for u in found.forbidden
    ]
    assert [word for _, word in sorted(uses)] == expected
    assert found.ok is ok


def test_uses_name_the_translation() -> None:
    found = usage("en", "machine|computer", "", "a computer or a machine")
    assert [use.translation for use in found.allowed] == ["computer", "machine"]


def test_a_term_that_occurs_twice_needs_one_translation() -> None:
    glossary = Glossary("de", "en", (Term("Rechner", "de", "en", ("computer",)),))
    matches = glossary.matches("Rechner und Rechner")
    assert [glossary.used(match, "computers").ok for match in matches] == [True, True]


def test_the_rule_and_the_translation_look_at_the_same_place_of_a_term() -> None:
    """A term that is a part of a compound first and a word of its own later is missing, not excused by the compound."""
    glossary = Glossary("de", "en", (Term("Datei", "de", "en", ("file",)),))
    pair = Pair("Das Dateiformat der Datei", "The format", "de", "en")
    (match,) = glossary.first_matches(pair.source)
    assert (match.span.of(pair.source), match.in_compound) == ("Datei", False) and match.span.start > 10
    assert terms_rule(glossary).found(pair) == ["term not used: Datei = file"]
