"""Candidates: pairs of near sentences of two sides, and what a search and the two texts tell of each.

A classifier (`retrievers.mining.classifier`) turns these features into the probability that a pair is a translation.
All of them are the same for every pair of languages.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.console import progress
from rag_mt.base.types import Encoder, Floats
from rag_mt.checks.marks import end_mark
from retrievers.ccpr.confidence import likeness, numbers_of
from retrievers.mining.margin import Neighbours, Pairs, Strategy, mean_cosines, one_to_one, ratio

NEAR = 8
"""Neighbours of a sentence that are its candidates."""
AROUND = 4
"""Neighbours whose mean cosine a pair is compared with."""
LEAST_RATIO = 1.0
"""Pairs with a lower ratio margin are no candidates: they are no nearer than a sentence's neighbours are on average."""
BINS = {"to 5 words": (0, 5), "to 10 words": (6, 10), "to 20 words": (11, 20)}
"""Lengths of source sentences in words that have weights of their own, least and most."""
CROSSED = ("ratio", "covered")
BLOCK = 4096
"""Candidates whose token states are held at once."""
TINY = 1e-6
CENTRE = 2000
"""Sentences of a side whose token states say where their middle is."""

VECTORS = (
    *("cosine", "ratio", "difference", "mean ahead", "mean back", "rank ahead", "rank back"),
    *("first ahead", "first back", "first both", "lead ahead", "lead back"),
)
TEXTS = ("length gap", "word gap", "words", "numbers shared", "numbers unlike", "numbers alone", "alike", "same end")
TOKENS = ("covered ahead", "covered back", "least ahead", "least back", "two least ahead", "two least back")
ALIGNED = (*TOKENS, "covered", "mutual")
LENGTHS = (*BINS, *(f"{crossed}, {name}" for name in BINS for crossed in CROSSED))
FEATURES = (*VECTORS, *TEXTS, *ALIGNED, *LENGTHS)
"""Features of vectors, of texts, of token states, and those that short sentences have."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """Pairs by their numbers in both sides, int64 (pairs,), and features (pairs,) by name, float32."""

    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    features: dict[str, Floats]

    def __len__(self) -> int:
        return len(self.sources)

    def where(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> Candidates:
        """Some of them, by a mask or by their numbers."""
        features = {name: values[rows] for name, values in self.features.items()}
        return Candidates(self.sources[rows], self.targets[rows], features)

    def pairs(self, scores: Floats) -> Pairs:
        """One-to-one pairs by these scores (pairs,), best first."""
        return one_to_one(Pairs(self.sources, self.targets, scores.astype(np.float32)))


def candidates(forward: Neighbours, backward: Neighbours, strategy: Strategy = "max") -> Candidates:
    """The candidates of two sides with the features of their vectors: cosine; ratio margin, and the same as a
    difference; the mean cosines of both sentences' neighbours; each one's rank among the other's neighbours (NEAR for
    more) and whether it is the first; how far the cosine is above that of the best other neighbour.

    `strategy` says which side's neighbours are candidates: A's, B's, those of both or of either.
    """
    means = mean_cosines(forward.first(AROUND)), mean_cosines(backward.first(AROUND))
    width = len(backward.ids)
    sources, targets, cosines, ranks = _flat(forward.first(NEAR), *means)
    back_targets, back_sources, back_cosines, back_ranks = _flat(backward.first(NEAR), *means[::-1])
    codes, back_codes = sources * width + targets, back_sources * width + back_targets
    both, first = np.unique(np.append(codes, back_codes), return_index=True)
    cosine = np.append(cosines, back_cosines)[first]
    ahead, back = np.full(len(both), NEAR), np.full(len(both), NEAR)
    ahead[np.searchsorted(both, codes)] = ranks
    back[np.searchsorted(both, back_codes)] = back_ranks
    a, b = np.divmod(both, max(width, 1))
    features = {
        "cosine": cosine,
        "ratio": ratio(cosine, means[0][a], means[1][b]),
        "difference": cosine - (means[0][a] + means[1][b]) / 2,
        "mean ahead": means[0][a],
        "mean back": means[1][b],
        "rank ahead": np.log1p(ahead),
        "rank back": np.log1p(back),
        "first ahead": ahead == 0,
        "first back": back == 0,
        "first both": (ahead == 0) & (back == 0),
        "lead ahead": cosine - _best_other(forward, a, ahead == 0, means[0]),
        "lead back": cosine - _best_other(backward, b, back == 0, means[1]),
    }
    proposed = {
        "max": np.ones(len(both), bool),
        "intersection": (ahead < NEAR) & (back < NEAR),
        "forward": ahead < NEAR,
        "backward": back < NEAR,
    }
    named = {name: np.asarray(values, np.float32) for name, values in features.items()}
    return Candidates(a, b, named).where(proposed[strategy])


def _flat(
    neighbours: Neighbours, own_means: Floats, other_means: Floats
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats, NDArray[np.int64]]:
    """Own and other sentences, cosines and ranks of all neighbours whose ratio margin is high enough."""
    near = neighbours.ids.shape[1]
    own, ranks = np.divmod(np.arange(neighbours.ids.size), max(near, 1))
    others, cosines = neighbours.ids.ravel(), neighbours.scores.ravel()
    rows = (others >= 0) & (ratio(cosines, own_means[own], other_means[others]) >= LEAST_RATIO)
    return own[rows], others[rows], cosines[rows], ranks[rows]


def _best_other(neighbours: Neighbours, rows: NDArray[np.int64], is_first: NDArray[np.bool_], means: Floats) -> Floats:
    """For each of `rows` the cosine of its best neighbour, or of the second if the candidate is the first itself; the
    mean where there is no second."""
    if neighbours.ids.shape[1] < 2:
        return means[rows]
    second = np.where(neighbours.ids[rows, 1] >= 0, neighbours.scores[rows, 1], means[rows])
    return np.where(is_first, second, neighbours.scores[rows, 0])


def described(
    pairs: Candidates, sources: Sequence[str], targets: Sequence[str], encoder: Encoder, show: bool = False
) -> Candidates:
    """The candidates with all FEATURES; `sources` and `targets` (pairs,) are their texts, and `encoder` is that of the
    vectors."""
    features = {**pairs.features, **text_features(sources, targets, pairs.features["first both"] > 0)}
    features |= token_features(sources, targets, encoder, show)
    words = np.array([len(text.split()) for text in sources])
    for name, (least, most) in BINS.items():
        inside = ((words >= least) & (words <= most)).astype(np.float32)
        features[name] = inside
        features |= {f"{crossed}, {name}": inside * features[crossed] for crossed in CROSSED}
    return Candidates(pairs.sources, pairs.targets, features)


def text_features(sources: Sequence[str], targets: Sequence[str], usual: NDArray[np.bool_]) -> dict[str, Floats]:
    """The features TEXTS of pairs of texts.

    Lengths: how far the logarithms of the ratios of characters and of words are from the median of the `usual` pairs,
    and the source's words. Numbers: whether some are shared, whether and how many are on one side alone. Letters: how
    alike the texts look in Latin script (see `likeness`). Whether both end with the same mark.
    """
    both = list(zip(sources, targets, strict=True))
    words = np.array([(len(a.split()), len(b.split())) for a, b in both], dtype=np.float64).reshape(-1, 2)
    letters = np.log([(len(b) + 1) / (len(a) + 1) for a, b in both])
    shared, alone = np.array([_shared_numbers(*pair) for pair in both], dtype=np.float64).reshape(-1, 2).T
    features = (
        _gap(letters, usual),
        _gap(np.log((words[:, 1] + 1) / (words[:, 0] + 1)), usual),
        np.log1p(words[:, 0]),
        shared > 0,
        alone > 0,
        alone,
        [likeness(a, b) for a, b in both],
        [_end(a) == _end(b) for a, b in both],
    )
    return {name: np.asarray(values, np.float32) for name, values in zip(TEXTS, features, strict=True)}


def token_features(
    sources: Sequence[str], targets: Sequence[str], encoder: Encoder, show: bool = False
) -> dict[str, Floats]:
    """The features ALIGNED of pairs of texts: how well each one's tokens are covered by the other's.

    The states are those of the layer two thirds up, where words of two languages are most alike, less the mean state of
    a side. A token is covered as well as its best cosine with a token of the other side says (as in BERTScore, Zhang et
    al. 2020): the mean of that over a text, the least, the mean of the two least; the smaller one of both means; and
    the sum of the cosines of tokens that are each other's best, over the mean number of tokens.
    """
    layer, rows = max(1, round(encoder.layers * 2 / 3)), np.zeros((len(sources), len(ALIGNED)), np.float32)
    middles = [_middle(encoder, list(dict.fromkeys(side))[:CENTRE], layer) for side in (sources, targets)]
    with closing(progress(len(sources), "pairs", "comparing words", show=show)) as bar:
        for begin in range(0, len(sources), BLOCK):
            block = slice(begin, begin + BLOCK)
            one, other = (
                _states(encoder, list(dict.fromkeys(side[block])), layer, middle)
                for side, middle in zip((sources, targets), middles, strict=True)
            )
            both = zip(sources[block], targets[block], strict=True)
            rows[block] = [coverage(one[a] @ other[b].T) for a, b in both]
            bar.update(len(sources[block]))
    return dict(zip(ALIGNED, rows.T, strict=True))


def coverage(cosines: Floats) -> tuple[float, ...]:
    """The features ALIGNED of the cosines (tokens, tokens) of two texts; 0 where one has no token."""
    if not cosines.size:
        return (0.0,) * len(ALIGNED)
    ahead, back = cosines.max(axis=1), cosines.max(axis=0)
    mutual = cosines[(cosines == ahead[:, None]) & (cosines == back)].sum() * 2 / sum(cosines.shape)
    least = [float(np.sort(side)[:2].mean()) for side in (ahead, back)]
    means = float(ahead.mean()), float(back.mean())
    return (*means, float(ahead.min()), float(back.min()), *least, min(means), float(mutual))


def _middle(encoder: Encoder, texts: Sequence[str], layer: int) -> Floats:
    """The mean state (dimension,) of all tokens of some texts."""
    total, count = np.zeros(encoder.hidden, np.float64), 0
    for tokens in encoder.states(texts, layer):
        total += tokens.states.sum(axis=0)
        count += len(tokens.states)
    return (total / max(count, 1)).astype(np.float32)


def _states(encoder: Encoder, texts: Sequence[str], layer: int, middle: Floats) -> dict[str, Floats]:
    """For each text the states of its tokens less the middle, of length 1, float32 (tokens, dimension)."""
    moved = (tokens.states - middle for tokens in encoder.states(texts, layer))
    lengths = ((states, np.linalg.norm(states, axis=1, keepdims=True)) for states in moved)
    return {text: states / np.maximum(norm, TINY) for text, (states, norm) in zip(texts, lengths, strict=True)}


def _gap(logarithms: NDArray[np.float64], usual: NDArray[np.bool_]) -> NDArray[np.float64]:
    """How far each value is from the median of the usual ones."""
    middle = float(np.median(logarithms[usual])) if usual.any() else 0.0
    return np.abs(logarithms - middle)


def _shared_numbers(source: str, target: str) -> tuple[int, int]:
    """How many different numbers both texts have, and how many one of them alone."""
    one, other = _numbers(source), _numbers(target)
    return len(one & other), len(one ^ other)


@lru_cache(1 << 16)
def _numbers(text: str) -> frozenset[str]:
    return frozenset(numbers_of(text))


@lru_cache(1 << 16)
def _end(text: str) -> str:
    return end_mark(text)
