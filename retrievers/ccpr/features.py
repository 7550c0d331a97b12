"""What tells a right hit from a wrong one: the search's scores, the way back to the source, and the letters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from anyascii import anyascii
from numpy.typing import NDArray

from rag_mt.base.types import Floats
from rag_mt.text.words import word_spans

Rows = NDArray[np.int32]

SEARCH_FEATURES = ("score", "margin", "lead", "share")
BACK_FEATURES = ("back first", "back rival", "back margin")
STRING_FEATURES = (
    "length ratio",
    "length gap",
    "words",
    "query digits",
    "hit digits alone",
    "query name",
    "hit name",
    "alike",
    "names alike",
    "names unlike",
    "query name unlike",
    "hit name unlike",
)
CHANCE = "chance"
FEATURES = (*SEARCH_FEATURES, *BACK_FEATURES, *STRING_FEATURES, "names unlike, margin", CHANCE)

_NUMBER = re.compile(r"(?<!\d)\d{1,3}(?:[ \u00a0\u2009\u202f.,'’]\d{3})+(?!\d)(?:[.,]\d+)?|\d+(?:[.,:]\d+)*")
_NO_DIGIT = re.compile(r"\D")


def search_features(scores: Floats, surfaces: NDArray[np.int64]) -> dict[str, Floats]:
    """Features of the best hits from the `scores` (queries, k) of the best k, in descending order, and a number for
    the surface of each; a number below 0 says that there is no such hit.

    `score`; `margin`, how far it is above the best hit of another surface (all of the same: above the last one);
    `lead`, how far above the mean of the hits of other surfaces; `share` of the best surface among the hits.
    """
    there = surfaces >= 0
    best = np.where(there[:, 0], scores[:, 0], 0.0)
    other = there & (surfaces != surfaces[:, :1])
    none = ~other.any(axis=1)
    counted = np.where(there, scores, 0.0)
    last = np.where(there, scores, np.inf).min(axis=1, initial=np.inf)
    last = np.where(there[:, 0], last, 0.0)
    second = np.where(other, scores, -np.inf).max(axis=1, initial=-np.inf)
    mean = np.where(other, counted, 0.0).sum(axis=1) / np.maximum(other.sum(axis=1), 1)
    same = (there & ~other).sum(axis=1) / np.maximum(there.sum(axis=1), 1)
    made = {
        "score": best,
        "margin": best - np.where(none, last, second),
        "lead": best - np.where(none, last, mean),
        "share": same,
    }
    return {name: own.astype(np.float32) for name, own in made.items()}


def back_features(hits: Floats, asked: NDArray[np.int64], vectors: Floats, spans: Rows) -> dict[str, Floats]:
    """Features of searching a sentence for its hits: `hits` (queries, dimension) are vectors of the hits, `asked` the
    rows of the spans that were asked for among all spans of their sentence, `vectors` (spans, dimension) and `spans`
    (spans, 3) ordered by sentence.

    `back first`: whether the span that was asked for is the most similar one of all; `back rival` and `back margin`:
    how far it is above the best other one that overlaps it, and above the best one that does not (1 if there is none).
    """
    made = {name: np.ones(len(asked), np.float32) for name in BACK_FEATURES}
    texts = spans[:, 0]
    numbers = texts[asked]
    for number in np.unique(numbers).tolist():
        low, high = np.searchsorted(texts, [number, number + 1])
        mine = np.flatnonzero(numbers == number)
        scores = hits[mine] @ vectors[low:high].T
        rows = spans[asked[mine]]
        apart = (spans[None, low:high, 2] <= rows[:, 1:2]) | (spans[None, low:high, 1] >= rows[:, 2:])
        at = (np.arange(len(mine)), asked[mine] - low)
        own = scores[at]
        near = ~apart
        near[at] = False
        rival = np.where(near, scores, -np.inf).max(axis=1)
        away = np.where(apart, scores, -np.inf).max(axis=1)
        made["back first"][mine] = own >= np.maximum(rival, away)
        made["back rival"][mine] = np.minimum(own - rival, 1)
        made["back margin"][mine] = np.minimum(own - away, 1)
    return made


def string_features(
    queries: Sequence[tuple[str, int, int]], hits: Sequence[tuple[str, int, int]]
) -> tuple[dict[str, Floats], NDArray[np.bool_]]:
    """Features of the letters of queries and hits, each a text with start and end of the phrase; and whether the
    query has numbers that are not those of the hit.

    Lengths: log of hit characters per query character, its absolute value, and the query's words. Digits: whether the
    query has some, whether only the hit has. Names: whether a word inside the sentence, not at its start, has a
    capital; how alike the two are (see `likeness`); and products of these.
    """
    pairs = [(s[a:b], t[c:d]) for (s, a, b), (t, c, d) in zip(queries, hits, strict=True)]
    ratio = np.log([(len(h) + 1) / (len(q) + 1) for q, h in pairs])
    numbers = [(numbers_of(q), numbers_of(h)) for q, h in pairs]
    names = np.array([capitalised(*q) for q in queries], dtype=bool), np.array([capitalised(*h) for h in hits], bool)
    alike = np.array([likeness(q, h) for q, h in pairs])
    both = names[0] & names[1]
    made = {
        "length ratio": ratio,
        "length gap": np.abs(ratio),
        "words": [q.count(" ") + 1 for q, _ in pairs],
        "query digits": [bool(q) for q, _ in numbers],
        "hit digits alone": [bool(h) and not q for q, h in numbers],
        "query name": names[0],
        "hit name": names[1],
        "alike": alike,
        "names alike": both * alike,
        "names unlike": both * (1 - alike),
        "query name unlike": (names[0] & ~names[1]) * (1 - alike),
        "hit name unlike": (names[1] & ~names[0]) * (1 - alike),
    }
    unlike = np.array([bool(q) and q != h for q, h in numbers], dtype=bool)
    return {name: np.asarray(own, dtype=np.float32) for name, own in made.items()}, unlike


def joint_features(features: Mapping[str, Floats]) -> dict[str, Floats]:
    """Products of features of different kinds: the margin of a name that is answered by another one."""
    return {"names unlike, margin": features["names unlike"] * features["margin"]}


def numbers_of(phrase: str) -> list[str]:
    """The numbers in a phrase as sorted strings of ASCII digits: `20 000`, `20.000` and `20,000` are equal, and so are
    `12. Mai 2014` and `May 12, 2014`."""
    if not any(map(str.isdigit, phrase)):
        return []
    found = (_NO_DIGIT.sub("", match) for match in _NUMBER.findall(phrase))
    return sorted("".join(str(unicodedata.decimal(c)) for c in number) for number in found)


def capitalised(text: str, start: int, end: int) -> bool:
    """Whether a word between `start` and `end` begins with a capital and is not the first word of the text."""
    words = word_spans(text[start:end])[:, 0].tolist()
    first = not any(map(str.isalnum, text[:start]))
    return any(text[start + a].isupper() for a in (words[1:] if first else words))


def likeness(one: str, other: str) -> float:
    """How similar two phrases look, from 0 to 1, letter case, diacritics and script aside: twice the pairs of
    neighbouring letters that they share over those that they have (Dice; word edges count as letters)."""
    a, b = _letter_pairs(one), _letter_pairs(other)
    return 2 * len(a & b) / (len(a) + len(b)) if a and b else 0.0


@lru_cache(65536)
def _letter_pairs(phrase: str) -> frozenset[str]:
    plain = phrase if phrase.isascii() else anyascii(phrase)
    kept = "".join(c if c.isalnum() else "" if c in "'`\"" else " " for c in plain.casefold())
    return frozenset(word[n : n + 2] for word in (f"^{w}$" for w in kept.split()) for n in range(len(word) - 1))
