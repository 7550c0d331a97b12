"""Texts to the terms that BM25 counts: words, casefolded, stemmed where there is a stemmer, in Latin letters.

A term is made of a word in three steps: `casefold`, the Snowball stemmer of the language (if it has one), and
transliteration, which also takes diacritics away. Latin letters at the end let names and numbers match across
languages (`Путина` and `Putin` both give `putin`), and diacritics that writers leave out do no harm.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import Stemmer
from anyascii import anyascii

from rag_mt.base.languages import base_code, language
from rag_mt.text.words import MARK, UNSPACED

_RUNS = re.compile(rf"(?P<unspaced>[{UNSPACED}]+)|(?:(?![{UNSPACED}_])\w|{MARK})+")
_LEAST_FOREIGN = 4
"""Letters of a word that is looked for in another language: shorter ones are mostly function words of the source that
happen to be spelled like a word of the target (`die`, `war`)."""
_KEPT, _LONGEST_KEPT = 1 << 20, 40
"""Words whose term is remembered, and their letters: together they bound the memory."""


def words_of(text: str) -> list[str]:
    """The words of a text for counting: runs of letters, digits and marks, divided at hyphens and apostrophes; in
    scripts without blanks pairs of neighbouring characters, or the character alone."""
    words: list[str] = []
    for match in _RUNS.finditer(text):
        if match["unspaced"] is None:
            words.append(match[0])
        else:
            run = match[0]
            words += [run[i : i + 2] for i in range(len(run) - 1)] or [run]
    return words


class Terms:
    """The terms of texts in one language; `stemmed` tells whether there is a stemmer for it."""

    def __init__(self, code: str) -> None:
        self.code = base_code(code)
        stemmer = _stemmer(self.code)
        self.stemmed = stemmer is not None
        self.stem: Callable[[str], str] = stemmer or str
        self._known: dict[str, str] = {}

    def of(self, text: str) -> list[str]:
        """The terms of a text in the order of its words."""
        known = self._known
        made = []
        for word in words_of(text):
            term = known.get(word)
            if term is None:
                if len(known) >= _KEPT:
                    known.clear()
                term = self.term(word)
                if len(word) <= _LONGEST_KEPT:
                    known[word] = term
            made.append(term)
        return made

    def term(self, word: str) -> str:
        """The term of one word."""
        return latin(self.stem(word.casefold()))

    def foreign(self, text: str, source: Terms) -> list[str]:
        """The terms of this language that words of a text in another one may stand for: numbers, and words of at least
        four letters as they are spelled, or as they are transliterated, with either language's endings cut off.

        This finds names, numbers, loan words and cognates, and nothing else. A term occurs once per word.
        """
        made: list[str] = []
        for word in words_of(text):
            if len(word) < _LEAST_FOREIGN and not any(c.isdigit() for c in word):
                continue
            plain, bare = word.casefold(), source.stem(word.casefold())
            spellings = (plain, latin(plain), bare, latin(bare))
            made += dict.fromkeys(latin(self.stem(spelling)) for spelling in spellings)
        return made


@lru_cache(64)
def terms_in(code: str) -> Terms:
    """The terms of a language, which remember the words they have seen."""
    return Terms(code)


def latin(word: str) -> str:
    """A casefolded word in plain Latin letters; in scripts without blanks, whose letters are syllables or words, as it
    is."""
    if word.isascii():
        return word
    if re.match(f"[{UNSPACED}]", word):
        return word
    return anyascii(word).casefold() or word


def _stemmer(code: str) -> Callable[[str], str] | None:
    """The Snowball stemmer of a language, or None where there is none."""
    name = language(code).name.casefold().split(" ")[0]
    if name not in Stemmer.algorithms():
        return None
    stem: Callable[[str], str] = Stemmer.Stemmer(name, 0).stemWord
    return stem
