"""Where terms occur in a text: an index of their words, walked once per sentence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from rag_mt.base.terms import Term, TermMatch
from rag_mt.base.types import Span
from rag_mt.glossary.compounds import LEAST_PART, compound_parts
from rag_mt.glossary.forms import LEMMA, TermWord, forms_in
from rag_mt.glossary.phrases import Phrase, Word, phrase_of, phrase_span, text_words, without_overlaps

_REMEMBERED, _LONGEST = 1 << 16, 40
"""Words of texts whose likenesses are remembered, and their letters."""


@dataclass(slots=True)
class _Node:
    """A beginning of terms: what it goes on with, by gap and number of the word, and the terms that end here."""

    following: dict[tuple[str, int], _Node] = field(default_factory=dict)
    ending: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Found:
    """A term, by number, at a span. `likeness` is the sum over its words."""

    number: int
    span: Span
    likeness: int
    in_compound: bool = False


class Finder:
    """Finds the terms of one language. Texts and terms meet in the terms' different words, which are numbered: a word
    of a text is like few of them, and that is remembered, so that the number of terms hardly matters."""

    def __init__(self, terms: Sequence[Term], code: str) -> None:
        self.terms = terms
        self._forms = forms_in(code)
        self._phrases: list[Phrase] = []
        self._words: list[TermWord] = []
        self._by_key: dict[str, list[int]] = defaultdict(list)
        self._single: dict[int, list[int]] = defaultdict(list)  # terms of one word that can be a part of a compound
        self._root = _Node()
        numbers: dict[TermWord, int] = {}
        for number, term in enumerate(terms):
            phrase = phrase_of(term.source)
            words = self._forms.term_words(phrase.words, term.case_sensitive)
            self._phrases.append(phrase)
            self._add(number, [self._number(word, numbers) for word in words])
        self._alike = lru_cache(_REMEMBERED)(self._words_like)
        self._parts = lru_cache(_REMEMBERED)(self._compound_terms)

    def matches(self, text: str) -> tuple[TermMatch, ...]:
        """The terms in a text, in order and without overlaps: of overlapping ones the longest wins, then the one that
        is no part of a compound, then the one that is most like the text, then the first of the glossary."""
        found = [*self._whole(text), *self._in_compounds(text)]
        found.sort(key=lambda f: (-len(f.span), f.in_compound, -f.likeness, not self._cased(f), f.number, f.span.start))
        chosen = sorted(without_overlaps(found, lambda f: f.span, len(text)), key=lambda f: f.span)
        return tuple(TermMatch(self.terms[f.number], f.span, f.in_compound) for f in chosen)

    def _number(self, word: TermWord, numbers: dict[TermWord, int]) -> int:
        """The number of a term's word; a new word gets the next one."""
        if word not in numbers:
            numbers[word] = len(self._words)
            for key in self._forms.term_keys(word):
                self._by_key[key].append(len(self._words))
            self._words.append(word)
        return numbers[word]

    def _add(self, number: int, words: list[int]) -> None:
        phrase, node = self._phrases[number], self._root
        for gap, word in zip(phrase.gaps, words, strict=True):
            node = node.following.setdefault((gap, word), _Node())
        node.ending.append(number)
        if len(words) == 1 and not (phrase.lead or phrase.trail or self._words[words[0]].exact):
            self._single[words[0]].append(number)

    def _cased(self, found: _Found) -> bool:
        return self.terms[found.number].case_sensitive

    def _words_like(self, word: str) -> list[tuple[int, int]]:
        """The numbers of the terms' words that a word may be a form of, and how surely."""
        numbers = {n for key in self._forms.keys(word) for n in self._by_key.get(key, ())}
        likenesses = ((n, self._forms.likeness(self._words[n], word)) for n in sorted(numbers))
        return [(n, likeness) for n, likeness in likenesses if likeness]

    def _like(self, word: str) -> list[tuple[int, int]]:
        return self._alike(word) if len(word) <= _LONGEST else self._words_like(word)

    def _whole(self, text: str) -> Iterator[_Found]:
        """All terms in a text whose words are words of it."""
        words = text_words(text)
        like = [self._like(word.text) for word in words]
        for first, word in enumerate(words):
            beginnings = [(self._root, 0)]
            for last in range(first, len(words)):
                gap = words[last].gap if last > first else ""
                longer: list[tuple[_Node, int]] = []
                for node, sum_ in beginnings:
                    for number, likeness in like[last]:
                        if following := node.following.get((gap, number)):
                            longer.append((following, sum_ + likeness))
                            if following.ending:
                                yield from self._ending(text, word, words[last], following, sum_ + likeness)
                if not longer:
                    break
                beginnings = longer

    def _ending(self, text: str, first: Word, last: Word, node: _Node, likeness: int) -> Iterator[_Found]:
        for number in node.ending:
            if span := phrase_span(self._phrases[number], text, first.span, last.span):
                yield _Found(number, span, likeness)

    def _in_compounds(self, text: str) -> Iterator[_Found]:
        for word in text_words(text) if self._single else ():
            if len(word.text) <= _LONGEST:
                for number, start, end, likeness in self._parts(word.text):
                    span = Span(word.span.start + start, word.span.start + end)
                    yield _Found(number, span, likeness, in_compound=True)

    def _compound_terms(self, word: str) -> list[tuple[int, int, int, int]]:
        """The terms that are parts of a word: number, start and end in the word, likeness."""
        return [
            (number, part.start, part.end, likeness)
            for part in compound_parts(word, self._forms)
            for n, likeness in self._like(part.of(word))
            if is_part(self._words[n], part.of(word), likeness, part.head)
            for number in self._single.get(n, ())
        ]


def is_part(term: TermWord, part: str, likeness: int, head: bool) -> bool:
    """Whether a part of a compound is a term's word: a head may be inflected, a first part has its own form."""
    least = LEMMA if head else LEMMA + 1
    return len(term.text) >= LEAST_PART and likeness >= least and not term.exact
