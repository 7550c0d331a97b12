"""Terms that are proposed from pairs and from hints."""

from __future__ import annotations

import csv
import io
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_mt.base.types import Hint, Hit, Sentence, Span
from rag_mt.glossary.extraction import Proposal, function_words, proposed_by_hints, proposed_terms
from tests.test_hostile_inputs import hostile_texts

PAIRS = [
    ("Open the text document.", "Öffnen Sie das Textdokument."),
    ("Every text document has a password.", "Jedes Textdokument hat ein Kennwort."),
    ("A password protects the text document.", "Ein Kennwort schützt das Textdokument."),
    ("The password is wrong.", "Das Kennwort ist falsch."),
    ("Print the table.", "Drucken Sie die Tabelle."),
    ("The table is empty.", "Die Tabelle ist leer."),
    ("Delete the tables and the password.", "Löschen Sie die Tabellen und das Kennwort."),
]


def as_dict(proposals: list[Proposal]) -> dict[str, str]:
    return {p.term: p.translation for p in proposals}


def test_terms_and_translations_of_pairs() -> None:
    proposals = proposed_terms(PAIRS, "en", "de")
    assert as_dict(proposals) == {"password": "Kennwort", "text document": "Textdokument", "table": "Tabelle"}
    (password,) = (p for p in proposals if p.term == "password")
    assert (password.score, password.count) == (1.0, 4) and password.example in PAIRS


def test_inflected_forms_are_one_term_in_its_base_form() -> None:
    pairs = [("Die Tabellen sind leer.", "The tables are empty."), ("Zwei Tabellen", "Two tables")]
    pairs += [("Die Tabelle ist neu.", "The table is new."), ("Tabellen löschen", "Delete tables")]
    assert as_dict(proposed_terms(pairs, "de", "en")) == {"Tabelle": "table"}


def test_repeated_pairs_count_once() -> None:
    assert proposed_terms([PAIRS[0]] * 10, "en", "de") == []


@pytest.mark.parametrize("code", ["cs", "de", "en", "fi", "ro", "ru", "tr"])
def test_function_words_of_every_language(code: str) -> None:
    words = {"en": "the", "de": "und", "cs": "a", "fi": "olla", "ro": "și", "ru": "и", "tr": "bir"}
    assert words[code] in function_words(code) and 20 < len(function_words(code)) < 150


def test_the_order_of_pairs_does_not_matter() -> None:
    shuffled = random.Random(1).sample(PAIRS, len(PAIRS))
    one, other = (proposed_terms(pairs, "en", "de") for pairs in (PAIRS, shuffled))
    assert as_dict(one) == as_dict(other)


@given(st.lists(st.tuples(st.text("ab c.", max_size=12), st.text("xy z-", max_size=12)), max_size=30))
def test_proposals_of_any_pairs_are_sound(pairs: list[tuple[str, str]]) -> None:
    for p in proposed_terms(pairs, "en", "de", score=0.1):
        assert 0.1 <= p.score <= 1 and p.count >= 3 and p.example in pairs
        assert p.term.casefold() in " ".join(a.casefold() for a, _ in pairs)


def test_hostile_pairs_make_a_readable_table() -> None:
    texts = [text for text, _ in zip(hostile_texts(200), range(40), strict=False)]
    for p in proposed_terms([(t, t[::-1]) for t in texts] * 2, "en", "de", score=0.1):
        row = io.StringIO()
        csv.writer(row).writerow([p.term, p.translation])


def test_terms_of_hints() -> None:
    texts = [source for source, _ in PAIRS]

    def hint(text: str, term: str, line: str, phrase: str, score: float) -> Hint:
        at, there = text.index(term), line.index(phrase)
        hit = Hit(Sentence(line, "de"), Span(there, there + len(phrase)), score)
        return Hint(Span(at, at + len(term)), hit)

    hints = [[hint(t, "password", "Das Kennwort ist neu.", "Kennwort", 0.9)] if "password" in t else [] for t in texts]
    hints[3] = [hint(texts[3], "password", "Ein Passwort", "Passwort", 0.5)]
    (found,) = proposed_by_hints(texts, hints, "en", "de")
    assert (found.term, found.translation, found.count) == ("password", "Kennwort", 4)
    assert found.score == pytest.approx(2.7 / 3.2) and found.example[1] == "Das Kennwort ist neu."
    assert proposed_by_hints(texts, hints, "en", "de", score=0.9) == []
