"""Sentences: none is lost, none is added, told by their number, their lengths, marks, names and words.

A translation that has a sentence less than its source may lack one, or may have two in one. Both are tried: the
sentences are aligned in order, at the lowest cost, once with one of the source left over and once with two of it for
one (after Gale and Church 1993, "A program for aligning sentences in bilingual corpora"). By how much the first costs
less, and by how much the text is shorter than expected, says which it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, inf

from rag_mt.checks.amounts import expected_length, length_off
from rag_mt.checks.meanings import Meanings, count_shared, has_meanings, meanings
from rag_mt.text.splitting import split

MOST_ALIGNED = 12
"""Sentences of a text up to which they are aligned: beyond, and where more than one is lost, only lengths count."""
OFF, MARK, STOP, COST, CHARACTERS = 2.5, 0.35, 0.73, 1.36, 0.017
"""What the length being off (as ln), a question mark or exclamation mark less (two at most), any mark that ends or
divides a sentence less (one at most), the lower cost of a lost sentence (MOST_COST at most) and a character less
(MOST_CHARACTERS at most) count. The last counts against a loss: in a long text, lengths differ more. Fitted by logistic
regression on training data of the development half with seeded losses, the costs below by a search."""
MOST_COST, MOST_CHARACTERS = 12.0, 60.0
NEEDED, NEEDED_WITHOUT_WORDS = 0.7, 1.3
"""From which sum on a sentence counts as lost, and where the words of one of the languages are not known: chosen on
development data."""
SPREAD, MOST_SPREAD = 9.5, 6.0
"""Variance of a sentence's length for each of its characters, and the highest cost of a length."""
QUESTION, OTHER_MARK, TWO = 3.0, 0.7, 2.0
"""Costs of a question for what is none, of another mark at the end, and of two sentences for two or one for two."""
UNDIVIDED, NEAR, NEAR_SHARE = 1.0, 4, 0.3
"""Cost of two sentences in one without a comma or the like between them, and how far from its place that may be: in
characters, and as a share of the first sentence."""
SHARED, MOST_SHARED = 3.0, 5
"""What each number and name is worth that both of two sentences have, and how many count."""
MEANT, NOT_MEANT = 0.25, 0.125
"""What each word of two sentences is worth that shares a meaning with one of the other (`rag_mt.checks.meanings`), and
what one costs that does not; words that are not known count for nothing."""
SENTENCES_APART, PER_SENTENCE, PER_MARK = 0.17, 0.1, 0.2
"""By lengths alone: how far the length must be off for a sentence more or less to count; more where a sentence is a
larger part of the text, less where question marks or exclamation marks are lost or added too (two at most)."""

_MARKS = re.compile(r"[?!？！؟]+")
_STOPS = re.compile(r"(?<![.!?…;:])[.!?…;:]+(?=[\s\"'”“»«)]|$)|\s[–—-]\s|\w—")
_CLAUSE = re.compile(r"[,;:…–—]\s*|\.{2,}\s*|\s-\s")
_TOKEN = re.compile(r"\d+|[^\W\d_]+")
_CLOSING = "\"'”“»«)’ "
NAME = 4
"""Letters of the shortest word with a capital that counts as a name, and letters by which names are compared."""


def sentences_off(source: str, target: str, source_language: str, target_language: str) -> int:
    """How many sentences more (less: below 0) than the source the translation has, where the rest says so too."""
    texts, languages = (source, target), (source_language, target_language)
    spans = [split(text, language) for text, language in zip(texts, languages, strict=True)]
    more = len(spans[1]) - len(spans[0])
    if not more:
        return 0
    sign = 1 if more > 0 else -1
    off = sign * length_off(*texts, *languages)
    marks = sign * _more(_MARKS, target, source, most=2)
    fewest = min(map(len, spans))
    if abs(more) > 1 or not 0 < fewest < MOST_ALIGNED:
        needed = SENTENCES_APART + PER_SENTENCE / max(1, fewest) - PER_MARK * marks
        return more if off > max(0.0, needed) else 0
    own, other = (
        [_Sentence.of(span.of(text), language) for span in of_text]
        for text, language, of_text in zip(texts, languages, spans, strict=True)
    )
    expected = expected_length(*languages)
    longer, shorter, ratio = (own, other, exp(expected)) if sign < 0 else (other, own, exp(-expected))
    lower = _cost(longer, shorter, ratio, lost=0) - _cost(longer, shorter, ratio, lost=1)
    score = OFF * off + MARK * marks + STOP * sign * _more(_STOPS, target, source, most=1)
    score += COST * max(-MOST_COST, min(MOST_COST, lower))
    characters = off * len(source if sign < 0 else target)
    score -= CHARACTERS * max(-MOST_CHARACTERS, min(MOST_CHARACTERS, characters))
    return more if score > (NEEDED if all(map(has_meanings, languages)) else NEEDED_WITHOUT_WORDS) else 0


