"""Terms: tables of known words, and what must hold for any text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_mt.text.words import terms_in, words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Well-known O'Neill, 3.5 %", ["Well", "known", "O", "Neill", "3", "5"]),
        ("snake_case", ["snake", "case"]),
        ("Stra\u0301ße", ["Stra\u0301ße"]),
        ("我爱北京", ["我爱", "爱北", "北京"]),
        ("京 AB", ["京", "AB"]),
        (" ... ", []),
    ],
)
def test_words(text, words):
    assert words_of(text) == words


@pytest.mark.parametrize(
    ("code", "one", "other"),
    [
        ("en", "connections", "Connected"),
        ("de", "Häuser", "HAUSERN"),
        ("ru", "Путина", "Путин"),
        ("ro", "străzile", "strazile"),
        ("tr", "kitapları", "kitap"),
        ("fi", "talossa", "talo"),
        ("cs", "městech", "městem"),
    ],
)
def test_forms_of_a_word_are_one_term(code, one, other):
    assert terms_in(code).of(one) == terms_in(code).of(other)


def test_languages_with_and_without_a_stemmer():
    assert all(terms_in(code).stemmed for code in ("en", "de", "cs", "fi", "ru", "ro", "tr", "nb", "pt-BR"))
    assert not terms_in("zh").stemmed
    assert terms_in("zh").of("北京") == ["北京"]


def test_foreign_words_are_names_numbers_and_cognates():
    english, russian = terms_in("en"), terms_in("ru")
    found = english.foreign("Путина и 3 протеста в Лондоне", russian)
    assert {"putin", "3", *english.of("protests London")} <= set(found)
    assert not {"i", "v"} & set(found)


@given(st.text())
def test_words_stand_in_the_text_and_terms_are_not_empty(text):
    assert all(word in text for word in words_of(text))
    for code in ("de", "ru", "zh"):
        terms = terms_in(code).of(text)
        assert len(terms) == len(words_of(text))
        assert terms == terms_in(code).of(text)
        assert all(terms)


def test_long_words_are_not_remembered():
    terms = terms_in("en")
    size = terms._remembered_term.cache_info().currsize
    assert terms.of("x" * 100_000) == ["x" * 100_000]
    assert terms._remembered_term.cache_info().currsize == size
