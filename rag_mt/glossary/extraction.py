"""Proposes terms and their translations: from sentence pairs, whose runs of words occur together on both sides, or from
text with the phrases that a retriever finds for its phrases."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.files import SAMPLE_CORPUS
from rag_mt.base.languages import base_code
from rag_mt.base.types import Hint, Span
from rag_mt.glossary.forms import Forms, forms_in
from rag_mt.glossary.phrases import text_words
from rag_mt.text.splitting import split

LEAST_SHARE = 0.03
"""Share of a general text's sentences from which on a word counts as a function word."""
BASE = 0.1
"""The base form of a term is taken if it has at least this share of the most frequent spelling's occurrences."""
NESTED = 1.25
"""A run of words is a mere part of a longer one that stands wherever it does, up to so many times more often."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A term and its likely translation, both in their base forms or else as they are mostly written. `count` is the
    number of texts with the term. `score` (0 to 1) is, of pairs, the Dice coefficient of both: twice the pairs that
    have both over those that have one and those that have the other; of hints, the share of the term's confidence that
    the translation has. `example` is a pair with both, or sentences with one each."""

    term: str
    translation: str
    score: float
    count: int
    example: tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Run:
    """Words of a text that follow each other: their lemmas, and where they stand."""

    lemmas: tuple[str, ...]
    span: Span


class _Side:
    """The runs of words of one side's texts: `places[text]` are those of its runs that are frequent enough, their
    numbers by where they stand, and `numbers[text]` the numbers alone, ascending."""

    def __init__(self, texts: Sequence[str], code: str, longest: int, least: int) -> None:
        self.texts, self.code, self.longest = texts, code, longest
        self.forms = forms_in(code)
        words: Counter[str] = Counter()
        for text in texts:
            words.update(list(dict.fromkeys(lemma for run in _runs(text, self.forms, 1) for lemma in run.lemmas)))
        self.function_words = function_words(code) or {w for w, n in words.items() if n > LEAST_SHARE * len(texts)}
        self._frequent = {word for word, count in words.items() if count >= least}
        counts: Counter[tuple[str, ...]] = Counter()
        for text in texts:
            counts.update(list(dict.fromkeys(run.lemmas for run in self.runs(text))))
        self.lemmas = [lemmas for lemmas, count in counts.items() if count >= least]
        self.number = {lemmas: number for number, lemmas in enumerate(self.lemmas)}
        self.counts = np.array([counts[lemmas] for lemmas in self.lemmas], np.int64)
        self.places = [
            {run.span: self.number[run.lemmas] for run in self.runs(text) if run.lemmas in self.number}
            for text in texts
        ]
        self.numbers = [np.array(sorted(set(places.values())), np.int64) for places in self.places]

    def runs(self, text: str) -> Iterator[_Run]:
        """The runs of a text that may be terms: no function word at either end, and no rare word."""
        for run in _runs(text, self.forms, self.longest):
            ends = (run.lemmas[0], run.lemmas[-1])
            if all(end not in self.function_words and len(end) > 1 for end in ends) and self._frequent.issuperset(
                run.lemmas
            ):
                yield run

    def texts_with(self) -> list[NDArray[np.int64]]:
        """For each run the texts that have it."""
        texts: list[list[int]] = [[] for _ in self.lemmas]
        for text, numbers in enumerate(self.numbers):
            for number in numbers.tolist():
                texts[number].append(text)
        return [np.array(each, np.int64) for each in texts]

    def spelling(self, number: int, texts: Iterable[int]) -> str:
        """How a run is written most often in these texts."""
        spellings = Counter(
            span.of(self.texts[text]) for text in texts for span, found in self.places[text].items() if found == number
        )
        most = max(spellings, key=lambda s: (spellings[s], s.islower(), s))
        bases = [s for s in spellings if self.forms.fold(s) == " ".join(self.lemmas[number])]
        return max((s for s in bases if spellings[s] > BASE * spellings[most]), key=spellings.__getitem__, default=most)