def _more(pattern: re.Pattern[str], one: str, other: str, most: int) -> int:
    """How many matches more one text has than another, `most` at most both ways."""
    return max(-most, min(most, len(pattern.findall(one)) - len(pattern.findall(other))))


@dataclass(frozen=True, slots=True)
class _Sentence:
    """The length of a sentence in characters, its last mark (`.` for any but `?!:`), its numbers and names, where
    within it a clause begins, and what its words may mean."""

    length: int
    mark: str
    names: frozenset[str]
    clauses: tuple[int, ...] = ()
    words: tuple[Meanings, ...] = ()

    @classmethod
    def of(cls, text: str, language: str) -> _Sentence:
        text = text.strip()
        last = text.rstrip(_CLOSING)[-1:]
        tokens = _TOKEN.findall(text)
        names = (w for n, w in enumerate(tokens) if w.isdecimal() or (n and len(w) >= NAME and w[0].isupper()))
        clauses = tuple(match.end() for match in _CLAUSE.finditer(text))
        mark = last if last in "?!:" else "."
        words = tuple(meanings(text, language))
        return cls(len(text), mark, frozenset(name.casefold()[:NAME] for name in names), clauses, words)

    def __add__(self, other: _Sentence) -> _Sentence:
        words = self.words + other.words
        return _Sentence(self.length + 1 + other.length, other.mark, self.names | other.names, words=words)


def _cost(longer: Sequence[_Sentence], shorter: Sequence[_Sentence], ratio: float, lost: int) -> float:
    """The lowest cost of an alignment in order that leaves out `lost` (0 or 1) sentences of the longer text; `ratio` is
    how long the shorter one is expected to be for each character of it."""
    costs = {(0, 0, 0): 0.0}
    for i in range(len(longer) + 1):
        for j in range(len(shorter) + 1):
            for gone in range(lost + 1):
                begun = costs.get((i, j, gone), inf)
                for n, m, cost in _steps(longer[i : i + 2], shorter[j : j + 2], ratio) if begun < inf else ():
                    place = (i + n, j + m, gone)
                    costs[place] = min(costs.get(place, inf), begun + cost)
                if gone < lost and i < len(longer):
                    place = (i + 1, j, gone + 1)
                    costs[place] = min(costs.get(place, inf), begun)
    return costs.get((len(longer), len(shorter), lost), 5 * MOST_COST)


def _steps(own: Sequence[_Sentence], other: Sequence[_Sentence], ratio: float) -> Iterator[tuple[int, int, float]]:
    """How many sentences of both sides may come next as each other's translation, and at which cost."""
    if own and other:
        yield 1, 1, _apart(own[0], other[0], ratio)
    if len(own) == 2 and other:
        yield 2, 1, _apart(own[0] + own[1], other[0], ratio) + _undivided(own[0], other[0], ratio)
    if own and len(other) == 2:
        yield 1, 2, TWO + _apart(own[0], other[0] + other[1], ratio)
    if len(own) == len(other) == 2:
        yield 2, 2, TWO + _apart(own[0] + own[1], other[0] + other[1], ratio)


def _undivided(first: _Sentence, both: _Sentence, ratio: float) -> float:
    """What it costs that a sentence has no clause that begins where the second of the two that it translates would."""
    place = first.length * ratio
    return 0.0 if any(abs(at - place) <= NEAR + NEAR_SHARE * place for at in both.clauses) else UNDIVIDED


def _apart(own: _Sentence, other: _Sentence, ratio: float) -> float:
    """What it costs to take one sentence for the other's translation."""
    expected = own.length * ratio
    cost = min(MOST_SPREAD, (other.length - expected) ** 2 / (SPREAD * ((expected + other.length) / 2 + 5)))
    if own.mark != other.mark:
        cost += QUESTION if "?" in (own.mark, other.mark) else OTHER_MARK
    shared = count_shared(own.words, other.words) + count_shared(other.words, own.words)
    cost += NOT_MEANT * (len(own.words) + len(other.words) - shared) - MEANT * shared
    return cost - SHARED * min(MOST_SHARED, len(own.names & other.names))
