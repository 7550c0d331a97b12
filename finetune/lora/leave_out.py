"""Which sentences of an index are (nearly) a given text, so that a search can go on as if they were not there."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rag_mt.base.console import progress
from rag_mt.formats.parallel import letters_and_digits
from rag_mt.text.words import word_spans

SHARED = 0.8
"""The share of the different words of the longer text from which on two texts are nearly equal."""
CONTAINED = 5
"""Words from which on a text that stands inside another one makes the two nearly equal."""

RULE = (
    f"equal letters and digits; or at least {SHARED:.0%} of the different words of the longer one in both; or all "
    f"words of the one, at least {CONTAINED}, in a row in the other"
)


@dataclass(frozen=True)
class _Text:
    """A text as it is compared: its letters and digits, its words with blanks around each, its different words."""

    letters: str
    line: str
    count: int
    words: frozenset[str]


def nearly_equal(one: str, other: str) -> bool:
    """Whether two texts are so alike that hints from the one give away the other (see `RULE`)."""
    return _alike(_read(one), _read(other))


def nearly_equal_sentences(
    targets: Sequence[str], sentences: Iterable[str], total: int | None = None
) -> list[list[int]]:
    """For each target the numbers of the sentences that are nearly equal to it, ascending; one pass over `sentences`.

    Two texts that share most words share one of the few rarest words of either, and a text inside another one has its
    rarest word there, so that only pairs with such a word in common are compared (prefix filtering: Chaudhuri, Ganti
    and Kaushik, 2006).
    """
    asked = [_read(text) for text in targets]
    counts = Counter(word for own in asked for word in own.words)
    having, rare, equal = (defaultdict[str, list[int]](list) for _ in range(3))
    for number, own in enumerate(asked):
        equal[own.letters].append(number)
        for word in own.words:
            having[word].append(number)
        for word in _rarest(own.words, counts):
            rare[word].append(number)
    found: list[list[int]] = [[] for _ in targets]
    bar = progress(total, "sentences", "looking for near-equal ones")
    for number, text in enumerate(sentences):
        own = _read(text)
        near = set(equal.get(own.letters, ()))
        for word in own.words:
            near.update(rare.get(word, ()))
        for word in _rarest(own.words, counts):
            near.update(having.get(word, ()))
        for target in near:
            if _alike(asked[target], own):
                found[target].append(number)
        bar.update()
    bar.close()
    return found


def _read(text: str) -> _Text:
    folded = text.casefold()
    words = [folded[a:b] for a, b in word_spans(folded).tolist()]
    return _Text(letters_and_digits(text), f" {' '.join(words)} ", len(words), frozenset(words))


def _alike(one: _Text, other: _Text) -> bool:
    longer = max(len(one.words), len(other.words))
    if one.letters == other.letters or (longer and len(one.words & other.words) >= SHARED * longer):
        return True
    short, long = (one, other) if one.count <= other.count else (other, one)
    return short.count >= CONTAINED and short.line in long.line


def _rarest(words: frozenset[str], counts: Counter[str]) -> list[str]:
    """So many of the rarest words of a text that whoever shares enough of its words has one of them."""
    order = sorted(words, key=lambda word: (counts[word], word))
    return order[: len(order) - math.ceil(SHARED * len(order)) + 1]
