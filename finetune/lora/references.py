"""Sentences of an index compared with references: those that are nearly equal, which a search leaves out, and those
that have phrases of a reference, which make right hints."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from eval.data.phrase_pairs import Frequent, all_phrase_pairs
from finetune.lora.examples import Pair
from prompts.builder import MAX_HINTS
from rag_mt.base.console import progress
from rag_mt.base.types import Hint, Hit, Origin, Sentence, Span
from rag_mt.formats.parallel import letters_and_digits
from rag_mt.text.words import word_spans, word_texts
from retrievers.dense import longest_apart
from retrievers.encoders.alignment import Aligner

SHARED = 0.8
"""The share of the different words of the longer text from which on two texts are nearly equal."""
CONTAINED = 5
"""Words from which on a text that stands inside another one makes the two nearly equal."""

RULE = (
    f"equal letters and digits; or at least {SHARED:.0%} of the different words of the longer one in both; or all "
    f"words of the one, at least {CONTAINED}, in a row in the other"
)

MAX_WORDS = 3
FREQUENT = 0.005
"""The share of the index's sentences from which on a phrase has nothing to tell, as an article has not."""
FREQUENT_LEAST = 5
"""Sentences that a phrase may be in in any case."""
PLACES = 8
"""Sentences of the index that are remembered for a phrase."""

Phrase = tuple[str, ...]


class _Text(NamedTuple):
    """A text as it is compared: its letters and digits, its words with blanks around each, its different words."""

    letters: str
    line: str
    words: frozenset[str]


def nearly_equal(one: str, other: str) -> bool:
    """Whether two texts are so alike that hints from the one give away the other (see `RULE`)."""
    return _alike(_read(one), _read(other))


def nearly_equal_sentences(
    targets: Sequence[str], sentences: Iterable[str], total: int | None = None
) -> list[list[int]]:
    """For each target the numbers of the sentences that are nearly equal to it, ascending; one pass over `sentences`.

    Who shares most words of a target, or all, has one of its few rarest ones, and a target that holds all words of a
    sentence has the rarest of these, so that only pairs with such a word in common are compared (prefix filtering:
    Chaudhuri, Ganti and Kaushik, 2006).
    """
    texts = [_read(text) for text in targets]
    counts = Counter(word for text in texts for word in text.words)
    having, rare, equal = (defaultdict[str, list[int]](list) for _ in range(3))
    for target, text in enumerate(texts):
        equal[text.letters].append(target)
        for word in text.words:
            having[word].append(target)
        order = sorted(text.words, key=lambda word: (counts[word], word))
        for word in order[: len(order) - math.ceil(SHARED * len(order)) + 1]:
            rare[word].append(target)
    near: list[list[int]] = [[] for _ in targets]
    bar = progress(total, "sentences", "looking for near-equal ones")
    for number, text in enumerate(map(_read, sentences)):
        candidates = set(equal.get(text.letters, ()))
        for word in text.words:
            candidates.update(rare.get(word, ()))
        rarest = min(text.words, key=counts.__getitem__, default="")
        candidates.update(having.get(rarest, ()))
        for target in candidates:
            if _alike(texts[target], text):
                near[target].append(number)
        bar.update()
    bar.close()
    return near


def _read(text: str) -> _Text:
    words = word_texts(text.casefold())
    return _Text(letters_and_digits(text), f" {' '.join(words)} ", frozenset(words))


def _alike(one: _Text, other: _Text) -> bool:
    most = max(len(one.words), len(other.words))
    if one.letters == other.letters or (most and len(one.words & other.words) >= SHARED * most):
        return True
    short, long = (one, other) if len(one.line) <= len(other.line) else (other, one)
    return short.line.count(" ") > CONTAINED and short.line in long.line


def right_hints(
    pairs: Sequence[Pair], near: Sequence[Collection[int]], index: Iterable[str], aligner: Aligner
) -> list[tuple[Hint, ...]]:
    """For each pair, all with one target language, phrases of the target for the words of the source that they are
    aligned with, each where a sentence of the index has it; the longest that do not overlap, in source order.

    `near[i]` are the numbers of the index's sentences that do not count for pair i. Scores are 1.
    """
    if not pairs:
        return []
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    links = aligner.align(list(zip(sources, targets, strict=True)))
    aligned = all_phrase_pairs(sources, targets, links, Frequent(), MAX_WORDS)
    phrases = [
        [tuple(word.casefold() for word in word_texts(target[begin:end])) for _, _, begin, end in spans.tolist()]
        for target, spans in zip(targets, aligned, strict=True)
    ]
    places = _places({phrase for pair_phrases in phrases for phrase in pair_phrases}, index, pairs[0].target_language)
    hints = []
    for spans, pair_phrases, left_out in zip(aligned, phrases, near, strict=True):
        hits = [
            next((hit for hit in places.get(phrase, ()) if hit.sentence.source.line - 1 not in left_out), None)
            for phrase in pair_phrases
        ]
        rows = np.array([n for n, hit in enumerate(hits) if hit], np.int64)
        best = rows[longest_apart(spans[rows, 0], spans[rows, 1], MAX_HINTS)].tolist()
        hints.append(tuple(Hint(Span(*spans[n, :2].tolist()), hit) for n in best if (hit := hits[n])))
    return hints


def _places(phrases: Collection[Phrase], texts: Iterable[str], language: str) -> dict[Phrase, list[Hit]]:
    """For each phrase where up to `PLACES` sentences have it, without phrases that are in too many."""
    counts = Counter[Phrase]()
    places: dict[Phrase, list[Hit]] = defaultdict(list)
    number = 0
    for number, text in enumerate(texts, 1):
        spans = word_spans(text).tolist()
        words = [text[a:b].casefold() for a, b in spans]
        for first, (begin, _) in enumerate(spans):
            for last in range(first, min(first + MAX_WORDS, len(spans))):
                phrase = tuple(words[first : last + 1])
                if phrase in phrases:
                    counts[phrase] += 1
                    if counts[phrase] <= PLACES:
                        sentence = Sentence(text, language, Origin("", number))
                        places[phrase].append(Hit(sentence, Span(begin, spans[last][1]), 1.0))
    most = max(FREQUENT_LEAST, FREQUENT * number)
    return {phrase: hits for phrase, hits in places.items() if counts[phrase] <= most}
