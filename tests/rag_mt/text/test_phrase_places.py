"""Where a text says a phrase word for word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_mt.base.types import Hint, Hit, Sentence, Span
from rag_mt.text.phrase_places import phrase_places, takes_up


def hint(phrase: str) -> Hint:
    return Hint(Span(0, 1), Hit(Sentence(phrase, "en"), Span(0, len(phrase)), 1.0))


@pytest.mark.parametrize(
    ("text", "phrase", "expected"),
    [
        ("The city council met.", "City Council", True),
        ("The city councils met.", "city council", False),
        ("It costs $5 (net).", "$5 (net)", True),
        ("nothing", "something", False),
        ("市議会は今日", "市議会", True),
    ],
)
def test_taken_up_means_whole_words(text: str, phrase: str, expected: bool) -> None:
    assert takes_up(text, hint(phrase)) is expected


@pytest.mark.parametrize(
    ("text", "phrase", "places"),
    [
        ("The council and THE Council.", "the council", ["The council", "THE Council"]),
        ("In der STRASSE, in der Straße.", "Straße", ["STRASSE", "Straße"]),
        ("Eine ſtraße.", "STRASSE", ["ſtraße"]),
        ("Die Straßen sind neu.", "straße", []),
        ("Maß und Maßstab", "mass", ["Maß"]),
        ("İstanbul", "i̇stanbul", ["İstanbul"]),
        ("İ", "i", []),  # half of the character
        ("ΟΔΟΣ", "οδός", []),
        ("ΟΔΟΣ", "οδος", ["ΟΔΟΣ"]),
        ("市议会今天市议会", "市议会", ["市议会", "市议会"]),
        ("a (b) c", "(B)", ["(b)"]),
        ("abc", "", []),
    ],
)
def test_places(text: str, phrase: str, places: list[str]) -> None:
    assert [span.of(text) for span in phrase_places(phrase, text)] == places
    assert takes_up(text, hint(phrase)) is bool(places)


@given(
    st.text(st.sampled_from("aßSsİi\u0307 ﬁfΣσς市"), max_size=12), st.text(st.sampled_from("aßSsİiﬁfΣς市"), max_size=3)
)
def test_what_is_found_is_the_phrase(text: str, phrase: str) -> None:
    for span in phrase_places(phrase, text):
        assert span.of(text).casefold() == phrase.casefold()
