"""Mining in sets whose true pairs are known: settings chosen on the training part, scores on the test part."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eval.bitext.scores import Scores, best_threshold, difference, f1_of, marked, scored, statistics
from eval.bitext.sets import BitextSet
from eval.data.vector_cache import VectorCache
from eval.significance import Comparison
from rag_mt.base.types import Encoder, Kind
from retrievers.mining.margin import Neighbours, Pairs, Strategy, absolute, mined, nearest, ratio

NEIGHBOURS = (1, 2, 4, 8, 16)
MOST_NEIGHBOURS = max(NEIGHBOURS)
EXAMPLES = 5
LENGTHS = (6, 11, 21)
"""Words of a source sentence at which a row of the table by length begins."""


@dataclass(frozen=True)
class Way:
    """One way to choose pairs: the score (`margin` or `cosine`), its neighbours and the strategy."""

    score: str
    neighbours: int
    strategy: Strategy = "max"

    @property
    def name(self) -> str:
        return f"{self.score}, {self.neighbours} neighbours, {self.strategy}" if self.score == "margin" else "cosine"

    def pairs(self, ahead: Neighbours, back: Neighbours) -> Pairs:
        """The pairs of this way, best first."""
        scoring = ratio if self.score == "margin" else absolute
        return mined(ahead.first(self.neighbours), back.first(self.neighbours), self.strategy, scoring)


COSINE = Way("cosine", 1)


@dataclass(frozen=True)
class Trial:
    """A way on the training part of a language: its best threshold and the F1 there."""

    language: str
    way: Way
    threshold: float
    f1: float


@dataclass(frozen=True)
class Result:
    """A way on the test part of a language, with the threshold of the training part.

    `gain` is the F1 less that of the cosine, `best` the F1 of the threshold that would have been best here: how much of
    what is missing is the threshold's fault. `nearest` is the share of the true pairs whose source has its translation
    as the nearest sentence of the other side.
    """

    language: str
    way: Way
    threshold: float
    scores: Scores
    gain: Comparison
    best: float
    nearest: float


@dataclass(frozen=True)
class LengthRow:
    """The source sentences of `least` to `most` words: how many there are, their true pairs, the pairs that were found,
    those that are both, and F1."""

    least: int
    most: int
    sentences: int
    true: int
    found: int
    right: int
    f1: float


@dataclass(frozen=True)
class Example:
    """A pair of the test part that was found and is not marked as true, or that was missed."""

    kind: str
    score: float
    source: str
    target: str


@dataclass(frozen=True)
class ModelRun:
    """All that a model did. `neighbours` were chosen on the training parts, `encoded` sentences were not in the cache,
    and comparing all of them took so many `seconds`."""

    model: str
    kind: Kind
    neighbours: int
    trials: Sequence[Trial]
    results: Sequence[Result]
    lengths: dict[str, Sequence[LengthRow]]
    examples: dict[str, Sequence[Example]]
    encoded: int
    seconds: float


@dataclass(frozen=True, eq=False)
class _Found:
    """A set with the neighbours of its source and of its target sentences."""

    own: BitextSet
    ahead: Neighbours
    back: Neighbours


def run_model(name: str, encoder: Encoder, sets: Sequence[BitextSet], cache: Path, kind: Kind = "query") -> ModelRun:
    """Encode both parts of every language (what `cache` holds is not encoded again), choose the number of neighbours
    and the thresholds on the training parts, and score the test parts."""
    vectors, seconds = VectorCache(cache, encoder, kind), 0.0
    found: dict[tuple[str, str], _Found] = {}
    for own in sets:
        texts = (own.sources, own.targets)
        source, target = (vectors.vectors(side, f"encoding {own.name}") for side in texts)
        begin = time.perf_counter()
        ahead, back = nearest(source, target, MOST_NEIGHBOURS), nearest(target, source, MOST_NEIGHBOURS)
        seconds += time.perf_counter() - begin
        found[own.language, own.part] = _Found(own, ahead, back)
    languages = list(dict.fromkeys(own.language for own in sets))
    trials = [trial for code in languages for trial in _trials(found[code, "training"])]
    k = max(NEIGHBOURS, key=lambda k: (_mean_f1(trials, Way("margin", k)), -k))
    results: list[Result] = []
    examples: dict[str, Sequence[Example]] = {}
    lengths: dict[str, Sequence[LengthRow]] = {}
    for code in languages:
        results += _results(found[code, "test"], [t for t in trials if t.language == code], k)
        chosen = next(r for r in results if r.language == code and r.way == Way("margin", k))
        examples[code] = _examples(found[code, "test"], chosen)
        lengths[code] = _by_length(found[code, "test"], chosen)
    return ModelRun(name, kind, k, trials, results, lengths, examples, vectors.encoded, seconds)


def _mean_f1(trials: Sequence[Trial], way: Way) -> float:
    return float(np.mean([trial.f1 for trial in trials if trial.way == way]))


def _trials(training: _Found) -> list[Trial]:
    ways = [COSINE, *(Way("margin", k) for k in NEIGHBOURS), *(Way("margin", k, "intersection") for k in NEIGHBOURS)]
    made = []
    for way in ways:
        threshold, f1 = best_threshold(way.pairs(training.ahead, training.back), training.own.gold)
        made.append(Trial(training.own.language, way, threshold, f1))
    return made


def _results(test: _Found, trials: Sequence[Trial], k: int) -> list[Result]:
    wanted = (COSINE, Way("margin", k), Way("margin", k, "intersection"))
    first = test.ahead.ids[test.own.gold[:, 0], 0]
    share = float((first == test.own.gold[:, 1]).mean())
    results, baseline = [], None
    for trial in (trial for way in wanted for trial in trials if trial.way == way):
        pairs = trial.way.pairs(test.ahead, test.back)
        rows = statistics(pairs.at_least(trial.threshold), test.own)
        baseline = rows if baseline is None else baseline
        best = best_threshold(pairs, test.own.gold)[1]
        gain = difference(rows, baseline)
        results.append(Result(trial.language, trial.way, trial.threshold, scored(rows), gain, best, share))
    return results


def _by_length(test: _Found, result: Result) -> list[LengthRow]:
    """The scores of a result by the words of the source sentence."""
    rows = statistics(result.way.pairs(test.ahead, test.back).at_least(result.threshold), test.own)
    words = np.array([len(text.split()) for text in test.own.sources])
    made = []
    for least, most in pairwise((0, *LENGTHS, int(words.max(initial=LENGTHS[-1])) + 1)):
        own = rows[(words >= least) & (words < most)]
        found, true, right = own.sum(axis=0).astype(int).tolist()
        made.append(LengthRow(least, most - 1, len(own), true, found, right, float(f1_of(own.sum(axis=0)[None])[0])))
    return made


def _examples(test: _Found, result: Result) -> list[Example]:
    """The pairs that are wrong with the highest scores, and the missed ones that a lower threshold would take last."""
    pairs = result.way.pairs(test.ahead, test.back)
    right = marked(pairs, test.own.gold)
    taken = pairs.scores >= np.float32(result.threshold)
    wrong, missed = np.flatnonzero(taken & ~right)[:EXAMPLES], np.flatnonzero(~taken & right)[-EXAMPLES:]
    return [*_shown("not marked", pairs, wrong, test.own), *_shown("missed", pairs, missed, test.own)]


def _shown(kind: str, pairs: Pairs, rows: NDArray[np.int64], own: BitextSet) -> list[Example]:
    return [
        Example(kind, float(pairs.scores[n]), own.sources[pairs.sources[n]], own.targets[pairs.targets[n]])
        for n in rows.tolist()
    ]


def timed(sentences: int, dimension: int, k: int, seed: int = 1) -> tuple[float, float, int]:
    """Seconds, processor seconds and pairs of mining two sides of so many random vectors each, all but the encoding."""
    rng = np.random.default_rng(seed)
    sides = []
    for _ in range(2):
        vectors = rng.standard_normal((sentences, dimension), dtype=np.float32)
        sides.append((vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16))
    begin, work = time.perf_counter(), time.process_time()
    pairs = mined(nearest(sides[0], sides[1], k), nearest(sides[1], sides[0], k))
    return time.perf_counter() - begin, time.process_time() - work, len(pairs)
