"""Further candidates of a phrase search: phrases that stand in the same sentences and belong to no pair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import combinations, pairwise
from zlib import crc32

from finetune.xpr.sentences import LONGER_BY, Place
from rag_mt.base.types import Sentence
from rag_mt.text.words import word_spans

MAX_WORDS, RUN_WORDS = 4, 3
SENTENCES = 12_000
FREQUENT = 150
"""A run of words that begins or ends with one of so many most frequent words is no phrase (`of the`)."""
_KEPT_OF = 2
"""Of runs of words that no lexicon has, one in so many is looked at: there are far more than are wanted."""


def other_phrases(
    sentences: Sequence[Sentence],
    rows: Iterable[int],
    lexicon: Collection[str],
    taken: Collection[str],
    wanted: int,
    most: int,
    foreign: Collection[str] = (),
) -> dict[str, list[Place]]:
    """Up to `wanted` phrases that occur in the sentences `rows`, with up to `most` places each, by what they say.

    First come those in `lexicon`, then runs of up to three words. `lexicon` and `taken` hold surfaces (see
    `rag_mt.text.words.surface`); a phrase in `taken` is left out, and so is a run of words around one, which says
    almost the same; of those in `foreign` only they themselves are. Words of a phrase have nothing but a blank between
    them. At most `SENTENCES` sentences are looked through.
    """
    listed: dict[str, list[Place]] = {}
    runs: dict[str, list[Place]] = {}
    split = [(row, word_spans(sentences[row].text).tolist()) for row in _spread(list(rows), SENTENCES)]
    frequent = _frequent(sentences[row].text.casefold()[a:b] for row, spans in split for a, b in spans)
    for row, spans in split:
        text = sentences[row].text
        words = [text[a:b].casefold() for a, b in spans]
        plain = [len(w) > 1 and not any(map(str.isdigit, w)) for w in words]
        joined = [text[a[1] : b[0]] == " " for a, b in pairwise(spans)]
        for first in range(len(spans)):
            inside = False
            for last in range(first, min(first + MAX_WORDS, len(spans))):
                if not plain[last] or (last > first and not joined[last - 1]):
                    break
                said = " ".join(words[first : last + 1])
                if said in taken:
                    inside = True
                elif said in foreign:
                    continue
                elif said in lexicon:
                    _add(listed, said, text, (row, spans[first][0], spans[last][1]), most)
                elif not inside and last - first < RUN_WORDS and crc32(said.encode()) % _KEPT_OF == 0:
                    edges = words[first] in frequent or words[last] in frequent
                    if not edges and not _holds(words[first : last + 1], taken):
                        _add(runs, said, text, (row, spans[first][0], spans[last][1]), most)
    made = dict(sorted(listed.items(), key=_by_hash)[:wanted])
    made.update(sorted(runs.items(), key=_by_hash)[: wanted - len(made)])
    return made


def _spread(rows: list[int], count: int) -> list[int]:
    """At most `count` of the rows, evenly spread."""
    return rows if len(rows) <= count else [rows[n * len(rows) // count] for n in range(count)]


def _holds(words: Sequence[str], taken: Collection[str]) -> bool:
    """Whether a run of these words is in `taken`."""
    return any(" ".join(words[a:b]) in taken for a, b in combinations(range(len(words) + 1), 2))


def _add(found: dict[str, list[Place]], said: str, text: str, place: Place, most: int) -> None:
    """Remember a place: one per sentence, `most` in all, in sentences that are long enough."""
    places = found.get(said, [])
    if len(text) >= len(said) + LONGER_BY and len(places) < most and (not places or places[-1][0] != place[0]):
        found[said] = [*places, place]


def _frequent(words: Iterable[str]) -> frozenset[str]:
    return frozenset(word for word, _ in Counter(words).most_common(FREQUENT))


def _by_hash(item: tuple[str, list[Place]]) -> tuple[int, str]:
    return crc32(item[0].encode(), 1), item[0]
