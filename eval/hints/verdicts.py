"""Whether a hint is right: its words against the reference's words that are aligned with the phrase it is for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from simplemma import lemmatize

from rag_mt.text.words import surface, word_spans
from retrievers.encoders.alignment import Links

WRONG, PARTLY, RIGHT, STRICT = range(4)
"""Verdicts, in ascending order. Strict: the very surface of the aligned span, letter case aside. Right: the same
content lemmas as the aligned words. Partly: at least half of the hint's content lemmas are among those."""

FUNCTION_SHARE = 0.04
FUNCTION_LEAST = 4
CASED = "de"
"""The language whose lemmas depend on letter case: `Haus`, but `haus` is a form of `hausen`."""
POSSESSIVE = ("'s", "’s", "'", "’")


def words_of(text: str) -> list[str]:
    """The words of a text."""
    return [text[a:b] for a, b in word_spans(text).tolist()]


def function_words(texts: Sequence[str]) -> frozenset[str]:
    """The casefolded words that occur more than FUNCTION_SHARE times per text: they carry little content.

    The too frequent words of phrase extraction are no measure of that: they are counted in training data, where
    `password` and `country` are among them.
    """
    counts = Counter(word.casefold() for text in texts for word in words_of(text))
    return frozenset(word for word, n in counts.items() if n > FUNCTION_SHARE * len(texts) and n >= FUNCTION_LEAST)


class Judge:
    """Judges hints in a target language, in which the `function` words are no content."""

    def __init__(self, language: str, function: frozenset[str]) -> None:
        self.language, self.function = language, function

    def lemmas(self, words: Iterable[str]) -> frozenset[str]:
        """The casefolded lemmas of words."""
        return frozenset(lemma(word, self.language) for word in words)

    def verdict(self, phrase: str, reference: str, aligned: NDArray[np.int32]) -> int:
        """The verdict on a phrase, where `aligned` (n, 2) are the characters of the reference's words, in order, that
        are aligned with what the phrase is for. Without any the phrase is wrong. Where neither side has content words
        all words must be equal."""
        if not len(aligned):
            return WRONG
        if surface(phrase) == surface(reference[aligned[0, 0] : aligned[-1, 1]]):
            return STRICT
        words = words_of(phrase), [reference[a:b] for a, b in aligned.tolist()]
        ours, theirs = (self.lemmas(w for w in side if w.casefold() not in self.function) for side in words)
        if not ours and not theirs:
            return RIGHT if self.lemmas(words[0]) == self.lemmas(words[1]) else WRONG
        if ours == theirs:
            return RIGHT
        return PARTLY if ours and 2 * len(ours & theirs) >= len(ours) else WRONG

    def verdicts(
        self, source: str, reference: str, links: Links, spans: NDArray[np.int32], phrases: Sequence[str]
    ) -> NDArray[np.int8]:
        """The verdicts (n,) on `phrases` as hints for `spans` of the source, (n, 2) characters of whole words."""
        sources, targets = word_spans(source), word_spans(reference)
        firsts = np.searchsorted(sources[:, 0], spans[:, 0])
        ends = np.searchsorted(sources[:, 1], spans[:, 1], side="right")
        inside = [links[(links[:, 0] >= low) & (links[:, 0] < high), 1] for low, high in zip(firsts, ends, strict=True)]
        aligned = [targets[np.unique(words)] for words in inside]
        verdicts = [self.verdict(phrase, reference, own) for phrase, own in zip(phrases, aligned, strict=True)]
        return np.array(verdicts, np.int8)


@lru_cache(1 << 17)
def lemma(word: str, language: str) -> str:
    """The casefolded lemma of a word; raises ValueError for a language without a word list."""
    for ending in POSSESSIVE:
        if word.endswith(ending) and len(word) > len(ending):
            word = word.removesuffix(ending)
            break
    return lemmatize(word if language == CASED else word.casefold(), lang=language).casefold()
