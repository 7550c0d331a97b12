"""Whether hints are right, their words against the reference's words that are aligned with the phrases they are for;
and the precision of the hints that would be shown against what they cover."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from simplemma import lemmatize

from prompts.builder import MAX_HINTS
from rag_mt.base.types import Floats
from rag_mt.text.words import surface, word_spans, word_texts
from retrievers.dense import best_apart
from retrievers.encoders.alignment import Links

WRONG, PARTLY, RIGHT, STRICT = range(4)
"""Verdicts, in ascending order. Strict: the very surface of the aligned span, letter case aside. Right: the same
content lemmas as the aligned words. Partly: at least half of the hint's content lemmas are among those."""

FUNCTION_SHARE = 0.04
FUNCTION_LEAST = 4
CASED = "de"
"""The language whose lemmas depend on letter case: `Haus`, but `haus` is a form of `hausen`."""
POSSESSIVE = ("'s", "’s", "'", "’")

LEVELS = tuple(n / 10 for n in range(1, 10))
COVERAGES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)

Line = dict[str, float | None]
"""Hints that are shown: `hints` per sentence, the shares of `sentences` that have any and of `content` words that lie
in the phrases they are for; and the shares of hints by verdict: `strict`, `right` (strict ones included), `partly` and
`wrong`, None where no hint is shown."""


def function_words(texts: Sequence[str]) -> frozenset[str]:
    """The casefolded words that occur more than FUNCTION_SHARE times per text: they carry little content.

    The too frequent words of phrase extraction are no measure of that: they are counted in training data, where
    `password` and `country` are among them.
    """
    counts = Counter(word.casefold() for text in texts for word in word_texts(text))
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
        words = word_texts(phrase), [reference[a:b] for a, b in aligned.tolist()]
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


@dataclass(frozen=True)
class Judged:
    """Possible hints (n,) of some sentences: `spans` int32 (n, 3) sentence number, start, end, ordered by sentence;
    their `verdicts`; the number of content words that each covers, `covered`; and how many `sentences` and how many
    content words, `content`, there are."""

    spans: NDArray[np.int32]
    verdicts: NDArray[np.int8]
    covered: NDArray[np.int64]
    sentences: int
    content: int


def joined(parts: Sequence[Judged]) -> Judged:
    """Several sets of sentences as one."""
    firsts = np.cumsum([0, *(part.sentences for part in parts)]).tolist()
    shifts = [np.array([first, 0, 0], np.int32) for first in firsts[:-1]]
    return Judged(
        np.concatenate([part.spans + shift for part, shift in zip(parts, shifts, strict=True)]),
        np.concatenate([part.verdicts for part in parts]),
        np.concatenate([part.covered for part in parts]),
        firsts[-1],
        sum(part.content for part in parts),
    )


def shown(judged: Judged, trust: Floats) -> NDArray[np.int64]:
    """The rows of the hints that are left when of overlapping ones the most trusted is taken, most trusted first.

    What a cut-off leaves of them is what would be shown with it, as a hint only gives way to more trusted ones. Hints
    with a trust of 0 are never shown.
    """
    bounds = np.searchsorted(judged.spans[:, 0], np.arange(judged.sentences + 1)).tolist()
    apart = [np.zeros(0, np.int64)]
    for low, high in pairwise(bounds):
        own = low + np.flatnonzero(trust[low:high] != 0)
        apart.append(own[best_apart(judged.spans[own, 1], judged.spans[own, 2], trust[own], MAX_HINTS)])
    rows = np.concatenate(apart)
    return rows[np.argsort(-trust[rows], kind="stable")]


def line(judged: Judged, rows: NDArray[np.int64]) -> Line:
    """What those hints come to."""
    verdicts = judged.verdicts[rows]
    kinds = {"strict": verdicts == STRICT, "right": verdicts >= RIGHT, "partly": verdicts == PARTLY}
    kinds["wrong"] = verdicts == WRONG
    return {
        "hints": len(rows) / max(judged.sentences, 1),
        "sentences": len(np.unique(judged.spans[rows, 0])) / max(judged.sentences, 1),
        "content": float(judged.covered[rows].sum()) / max(judged.content, 1),
        **{name: float(np.mean(which)) if len(rows) else None for name, which in kinds.items()},
    }


def by_level(judged: Judged, trust: Floats, levels: Sequence[float]) -> list[Line | None]:
    """What hints of at least each level of trust come to."""
    rows = shown(judged, trust)
    ends = np.searchsorted(-trust[rows], [-level for level in levels], side="right").tolist()
    return [line(judged, rows[:end]) for end in ends]


def by_coverage(judged: Judged, trust: Floats, coverages: Sequence[float]) -> list[Line | None]:
    """What the most trusted hints come to that cover these shares of the content words; None where all cover less."""
    rows = shown(judged, trust)
    reached = np.cumsum(judged.covered[rows]) / max(judged.content, 1)
    ends = (np.searchsorted(reached, coverages) + 1).tolist()
    return [line(judged, rows[:end]) if end <= len(rows) else None for end in ends]
