"""Further candidates of a phrase search: phrases that stand in the same sentences and belong to no pair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from zlib import crc32

from finetune.xpr_sentences import LONGER_BY, Place
from rag_mt.types import Sentence
from retrievers.words import surface, word_spans

MAX_WORDS = 4
FREQUENT = 150
"""A run of words that begins or ends with one of so many most frequent words is no phrase (`of the`)."""
_KEPT_OF = 4
"""Of runs of words that no lexicon has, one in so many is looked at: there are far more than are wanted."""


def other_phrases(
    sentences: Sequence[Sentence],
    rows: Iterable[int],
    lexicon: Collection[str],
    taken: Collection[str],
    wanted: int,
    most: int,
) -> dict[str, list[Place]]:
    """Up to `wanted` phrases that occur in the sentences `rows`, with up to `most` places each, by what they say.

    First come those in `lexicon`, then runs of up to three words. `lexicon` and `taken` hold surfaces (see
    `retrievers.words.surface`); a phrase in `taken` is left out, and so is a run of words around one, which says almost
    the same. Sentences are looked through in their order until there are enough phrases.
    """
    listed: dict[str, list[Place]] = {}
    runs: dict[str, list[Place]] = {}
    split = [(row, word_spans(sentences[row].text).tolist()) for row in rows]
    frequent = _frequent(sentences[row].text.casefold()[a:b] for row, spans in split for a, b in spans)
    for row, spans in split:
        text = sentences[row].text
        for first in range(len(spans)):
            inside = False
            for last in range(first, min(first + MAX_WORDS, len(spans))):
                start, end = spans[first][0], spans[last][1]
                said = surface(text[start:end])
                if said in taken:
                    inside = True
                    continue
                if len(text) < end - start + LONGER_BY or len(said) < 2 or any(map(str.isdigit, said)):
                    continue
                place = (row, start, end)
                if said in lexicon:
                    _add(listed, said, place, most)
                elif not inside and last - first < 3 and crc32(said.encode()) % _KEPT_OF == 0:
                    edges = {text[a:b].casefold() for a, b in (spans[first], spans[last])}
                    held = any(
                        surface(text[spans[a][0] : spans[b][1]]) in taken
                        for a in range(first, last + 1)
                        for b in range(a, last + 1)
                    )
                    if not held and not edges & frequent:
                        _add(runs, said, place, most)
    made = dict(sorted(listed.items(), key=_by_hash)[:wanted])
    made.update(sorted(runs.items(), key=_by_hash)[: wanted - len(made)])
    return made


def _add(found: dict[str, list[Place]], said: str, place: Place, most: int) -> None:
    """Remember a place: one per sentence, `most` in all."""
    places = found.setdefault(said, [])
    if len(places) < most and (not places or places[-1][0] != place[0]):
        places.append(place)


def _frequent(words: Iterable[str]) -> frozenset[str]:
    counts: Mapping[str, int] = Counter(words)
    return frozenset(word for word, _ in Counter(counts).most_common(FREQUENT))


def _by_hash(item: tuple[str, list[Place]]) -> tuple[int, str]:
    return crc32(item[0].encode(), 1), item[0]
