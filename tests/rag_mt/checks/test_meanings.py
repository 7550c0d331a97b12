"""Words of two languages that share a meaning."""

from __future__ import annotations

import pytest

from rag_mt.checks import meanings
from rag_mt.checks.meanings import LETTERS, as_table, beginnings, count_shared, has_meanings


@pytest.mark.parametrize(
    ("one", "language", "other", "other_language"),
    [
        ("The house", "en", "Das Haus", "de"),
        ("dům", "cs", "houses", "en-GB"),
        ("Hän osti talon.", "fi", "Ein Haus", "de"),
        ("ДОМ", "ru", "house", "en"),
        ("o casă", "ro", "house", "en"),
        ("evi", "tr", "house", "en"),
    ],
)
def test_translations_share_a_meaning(one: str, language: str, other: str, other_language: str) -> None:
    words, others = meanings.meanings(one, language), meanings.meanings(other, other_language)
    assert count_shared(words, others) >= 1
    assert count_shared(words, meanings.meanings("water", "en")) == 0


def test_what_is_not_known_has_no_meaning() -> None:
    assert meanings.meanings("dom", "pl") == [] and not has_meanings("pl")
    assert has_meanings("de-AT") and meanings.meanings("Xyzzyx 12 a", "de") == []
    assert count_shared([], [frozenset({"house"})]) == count_shared([frozenset({"house"})], []) == 0


def test_words_are_known_by_their_first_letters() -> None:
    assert beginnings("Die Übersetzung von 12 e-Büchern") == ["die", "übers", "von", "büche"]


def test_every_row_has_an_english_word_and_a_translation() -> None:
    text = meanings.FILE.read_text(encoding="utf-8")
    head, *rows = (line.split("\t") for line in text.splitlines())
    assert all(len(row) == len(head) and row[0] and any(row[1:]) for row in rows)
    words = [row[0] for row in rows]
    assert (
        words == sorted(set(words))
        and max(len(word) for row in rows for cell in row for word in cell.split()) == LETTERS
    )
    pairs = {code: {row[0]: row[n].split() for row in rows} for n, code in enumerate(head) if n}
    assert as_table(pairs) == text
