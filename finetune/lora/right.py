"""Right hints for examples: phrases of the target that the index has in other sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from eval.data.phrase_pairs import Frequent, all_phrase_pairs
from finetune.lora.sample import Pair
from rag_mt.base.types import Hint, Hit, Origin, Sentence, Span
from rag_mt.text.words import word_spans
from retrievers.dense import MAX_HINTS, longest_apart
from retrievers.encoders.alignment import Aligner

MAX_WORDS = 3
FREQUENT = 0.005
"""The share of the index's sentences from which on a phrase has nothing to tell, as an article has not."""
FREQUENT_LEAST = 5
"""Sentences that a phrase may be in in any case."""
PLACES = 8
"""Sentences of the index that are remembered for a phrase."""

Phrase = tuple[str, ...]


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
        [_phrase(pair.target[c:d]) for _, _, c, d in own.tolist()] for pair, own in zip(pairs, aligned, strict=True)
    ]
    places = _places({phrase for own in phrases for phrase in own}, index)
    made = []
    for pair, spans, own, left_out in zip(pairs, aligned, phrases, near, strict=True):
        found = [next((p for p in places.get(phrase, ()) if p[0] not in left_out), None) for phrase in own]
        rows = np.array([n for n, place in enumerate(found) if place], np.int64)
        best = rows[longest_apart(spans[rows, 0], spans[rows, 1], MAX_HINTS)].tolist()
        hints = [(spans[n, :2].tolist(), found[n]) for n in best]
        made.append(tuple(Hint(Span(*span), _hit(place, pair.target_language)) for span, place in hints if place))
    return made


def _hit(place: tuple[int, str, int, int], language: str) -> Hit:
    number, text, start, end = place
    return Hit(Sentence(text, language, Origin("", number + 1)), Span(start, end), 1.0)


def _phrase(text: str) -> Phrase:
    return tuple(text[a:b].casefold() for a, b in word_spans(text).tolist())


def _places(phrases: Collection[Phrase], texts: Iterable[str]) -> dict[Phrase, list[tuple[int, str, int, int]]]:
    """For each phrase up to `PLACES` sentences with it (number, text, start, end), without those in too many."""
    begins: dict[str, set[int]] = defaultdict(set)
    for phrase in phrases:
        if phrase:
            begins[phrase[0]].add(len(phrase))
    counts: dict[Phrase, int] = defaultdict(int)
    made: dict[Phrase, list[tuple[int, str, int, int]]] = defaultdict(list)
    sentences = 0
    for number, text in enumerate(texts):
        sentences += 1
        spans = word_spans(text).tolist()
        words = [text[a:b].casefold() for a, b in spans]
        for n, word in enumerate(words):
            for length in begins.get(word, ()):
                phrase = tuple(words[n : n + length])
                if len(phrase) == length and phrase in phrases:
                    counts[phrase] += 1
                    if counts[phrase] <= PLACES:
                        made[phrase].append((number, text, spans[n][0], spans[n + length - 1][1]))
    most = max(FREQUENT_LEAST, FREQUENT * sentences)
    return {phrase: own for phrase, own in made.items() if counts[phrase] <= most}