def proposed_terms(
    pairs: Sequence[tuple[str, str]], source: str, target: str, *, longest: int = 4, least: int = 3, score: float = 0.4
) -> list[Proposal]:
    """Terms of up to `longest` words that at least `least` pairs have, with translations of at least that Dice
    coefficient; those that matter most first, by score and frequency. A translation belongs to the term that it goes
    with best, and a term that mostly stands within a longer one is left out."""
    pairs = list(dict.fromkeys(pairs))
    one, other = (
        _Side([pair[side] for pair in pairs], code, longest, least) for side, code in ((0, source), (1, target))
    )
    texts, best, partner = one.texts_with(), np.zeros(len(other.lemmas)), np.full(len(other.lemmas), -1)
    found: list[tuple[float, int, int]] = []
    nested = _nested(one)
    for number, own in enumerate(texts):
        if number in nested:
            continue
        numbers, together = np.unique(np.concatenate([other.numbers[text] for text in own]), return_counts=True)
        if not len(numbers):
            continue
        dice = 2 * together / (len(own) + other.counts[numbers])
        length = np.array([len(other.lemmas[n]) for n in numbers])
        first = np.lexsort((length, dice))[-1]  # of equal ones the longest
        found.append((float(dice[first]), number, int(numbers[first])))
        better = dice > best[numbers]
        best[numbers[better]], partner[numbers[better]] = dice[better], number
    proposals = []
    for dice_, number, translation in found:
        if dice_ < score or partner[translation] != number:
            continue
        both = [text for text in texts[number].tolist() if translation in other.numbers[text]]
        spellings = one.spelling(number, both), other.spelling(translation, both)
        if len(spellings[0]) > 1 and spellings[0].casefold() != spellings[1].casefold():
            shortest = min(both, key=lambda text: len(pairs[text][0]))
            proposals.append(Proposal(*spellings, dice_, len(texts[number]), pairs[shortest]))
    return _best_first(proposals)


def proposed_by_hints(
    texts: Sequence[str],
    hints: Sequence[Sequence[Hint]],
    source: str,
    target: str,
    *,
    longest: int = 4,
    least: int = 3,
    score: float = 0.4,
) -> list[Proposal]:
    """Terms that at least `least` texts have and hints (of each text its own) are found for, with the translation that
    most of the hints' confidence is for, if that is a share of at least `score`."""
    side, forms = _Side(texts, source, longest, least), forms_in(target)
    votes: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    spellings: dict[tuple[int, str], Counter[str]] = defaultdict(Counter)
    examples: dict[tuple[int, str], tuple[str, str]] = {}
    for text, places, own in zip(texts, side.places, hints, strict=True):
        for hint in own:
            number = places.get(hint.source_span)
            if number is None:
                continue
            lemmas = " ".join(lemma_of(word.text, forms) or word.text for word in text_words(hint.phrase))
            votes[number][lemmas] += max(0.0, hint.hit.score)
            spellings[number, lemmas][hint.phrase] += 1
            examples.setdefault((number, lemmas), (text, hint.context().text))
    counts, proposals = side.texts_with(), []
    for number, own_votes in votes.items():
        lemmas, best = max(own_votes.items(), key=lambda vote: (vote[1], vote[0]))
        share = best / (sum(own_votes.values()) or 1.0)
        if share >= score and lemmas:
            translation = max(sorted(spellings[number, lemmas].items()), key=lambda each: each[1])[0]
            term = side.spelling(number, counts[number].tolist())
            proposals.append(Proposal(term, translation, share, len(counts[number]), examples[number, lemmas]))
    return _best_first(proposals)


def _best_first(proposals: Iterable[Proposal]) -> list[Proposal]:
    return sorted(proposals, key=lambda p: (-p.score * np.log1p(p.count), p.term))


def _nested(side: _Side) -> set[int]:
    """The runs that mostly stand within a longer one."""
    nested = set()
    for number, lemmas in enumerate(side.lemmas):
        for part in (lemmas[1:], lemmas[:-1]):
            inner = side.number.get(part)
            if inner is not None and side.counts[inner] < NESTED * side.counts[number]:
                nested.add(inner)
    return nested


def _runs(text: str, forms: Forms, longest: int) -> Iterator[_Run]:
    """All runs of up to so many words that have letters and nothing but blanks and hyphens between them."""
    words = text_words(text)
    lemmas = [lemma_of(word.text, forms) for word in words]
    for first in range(len(words)):
        for last in range(first, min(first + longest, len(words))):
            if not lemmas[last] or (last > first and words[last].gap != " "):
                break
            yield _Run(tuple(lemmas[first : last + 1]), Span(words[first].span.start, words[last].span.end))


def lemma_of(word: str, forms: Forms) -> str:
    """One of a word's lemmas, always the same; an empty string where it has no letter."""
    if not any(map(str.isalpha, word)):
        return ""
    form = forms.form(word)
    return min(form.lemmas - {form.folded} or form.lemmas, key=lambda lemma: (len(lemma), lemma))


@cache
def function_words(code: str) -> frozenset[str]:
    """The lemmas that are frequent in any text: in the sample corpus, if it has the language."""
    path = SAMPLE_CORPUS / f"{base_code(code)}.txt"
    if not path.is_file():
        return frozenset()
    forms, text = forms_in(code), path.read_text(encoding="utf-8")
    spans = split(text, code)
    counts = Counter(
        lemma for span in spans for lemma in {lemma for run in _runs(span.of(text), forms, 1) for lemma in run.lemmas}
    )
    return frozenset(lemma for lemma, count in counts.items() if count > LEAST_SHARE * len(spans))
