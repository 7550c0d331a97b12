"""Wording: nothing is said twice, nothing is left in the source language."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import simplemma

from rag_mt.base.files import read_toml
from rag_mt.base.languages import base_code
from rag_mt.text.answers import loop_in

FEWEST_WORDS = 4
"""Words of a text that may be told to be in another language."""
SHARED = 0.25
"""Share of the words of a text in the language of its source that stand in the source too. Dictionaries, of 100 MB and
more, are only loaded to look at such texts."""
FEWEST_COPIED = 5
"""Words of a run of the source that a translation copies."""
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_PLAIN_WORD = re.compile(r"(?<![\w/.:@_-])[^\W\d_]+(?:['’-][^\W\d_]+)*(?![\w/@_])")
"""A word that is no part of a path, an address or a name of code."""
_TWICE = re.compile(r"(?<![\w'’-])([^\W\d_]{2,})\s+\1(?![\w'’-])", re.IGNORECASE)
_CLAUSE = re.compile(r",\s+(?:\w+\s+)?$")
"""The beginning of a clause, with a preposition perhaps."""
REACH = 20
"""Characters before a word in which a clause may begin."""
_LANGUAGES = frozenset(simplemma.strategies.dictionaries.dictionary_factory.SUPPORTED_LANGUAGES)

TWICE_FILE = Path(__file__).with_name("said_twice.toml")


def repeated_words(source: str, target: str, language: str) -> list[str]:
    """Words that stand twice in a row in the translation, where no word of the source does and the language says them
    once; else the last word of a loop."""
    right = _said_twice(base_code(language))
    doubled = []
    for match in _TWICE.finditer(target):
        word, before = match[1].casefold(), _CLAUSE.search(target, max(0, match.start() - REACH), match.start())
        if word not in right and not (before and f", {word}" in right):
            doubled.append(match[1])
    if doubled and not _TWICE.search(source):
        return doubled
    return target.split()[-1:] if loop_in(target) and not loop_in(source) else []


@lru_cache(64)
def _said_twice(code: str) -> frozenset[str]:
    return frozenset(read_toml(TWICE_FILE, "table of words", TWICE_FILE.name).get(code, ()))


def is_untranslated(source: str, target: str, source_language: str, target_language: str) -> bool:
    """Whether the translation is the source, or in its language: SHARED of its words stand in the source, and more than
    twice as many are known only there as are known only in the target language."""
    words = _WORD.findall(target)
    lower = [word for word in words if not word[0].isupper()]
    if len(words) < FEWEST_WORDS:
        return False
    if " ".join(source.casefold().split()) == " ".join(target.casefold().split()):
        return len(lower) >= 2
    codes = base_code(source_language), base_code(target_language)
    if not set(codes) <= _LANGUAGES or len(lower) < FEWEST_WORDS:
        return False
    own = set(_WORD.findall(source.casefold()))
    if sum(word in own for word in lower) < SHARED * len(lower):
        return False
    there = sum(_is_only_of(word, *codes) for word in lower)
    here = sum(_is_only_of(word, *reversed(codes)) for word in lower)
    return there > max(1, 2 * here)


def copied_run(source: str, target: str, source_language: str, target_language: str) -> str:
    """The first run of FEWEST_COPIED words of the source that its translation copies and that are no names or code:
    most are known in the source language and not in the target language. Empty if there is none, or if the languages'
    words are not known."""
    codes = base_code(source_language), base_code(target_language)
    if not set(codes) <= _LANGUAGES:
        return ""
    own, other = _PLAIN_WORD.findall(source), _PLAIN_WORD.findall(target)
    runs = {tuple(own[n : n + FEWEST_COPIED]) for n in range(len(own) - FEWEST_COPIED + 1)}
    for n in range(len(other) - FEWEST_COPIED + 1):
        run = tuple(other[n : n + FEWEST_COPIED])
        if run in runs and sum(_is_only_of(word, *codes) for word in run) > FEWEST_COPIED // 2:
            return " ".join(run)
    return ""


@lru_cache(1 << 14)
def _is_only_of(word: str, code: str, other: str) -> bool:
    """Whether a word in lower case is known in a language and not in another one."""
    return word.islower() and simplemma.is_known(word, lang=code) and not simplemma.is_known(word, lang=other)
