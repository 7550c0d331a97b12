"""Numbers and placeholders as terms of a translation, and how languages write numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_mt.base.types import Span
from rag_mt.checks.literals import has_literals, wrong_literals
from rag_mt.checks.number_forms import written
from rag_mt.checks.rules import RULES, Pair, check


@pytest.mark.parametrize(
    ("text", "source", "target", "form"),
    [
        ("It costs 1,234.50 euros.", "en", "de", "1.234,50"),
        ("Es kostet 1.234.567,5 Euro.", "de", "en", "1,234,567.5"),
        ("Es kostet 12.500 Euro.", "de", "fr", "12\u202f500"),
        ("Hinta on 36 000 euroa.", "fi", "en", "36,000"),
        ("about 3.5 metres", "en", "cs", "3,5"),
        ("in 2014", "en", "de", "2014"),
        ("12500 people", "en", "de", "12500"),
        ("um 19.30 Uhr", "de", "en", "19.30"),
        ("at 19:30", "en", "de", "19:30"),
        ("with Python 3.11", "en", "de", "3.11"),
        ("since v1.5", "en", "de", "1.5"),
        ("Version 1.2.3", "en", "de", "1.2.3"),
        ("١٢٣ كتاب", "ar", "en", "123"),
        ("12,34,567 rupees", "en", "de", "12,34,567"),
        ("3.5 metres", "en", "tlh", "3.5"),
        ("etwa 2,5 m", "de-AT", "en-GB", "2.5"),
    ],
)
def test_numbers_as_the_target_language_writes_them(text: str, source: str, target: str, form: str) -> None:
    start = next(n for n, c in enumerate(text) if c.isdecimal())
    end = max(n for n, c in enumerate(text) if c.isdecimal()) + 1
    assert written(Span(start, end), text, source, target) == form


@pytest.mark.parametrize(
    ("source", "target", "found"),
    [
        ("It costs 1,234.50 euros.", "Es kostet 1.234,50 Euro.", []),
        ("It costs 1,234.50 euros.", "Es kostet 1.243,50 Euro.", [("1,234.50", "1.234,50", "1.243,50")]),
        ("%d files in {dir}", "Dateien", [("%d", "%d", ""), ("{dir}", "{dir}", "")]),
        ("Hello {name}", "Hallo {nombre}", [("{name}", "{name}", "{nombre}")]),
        ("Hello", "Hallo {name} 5", [("{name}",), ("5",)]),
        ("{0} and %1$s", "und", [("{0}", "{0}", ""), ("%1$s", "%1$s", "")]),
        ("<b>2</b>", "<b></b>", [("2", "2", "")]),
    ],
)
def test_wrong_literals(source: str, target: str, found: list[tuple[str, ...]]) -> None:
    seen = [
        (usage.match.span.of(source), usage.match.term.allowed[0], "".join(use.translation for use in usage.forbidden))
        if usage.match.term.allowed
        else tuple(use.span.of(target) for use in usage.forbidden)
        for usage in wrong_literals(Pair(source, target, "en", "de"))
    ]
    assert seen == found
    assert not any(usage.ok for usage in wrong_literals(Pair(source, target, "en", "de")))
    assert has_literals(source) == (source != "Hello")


def test_a_number_with_blanks_between_its_groups_is_one() -> None:
    (usage,) = wrong_literals(Pair("Hinta on 36 000 euroa, 5 kpl.", "The price is, for 5.", "fi", "en"))
    assert usage.match.term.allowed == ("36,000",)
    found = wrong_literals(Pair("Zimmer 36 000 Euro", "Room", "de", "en"))
    assert [usage.match.term.allowed[0] for usage in found] == ["36", "000"], "German has full stops there"


@given(st.text("aB1 2.,%s{}<>/&", max_size=30), st.text("aB1 2.,%s{}<>/&", max_size=30))
def test_there_are_wrong_literals_where_the_rules_find_something(source: str, target: str) -> None:
    pair = Pair(source, target, "en", "de")
    findings = check(pair, [RULES["numbers"], RULES["placeholders"]])
    wrong = wrong_literals(pair)
    assert bool(findings) == bool(wrong) or all(finding.rule == "numbers" for finding in findings)
    for usage in wrong:
        assert all(use.span.of(target) == use.translation for use in usage.forbidden)
