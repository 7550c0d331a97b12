"""Loops are found and cut at their second round; placeholders that translations must keep; phrases word for word."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rag_mt.base.types import Hint, Hit, Sentence, Span
from rag_mt.text.answers import differing_placeholders, loop_in, phrase_places, placeholders, takes_up, without_loop

WORDS = st.lists(st.sampled_from(["we", "go", "home", "now", "and", "then"]), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("no no no no", (2, "")),
        ("no no no", None),
        ("No, no! NO no. And then", (3, " And then")),
        ("we go home we go home we go home", (10, "")),
        ("we go home we go home", None),
        ("so we all go home so we all go home", None),
        ("so we all now go home so we all now go home", (21, "")),
        ("so we all now go home so we all", None),
        ("-" * 40, (1, "")),
        ("-" * 39, None),
        ("ha" * 20 + "!", (2, "!")),
        ("ha" * 20 + "h", (2, "")),
        ("", None),
        ("   ", None),
    ],
)
def test_what_is_a_loop(text: str, found: tuple[int, str] | None) -> None:
    assert loop_in(text) == found


@given(WORDS, WORDS, WORDS)
def test_what_is_cut_is_a_beginning_and_the_rest(before: list[str], part: list[str], after: list[str]) -> None:
    text = " ".join([*before, *part * 5, *after])
    found = loop_in(text)
    assert found is not None
    end, rest = found
    assert 0 < end < len(text) and text.endswith(rest) and len(rest) < len(text) - end
    assert without_loop(text) == text[:end] + rest


@given(st.text(max_size=60))
def test_without_a_loop_a_text_stays_as_it_is(text: str) -> None:
    assume(loop_in(text) is None)
    assert without_loop(text) == text


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


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Copied %d of %d files to %s", ["%d", "%d", "%s"]),
        ("%1$s sent %2$d items", ["%1$s", "%2$d"]),
        ("%(count)d new, %(name)s", ["%(count)d", "%(name)s"]),
        ("100 % sure, 5% discount on all", []),
        ("Saved %5.2f MB", ["%5.2f"]),
        ("Hello {name}, page {0} of {}", ["{name}", "{0}", "{}"]),
        ("{n, number} and {x:.2f}", ["{n, number}", "{x:.2f}"]),
        ("in ${HOME} and {{ user.name }}", ["${HOME}", "{{ user.name }}"]),
        ('Click <a href="x">here</a><br/>', ['<a href="x">', "</a>", "<br/>"]),
        ("3 < 5 and 7 > 2, a<b", []),
        ("fish&nbsp;&amp; chips &#160; R&D", ["&nbsp;", "&amp;", "&#160;"]),
        ("Write to a@b.org or https://x.org/%20", []),
        ("&Datei, Be&enden & AT&T, Müller & Söhne, {0}&", ["&", "&", "{0}"]),
        ("A set {1, 2} of numbers", ["{1, 2}"]),
    ],
)
def test_placeholders(text: str, found: list[str]) -> None:
    assert sorted(span.of(text) for span in placeholders(text)) == sorted(found)


@pytest.mark.parametrize(
    ("source", "translation", "lost", "added"),
    [
        ("%d files in {dir}", "{dir}: %d Dateien", [], []),
        ("%d files in {dir}", "Dateien in {ordner}", [(0, "%d"), (12, "{dir}")], [(11, "{ordner}")]),
        ("%s and %s", "%s", [(7, "%s")], []),
        ("&Datei öffnen", "Open file", [(0, "&")], []),
    ],
)
def test_lost_and_added_placeholders(
    source: str, translation: str, lost: list[tuple[int, str]], added: list[tuple[int, str]]
) -> None:
    sides = zip(differing_placeholders(source, translation), (source, translation), strict=True)
    assert tuple([(span.start, span.of(text)) for span in spans] for spans, text in sides) == (lost, added)
