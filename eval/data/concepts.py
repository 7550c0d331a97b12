"""What phrases are about: the forms by which pairs are split, and by which an evaluation draws them."""

from __future__ import annotations

from functools import lru_cache

from simplemma import lemmatize
from simplemma.strategies.dictionaries.dictionary_factory import SUPPORTED_LANGUAGES

_ARTICLES = frozenset(("a", "an", "the"))


@lru_cache(1 << 16)
def concept(english: str) -> str:
    """What an English phrase is about, for splitting: its words' base forms without articles, so that `a wheel hub` and
    `wheel hubs` are one."""
    words = [w for w in english.casefold().split() if w not in _ARTICLES] or [english.casefold()]
    return base_form(" ".join(words), "en")


@lru_cache(1 << 18)
def base_form(phrase: str, language: str) -> str:
    """The base forms of a phrase's words as they are written (`Häuser`), in small letters; the words themselves in
    languages whose forms are not known here."""
    if language not in SUPPORTED_LANGUAGES:
        return phrase.casefold()
    return " ".join(lemmatize(word, lang=language).casefold() for word in phrase.split())
