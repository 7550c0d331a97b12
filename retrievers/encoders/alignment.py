"""Word alignment of sentence pairs: which words of the two sides translate each other.

Words are those of `rag_mt.text.words`. An aligner links each word to at most one of the other side, once in each
direction; `symmetrise` joins the two directions. `EncoderAligner` compares the states of an encoder and needs no
training text; `eval.data.alignments.EflomalAligner` learns from the pairs themselves.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, Literal, get_args

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

# The neighbours of a point, in the order in which they are tried: beside it, then across.
_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


class Aligner(ABC):
    """Finds the links of sentence pairs. `settings` is JSON-able and holds all that changes the links of `directed`;
    `method` joins the two directions. An aligner that `learns` is trained on the pairs that it aligns, so that it
    should get all of them in one call."""

    name: str
    learns: bool
    method: Method
    settings: Mapping[str, Any]

    @abstractmethod
    def directed(self, pairs: Sequence[tuple[str, str]]) -> tuple[list[Links], list[Links]]:
        """Links of each pair with at most one per target word, and with at most one per source word. Pairs with a side
        that has no word or more than 200 get none; how many is logged."""

    def align(self, pairs: Sequence[tuple[str, str]]) -> list[Links]:
        """The symmetrised links of each pair, in order."""
        return symmetrised(*self.directed(pairs), self.method)


def symmetrise(forward: Links, backward: Links, method: Method) -> Links:
    """One set of links from those of both directions, each (n, 2).

    `grow-diag-final-and` (Koehn, Och and Marcu 2003; Koehn et al. 2005): from the intersection, take in links of the
    union that touch a taken one, also across, and have a word that is not linked yet, scanning by source and then
    target word until nothing changes; then links of `forward` and of `backward` whose words are both not linked yet.
    """
    first, second = (set(map(tuple, links.tolist())) for links in (forward, backward))
    links = first | second if method == "union" else first & second
    if method == "grow-diag-final-and":
        _grow(links, first, second)
    return np.array(sorted(links), dtype=np.int32).reshape(-1, 2)


def symmetrised(forward: Sequence[Links], backward: Sequence[Links], method: Method) -> list[Links]:
    """`symmetrise` of each sentence pair."""
    return [symmetrise(a, b, method) for a, b in zip(forward, backward, strict=True)]


def _grow(links: set[tuple[int, ...]], *directions: set[tuple[int, ...]]) -> None:
    """Grow-diag and final-and in place. A neighbour that may not be taken in when its point is scanned never may later,
    so each point is scanned once: `now` holds the points that this scan has yet to reach, `later` those that it has
    passed."""
    free = set.union(*directions) - links
    sources, targets = {source for source, _ in links}, {target for _, target in links}

    def take(link: tuple[int, ...]) -> None:
        links.add(link)
        free.remove(link)
        sources.add(link[0])
        targets.add(link[1])

    now, later = sorted(links), list[tuple[int, ...]]()
    while now and free:
        point = heappop(now)
        for down, right in _NEIGHBOURS:
            neighbour = (point[0] + down, point[1] + right)
            if neighbour in free and (neighbour[0] not in sources or neighbour[1] not in targets):
                take(neighbour)
                if neighbour > point:
                    heappush(now, neighbour)
                else:
                    later.append(neighbour)
        if not now:
            now, later = sorted(later), []
    for direction in directions:
        for link in sorted(free & direction):
            if link[0] not in sources and link[1] not in targets:
                take(link)


def alignable(sizes: Sequence[tuple[int, int]]) -> list[int]:
    """The rows of those pairs with such numbers of words that are aligned; how many are not is logged."""
    rows = [row for row, size in enumerate(sizes) if min(size) > 0 and max(size) <= MAX_WORDS]
    if left_out := len(sizes) - len(rows):
        message = "%d of %d sentence pairs get no links: a side has no word or more than %d"
        log.info(message, left_out, len(sizes), MAX_WORDS)
    return rows


class EncoderAligner(Aligner):
    """Links words whose states in a hidden layer have the highest cosine; the state of a word is the mean of those of
    its tokens. Each direction alone links every word to its nearest; with `intersection` that is SimAlign's "argmax"
    (Jalili Sabet et al. 2020). Words beyond the encoder's token limit get no links."""

    name = "encoder"
    learns = False

    def __init__(self, encoder: Encoder, layer: int = 6, method: Method = "grow-diag-final-and") -> None:
        if not 0 <= layer <= encoder.layers:
            raise UserError(f"layer {layer} of {encoder.id} is not there: choose one of 0 to {encoder.layers}")
        self.encoder, self.layer, self.method = encoder, layer, method
        fingerprint = encoder.fingerprint
        self.settings = {"aligner": self.name, "encoder": encoder.id, "fingerprint": fingerprint, "layer": layer}

    def directed(self, pairs: Sequence[tuple[str, str]]) -> tuple[list[Links], list[Links]]:
        """See `Aligner`."""
        none = np.zeros((0, 2), np.int32)
        forward, backward = [none] * len(pairs), [none] * len(pairs)
        words = [(word_spans(source), word_spans(target)) for source, target in pairs]
        rows = alignable([(len(source), len(target)) for source, target in words])
        states = [self.encoder.states([pairs[n][side] for n in rows], self.layer) for side in (0, 1)]
        for n, source, target in zip(rows, *states, strict=True):
            left, left_words = _word_vectors(source, words[n][0])
            right, right_words = _word_vectors(target, words[n][1])
            if len(left) and len(right):
                near = left @ right.T
                forward[n] = _sorted(left_words[near.argmax(0)], right_words)
                backward[n] = _sorted(left_words, right_words[near.argmax(1)])
        return forward, backward


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
