"""The forms of words: which word of a text may be a form of a term's word, by simplemma's dictionaries and rules, by
Snowball stems, and by the letters that both begin with."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from simplemma import is_known, lemmatize
from simplemma.strategies.dictionaries.dictionary_factory import SUPPORTED_LANGUAGES

from rag_mt.base.languages import base_code
from rag_mt.text.words import terms_in

NONE, STEM, LEMMA, EXACT = range(4)
"""How surely a word of a text is a form of a term's word, ascending: it is none, it begins alike, it has the same
lemma, it is the same but for letter case."""

_ALIASES = {"hr": "hbs", "bs": "hbs", "sr": "hbs", "sh": "hbs", "no": "nb"}
"""Languages whose words are in the dictionary of another code."""
_DOTTED_I = frozenset({"tr", "az"})
_REMEMBERED, _LONGEST = 1 << 16, 40
"""Words whose forms are remembered, and their letters: longer ones have only the form that is written."""
_LEAST_SHARED, _LEAST_SHARE = 4, 0.75
"""Letters, and share of the letters of a term's last word, that an inflected form begins with."""
_LONG_ENDINGS = {"ro": 6, "az": 10, "et": 10, "fi": 10, "hu": 10, "kk": 10, "tr": 10}
_ENDING = 4
"""Letters at most behind the beginning that is shared: languages with long endings put several one after another."""


@dataclass(frozen=True, slots=True)
class Form:
    """What is known of a word: itself and its possible lemmas without letter case (it is always one of them), its stem,
    and how many of its letters the lemmas of the dictionary begin with: `explained`, 0 for a word it does not have."""

    folded: str
    lemmas: frozenset[str]
    stem: str
    explained: int = 0


@dataclass(frozen=True, slots=True)
class TermWord:
    """A word of a term; `exact` words are abbreviations, `cased` ones belong to a case-sensitive term."""

    text: str
    form: Form
    exact: bool
    cased: bool


class Forms:
    """The words of one language, with a bounded memory of those that were asked for."""

    def __init__(self, code: str) -> None:
        self.code = base_code(code)
        name = _ALIASES.get(self.code, self.code)
        self._dictionary = name if name in SUPPORTED_LANGUAGES else ""
        self._stem = terms_in(self.code).stem
        self._remembered_form = lru_cache(_REMEMBERED)(self._form)

    def fold(self, word: str) -> str:
        """A word without letter case, composed; Turkish keeps its two letters i apart, Russian writes е for ё."""
        folded = self._small(unicodedata.normalize("NFC", word)).casefold()
        return folded.replace("ё", "е") if self.code == "ru" else folded

    def known(self, word: str) -> bool:
        """Whether a dictionary has the word in any form; false in languages without one."""
        return bool(self._dictionary) and len(word) <= _LONGEST and is_known(word, self._dictionary)

    def form(self, word: str) -> Form:
        """What is known of a word."""
        if len(word) <= _LONGEST:
            return self._remembered_form(word)
        folded = self.fold(word)
        return Form(folded, frozenset({folded}), folded)

    def term_words(self, words: Iterable[str], case_sensitive: bool = False) -> tuple[TermWord, ...]:
        """The words of a term. Those in capitals are abbreviations and match exactly (`IT`, `US`); a single capital
        letter does so where it is the whole term."""
        texts = [unicodedata.normalize("NFC", word) for word in words]
        return tuple(
            TermWord(text, self.form(text), text.isupper() and (len(text) > 1 or len(texts) == 1), case_sensitive)
            for text in texts
        )

    def term_keys(self, term: TermWord) -> frozenset[str]:
        """Keys of which a word of a text must have one to be like the term's word."""
        return frozenset({f"={term.text}"}) if term.exact else _keys(term.form)

    def keys(self, word: str) -> frozenset[str]:
        """The keys of a word of a text."""
        composed = unicodedata.normalize("NFC", word)
        return _keys(self.form(word)) | {f"={composed}", f"={composed.removesuffix('s')}"}

    def likeness(self, term: TermWord, word: str, loose: bool = False) -> int:
        """How surely a word of a text is a form of the term's word: NONE, STEM, LEMMA or EXACT. With `loose` it may
        just begin like it, as inflected forms do that no dictionary has."""
        composed = unicodedata.normalize("NFC", word)
        if term.exact:  # and the plural of an abbreviation: `PCs`
            return EXACT if composed == term.text else LEMMA if composed == term.text + "s" else NONE
        if term.cased and not _same_case(term.text, composed):
            return NONE
        form = self.form(word)
        if form.folded == term.form.folded:
            return EXACT
        if form.lemmas & term.form.lemmas:
            return LEMMA
        return STEM if _same_stem(term.form, form) or (loose and self._begins_alike(term.form, form)) else NONE

    def _form(self, word: str) -> Form:
        composed, folded = unicodedata.normalize("NFC", word), self.fold(word)
        stem = self._stem(folded)
        if not self._dictionary:
            return Form(folded, frozenset({folded}), stem)
        small = self._small(composed)
        # A capital at the beginning of a sentence hides `schnell` in `Schnellen`, capitals throughout hide all nouns.
        spellings = {composed, small, small.capitalize()} if composed.isupper() else {composed, small}
        lemmas = {self.fold(lemmatize(spelling, self._dictionary)) for spelling in spellings}
        # Some lemmas are forms themselves (Romanian `calculatoare`); some forms are lemmas of other words (`found`).
        further = {self.fold(lemmatize(lemma, self._dictionary)) for lemma in lemmas if lemma}
        lemmas |= {lemma for lemma in further if self._stem(lemma) == stem}
        known = any(is_known(spelling, self._dictionary) for spelling in spellings)
        explained = max(_shared(folded, lemma) for lemma in lemmas) if known else 0
        return Form(folded, frozenset({folded, *lemmas}), stem, explained)

    def _small(self, word: str) -> str:
        if self.code in _DOTTED_I:
            word = word.replace("İ", "i").replace("I", "ı")
        return word.lower()

    def _begins_alike(self, term: Form, form: Form) -> bool:
        shared, length = _shared(term.folded, form.folded), len(term.folded)
        longest = _LONG_ENDINGS.get(self.code, _ENDING)
        if shared < max(_LEAST_SHARED, _LEAST_SHARE * length) or len(form.folded) - shared > longest:
            return False
        return form.explained < shared + (shared == length)


@lru_cache(64)
def forms_in(code: str) -> Forms:
    """The forms of a language, which remember the words they have seen."""
    return Forms(code)


def _keys(form: Form) -> frozenset[str]:
    return form.lemmas | {f"~{form.stem}"}


def _same_stem(term: Form, form: Form) -> bool:
    """Whether both have one stem. A form can belong to two words of which the dictionary names one, so another lemma
    than the term's is no proof against the term unless it explains more letters of the word."""
    if term.stem != form.stem:
        return False
    return not form.explained or (form.folded.startswith(term.folded) and form.explained <= len(term.folded))


def _shared(one: str, other: str) -> int:
    """The number of characters that two words begin with."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _same_case(term: str, word: str) -> bool:
    """Whether the letters that both begin with are capitals and small letters alike."""
    for a, b in zip(term, word, strict=False):
        if a.casefold() != b.casefold():
            break
        if a != b:
            return False
    return True
