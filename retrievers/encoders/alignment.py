"""Word alignment of sentence pairs: which words of the two sides translate each other.

Words are those of `rag_mt.text.words`. An aligner links each word to at most one of the other side, once in each
direction; `symmetrise` joins the two directions. `EncoderAligner` compares the states of an encoder and needs no
training text; `eval.data.alignments.EflomalAligner` learns from the pairs themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.errors import UserError
from rag_mt.base.types import Encoder, Floats, TokenStates
from rag_mt.text.words import token_words, word_spans

log = logging.getLogger("rag_mt")

Links = NDArray[np.int32]
"""Links (n, 2): number of the source word, number of the target word, in ascending order."""

Method = Literal["intersection", "union", "grow-diag-final-and"]
METHODS: tuple[Method, ...] = get_args(Method)

MAX_WORDS = 200
"""Pairs with more words on a side are not aligned."""

_SHIFT, _MASK = 16, 0xFFFF
_ROW = 1 << _SHIFT
# The neighbours of a point, in the order in which they are tried: beside it, then across.
_NEIGHBOURS = (-_ROW, -1, _ROW, 1, -_ROW - 1, -_ROW + 1, _ROW - 1, _ROW + 1)


class Aligner(Protocol):
    """Finds the links of sentence pairs.

    `settings` is JSON-able and holds all that changes the links of `directed`; `method` joins the two directions. An
    aligner that `learns` is trained on the pairs that it aligns, so that it should get all of them in one call.
    """

    name: str
    learns: bool
    method: Method
    settings: Mapping[str, Any]

    def directed(self, pairs: Sequence[tuple[str, str]]) -> tuple[list[Links], list[Links]]:
        """Links of each pair with at most one per target word, and with at most one per source word.

        Pairs with a side that has no word or more than 200 get none; how many is logged.
        """
        ...

    def align(self, pairs: Sequence[tuple[str, str]]) -> list[Links]:
        """The symmetrised links of each pair, in order."""
        ...


def symmetrise(forward: Links, backward: Links, method: Method) -> Links:
    """One set of links from those of both directions, each (n, 2).

    `grow-diag-final-and` (Koehn, Och and Marcu 2003; Koehn et al. 2005): from the intersection, take in links of the
    union that touch a taken one, also across, and have a word that is not linked yet, scanning by source and then
    target word until nothing changes; then links of `forward` and of `backward` whose words are both not linked yet.
    """
    first, second = _codes(forward), _codes(backward)
    union = set(first)
    links = union.intersection(second)
    union.update(second)
    if method == "union":
        links = union
    elif method == "grow-diag-final-and" and len(union) > len(links):
        _grow(links, union - links, (first, second))
    codes = np.array(sorted(links), dtype=np.int64)
    return np.stack([codes >> _SHIFT, codes & _MASK], axis=1).astype(np.int32)


def symmetrised(forward: Sequence[Links], backward: Sequence[Links], method: Method) -> list[Links]:
    """`symmetrise` of each sentence pair."""
    return [symmetrise(a, b, method) for a, b in zip(forward, backward, strict=True)]


def _codes(links: Links) -> list[int]:
    wide = links.astype(np.int64)
    codes: list[int] = (wide[:, 0] << _SHIFT | wide[:, 1]).tolist()
    return codes


def _grow(links: set[int], free: set[int], directions: tuple[list[int], list[int]]) -> None:
    """Grow-diag and final-and in place: `free` are the links of the union that are not in `links`.

    A neighbour that may not be taken in when its point is scanned never may later, so each point is scanned once:
    `now` holds the points that this scan has yet to reach, `later` those that it has passed.
    """
    sources, targets = {c >> _SHIFT for c in links}, {c & _MASK for c in links}

    def take(code: int) -> None:
        links.add(code)
        free.remove(code)
        sources.add(code >> _SHIFT)
        targets.add(code & _MASK)

    now, later = sorted(links), list[int]()
    while now and free:
        point = heappop(now)
        for step in _NEIGHBOURS:
            code = point + step
            if code in free and (code >> _SHIFT not in sources or code & _MASK not in targets):
                take(code)
                if code > point:
                    heappush(now, code)
                else:
                    later.append(code)
        if not now:
            now, later = sorted(later), []
    for codes in directions:
        for code in sorted(free.intersection(codes)):
            if code >> _SHIFT not in sources and code & _MASK not in targets:
                take(code)


def alignable(source: int, target: int) -> bool:
    """Whether a pair with so many words is aligned."""
    return 0 < source <= MAX_WORDS and 0 < target <= MAX_WORDS


def note_left_out(count: int, total: int) -> None:
    """Log how many of the pairs are not aligned."""
    if count:
        log.info("%d of %d sentence pairs get no links: a side has no word or more than %d", count, total, MAX_WORDS)


class EncoderAligner:
    """Links words whose states in a hidden layer have the highest cosine; the state of a word is the mean of those of
    its tokens (an Aligner).

    Each direction alone links every word to its nearest; with `intersection` that is SimAlign's "argmax" (Jalili Sabet
    et al. 2020). Words beyond the encoder's token limit get no links.
    """

    name = "encoder"
    learns = False

    def __init__(self, encoder: Encoder, layer: int = 6, method: Method = "grow-diag-final-and") -> None:
        if not 0 <= layer <= encoder.layers:
            raise UserError(f"layer {layer} of {encoder.id} is not there: choose one of 0 to {encoder.layers}")
        self.encoder, self.layer, self.method = encoder, layer, method
        self.settings: Mapping[str, Any] = {
            "aligner": self.name,
            "encoder": encoder.id,
            "fingerprint": encoder.fingerprint,
            "layer": layer,
        }

    def directed(self, pairs: Sequence[tuple[str, str]]) -> tuple[list[Links], list[Links]]:
        """See `Aligner`."""
        none = np.zeros((0, 2), np.int32)
        forward, backward = [none] * len(pairs), [none] * len(pairs)
        words = [(word_spans(source), word_spans(target)) for source, target in pairs]
        rows = [n for n, (source, target) in enumerate(words) if alignable(len(source), len(target))]
        note_left_out(len(pairs) - len(rows), len(pairs))
        states = [self.encoder.states([pairs[n][side] for n in rows], self.layer) for side in (0, 1)]
        for n, source, target in zip(rows, *states, strict=True):
            left, left_words = _word_vectors(source, words[n][0])
            right, right_words = _word_vectors(target, words[n][1])
            if len(left) and len(right):
                near = left @ right.T
                forward[n] = _sorted(left_words[near.argmax(0)], right_words)
                backward[n] = _sorted(left_words, right_words[near.argmax(1)])
        return forward, backward

    def align(self, pairs: Sequence[tuple[str, str]]) -> list[Links]:
        """See `Aligner`."""
        forward, backward = self.directed(pairs)
        return symmetrised(forward, backward, self.method)


def _word_vectors(states: TokenStates, words: NDArray[np.int32]) -> tuple[Floats, NDArray[np.int64]]:
    """Normalised mean states of the words that have tokens, and the numbers of these words."""
    tokens = token_words(states.offsets, words)
    readable = np.flatnonzero(tokens[:, 0] >= 0)
    if not len(readable):
        return np.zeros((0, states.states.shape[1]), np.float32), readable
    ends = (tokens[readable] + np.array([0, 1])).ravel()
    padded = np.concatenate([states.states, np.zeros_like(states.states[:1])])  # an end may lie behind the last token
    sums = np.add.reduceat(padded, ends, axis=0)[::2]  # the length of a mean does not matter for its direction
    return sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12), readable


def _sorted(source: NDArray[np.int64], target: NDArray[np.int64]) -> Links:
    order = np.lexsort((target, source))
    return np.stack([source[order], target[order]], axis=1).astype(np.int32)
