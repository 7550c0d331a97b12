"""Codes and names of languages."""

from __future__ import annotations

import pytest

from rag_mt.base import languages
from rag_mt.base.errors import UserError
from rag_mt.base.languages import DIRECTIONS, LONGEST_NAME, _codes_by_name, base_code, language


@pytest.mark.parametrize(
    ("text", "code", "name", "native"),
    [
        ("de", "de", "German", "Deutsch"),
        ("German", "de", "German", "Deutsch"),
        ("deu", "de", "German", "Deutsch"),
        ("cs", "cs", "Czech", "Čeština"),
        ("fi", "fi", "Finnish", "Suomi"),
        ("RU", "ru", "Russian", "Русский"),
        ("ro", "ro", "Romanian", "Română"),
        ("tr", "tr", "Turkish", "Türkçe"),
        ("en", "en", "English", "English"),
        ("pt_BR", "pt-BR", "Portuguese (Brazil)", "Português (Brasil)"),
    ],
)
def test_known_languages(text: str, code: str, name: str, native: str) -> None:
    found = language(text)
    assert (found.code, found.name, found.native) == (code, name, native)


def test_writing_direction() -> None:
    assert language("ar").right_to_left
    assert not language("de").right_to_left


@pytest.mark.parametrize(
    ("text", "told"),
    [("xx", "'xx'"), ("", "''"), ("gremany", r"`de` \(German\)"), ("d/e", "'d/e'"), ("english-", "`en`")],
)
def test_unknown_languages_are_named(text: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        language(text)


def test_the_twelve_directions() -> None:
    assert len(set(DIRECTIONS)) == 12
    assert all("en" in pair for pair in DIRECTIONS)
    assert base_code("pt-BR") == "pt"


def test_what_clients_send_does_not_stay_in_memory() -> None:
    """Blanks around a name are no new name, a long text is none at all, and not all names are remembered."""
    size = _remembered()
    for blanks in range(50):
        assert language(" " * blanks + "en").code == "en"
        with pytest.raises(UserError, match=r"language of \d+ characters: expected a code such as en"):
            language("x" * (LONGEST_NAME + 1 + blanks))
    assert _remembered() <= size + 1
    assert languages._known.cache_info().maxsize is not None


def test_every_english_name_is_short_enough() -> None:
    assert max(map(len, _codes_by_name())) <= LONGEST_NAME


def _remembered() -> int:
    return languages._known.cache_info().currsize


@pytest.mark.parametrize(("name", "code"), [("Deutsch", "de"), ("čeština", "cs"), ("РУССКИЙ", "ru"), ("Türkçe", "tr")])
def test_languages_are_known_by_their_own_names(name: str, code: str) -> None:
    assert language(name).code == code
