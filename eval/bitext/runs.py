"""Mining in sets whose true pairs are known: settings chosen on the training part, scores on the test part.

Precision, recall and F1 are counted as BUCC does: a pair is right if it is one of the true ones.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from eval.bitext.sets import PARTS, BitextSet
from eval.data.vectors import VectorCache
from eval.metrics.formulas import Formula, Rows
from eval.significance import Interval, compare, interval
from rag_mt.base.types import Encoder, Kind
from retrievers.ccpr.confidence import Confidence
from retrievers.mining.candidates import NEAR, Candidates, candidates, described
from retrievers.mining.classifier import chances, fit_classifier, held_out_chances
from retrievers.mining.margin import Neighbours, Pairs, Strategy, absolute, mined, nearest, ratio

NEIGHBOURS = (1, 2, 4, 8, 16)
TIMED_NEIGHBOURS = 4
REACH = (4, 16)
"""Neighbours among which the translations of true pairs are looked for."""
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
        """What reports call it."""
        return f"{self.score}, {self.neighbours} neighbours, {self.strategy}" if self.score == "margin" else self.score

    def pairs(self, ahead: Neighbours, back: Neighbours) -> Pairs:
        """The pairs of this way, best first."""
        scoring = ratio if self.score == "margin" else absolute
        return mined(ahead.first(self.neighbours), back.first(self.neighbours), self.strategy, scoring)


COSINE = Way("cosine", 1)
MAX, INTERSECTION = ([Way("margin", k, strategy) for k in NEIGHBOURS] for strategy in ("max", "intersection"))
WAYS = (COSINE, *MAX, *INTERSECTION)
BY_LENGTH = Way("margin, a threshold for each length", 0)
CLASSIFIER = Way("classifier", NEAR)
CHANCES = np.linspace(0.02, 0.98, 97)
"""Probabilities that are tried as the least one of a pair."""

Searched = tuple[Neighbours, Neighbours]
"""The nearest targets of each source sentence, and the nearest sources of each target sentence."""


@dataclass(frozen=True)
class Scores:
    """Pairs that were found, that are true, and that are both; F1 with its interval. Scores are of 1."""

    found: int
    true: int
    right: int
    precision: float
    recall: float
    f1: Interval


def marked(pairs: Pairs, gold: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each pair is one of the true ones, (true pairs, 2)."""
    width = max(int(gold[:, 1].max(initial=0)), int(pairs.targets.max(initial=0))) + 1
    right: NDArray[np.bool_] = np.isin(pairs.sources * width + pairs.targets, gold[:, 0] * width + gold[:, 1])
    return right


def best_threshold(pairs: Pairs, gold: NDArray[np.int64]) -> tuple[float, float]:
    """The threshold with the highest F1 on these pairs, which are sorted, and that F1.

    It lies half-way between the last score that is taken and the next one.
    """
    right = np.cumsum(marked(pairs, gold))
    f1 = 2 * right / (np.arange(1, len(pairs) + 1) + len(gold))
    ends = np.append(pairs.scores[:-1] > pairs.scores[1:], True)  # equal scores are taken together
    best = int(np.where(ends, f1, -1).argmax())
    following = pairs.scores[min(best + 1, len(pairs) - 1)]
    return float((pairs.scores[best] + following) / 2), float(f1[best])


def statistics(pairs: Pairs, bitext: BitextSet) -> Rows:
    """For each source sentence whether a pair of it was found, is true, and how many of both, (sentences, 3)."""
    rows = np.zeros((len(bitext.sources), 3))
    np.add.at(rows[:, 0], pairs.sources, 1)
    np.add.at(rows[:, 1], bitext.gold[:, 0], 1)
    np.add.at(rows[:, 2], pairs.sources[marked(pairs, bitext.gold)], 1)
    return rows


def _f1(sums: Rows) -> Rows:
    """F1 of sums of statistics (rows, 3); 0 where nothing is found nor true."""
    f1: Rows = 2 * sums[:, 2] / np.maximum(sums[:, 0] + sums[:, 1], 1)
    return f1


F1 = Formula(_f1, _f1)


def scored(rows: Rows) -> Scores:
    """The scores of the statistics of all source sentences; F1's interval is over these."""
    found, true, right = rows.sum(axis=0).astype(int).tolist()
    return Scores(found, true, right, right / max(found, 1), right / max(true, 1), interval([rows], F1))


def run_model(
    name: str, encoder: Encoder, sets: Sequence[BitextSet], cache: Path, kind: Kind = "query"
) -> tuple[dict[str, Any], Confidence]:
    """Encode both parts of every language (what `cache` holds is not encoded again), choose the number of neighbours
    and the thresholds on the training parts, fit the classifier there, and score the test parts; returns the classifier
    too.

    The rest of what is returned is JSON-able: `trials` on the training parts, `results` on the test parts, the scores
    by `lengths` of source sentences, how many sentences were `encoded`, and the `seconds` of comparing all of them.
    """
    vectors, seconds = VectorCache(cache, encoder, kind), 0.0
    searched: dict[BitextSet, Searched] = {}
    for bitext in sets:
        texts = (bitext.sources, bitext.targets)
        source, target = (vectors.vectors(side, f"encoding {bitext.name}") for side in texts)
        begin = time.perf_counter()
        searched[bitext] = nearest(source, target, max(NEIGHBOURS)), nearest(target, source, max(NEIGHBOURS))
        seconds += time.perf_counter() - begin
    training, tests = ([bitext for bitext in sets if bitext.part == part] for part in PARTS)
    trials = {
        (bitext.language, way): best_threshold(way.pairs(*searched[bitext]), bitext.gold)
        for bitext in training
        for way in WAYS
    }
    mean_f1 = [float(np.mean([trials[bitext.language, way][1] for bitext in training])) for way in MAX]
    chosen = mean_f1.index(max(mean_f1))
    described = {bitext: _described(bitext, searched[bitext], encoder) for bitext in sets}
    classifier, f1_of = fitted(training, described, encoder)
    results, lengths = [], list[dict[str, Any]]()
    for test in tests:
        learnt = next(bitext for bitext in training if bitext.language == test.language)
        pairs = {way: way.pairs(*searched[test]) for way in (COSINE, MAX[chosen], INTERSECTION[chosen])}
        thresholds = {way: trials[test.language, way][0] for way in pairs}
        cuts = length_thresholds(MAX[chosen].pairs(*searched[learnt]), learnt)
        pairs[BY_LENGTH] = above_cuts(pairs[MAX[chosen]], test, cuts)
        pairs[CLASSIFIER] = described[test].pairs(chances(described[test], classifier))
        thresholds |= {BY_LENGTH: 1.0, CLASSIFIER: classifier.minimum}
        rows = {way: statistics(found.at_least(thresholds[way]), test) for way, found in pairs.items()}
        for way, found in pairs.items():
            results.append(
                {
                    "language": test.language,
                    "way": asdict(way),
                    "threshold": thresholds[way],
                    "scores": asdict(scored(rows[way])),
                    # F1 less that of the cosine.
                    "gain": asdict(compare([rows[way]], [rows[COSINE]], F1)),
                    # F1 of the threshold that would have been best here: what is missing is the threshold's fault.
                    "best": best_threshold(found, test.gold)[1],
                    # The share of true pairs whose translation is the nearest sentence of the other side.
                    "nearest": float((searched[test][0].ids[test.gold[:, 0], 0] == test.gold[:, 1]).mean()),
                }
            )
        limits = reach(test, searched[test], described[test])
        for way in (MAX[chosen], CLASSIFIER):
            by_length = _by_length(rows[way], test.sources, limits)
            lengths += [{"language": test.language, "way": asdict(way), **row} for row in by_length]
    return {
        "model": name,
        "kind": kind,
        "neighbours": NEIGHBOURS[chosen],
        "trials": [
            {"language": code, "way": asdict(way), "threshold": threshold, "f1": f1}
            for (code, way), (threshold, f1) in trials.items()
        ],
        "classifier": {"minimum": classifier.minimum, "f1": f1_of, "fitted": classifier.fitted},
        "results": results,
        "lengths": lengths,
        "encoded": vectors.encoded,
        "seconds": seconds,
    }, classifier


def _described(bitext: BitextSet, searched: Searched, encoder: Encoder) -> Candidates:
    """The candidates of a set with all their features."""
    pairs = candidates(*searched)
    sources, targets = (
        [side[n] for n in numbers.tolist()]
        for side, numbers in ((bitext.sources, pairs.sources), (bitext.targets, pairs.targets))
    )
    return described(pairs, sources, targets, encoder, show=True)


def fitted(
    training: Sequence[BitextSet], described: Mapping[BitextSet, Candidates], encoder: Encoder
) -> tuple[Confidence, dict[str, float]]:
    """The classifier of the training parts of all languages, and F1 by language on sentences that it was not fitted on.

    The least probability is that of the best mean F1 on such sentences, over the languages.
    """
    sets = []
    for bitext in training:
        pairs = described[bitext]
        everything = Pairs(pairs.sources, pairs.targets, np.zeros(len(pairs), np.float32))
        sets.append((pairs, marked(everything, bitext.gold)))
    found = [pairs.pairs(values) for (pairs, _), values in zip(sets, held_out_chances(sets), strict=True)]
    f1 = np.array(
        [
            [_f1(statistics(pairs.at_least(least), bitext).sum(axis=0)[None])[0] for least in CHANCES]
            for pairs, bitext in zip(found, training, strict=True)
        ]
    )
    best = int(f1.mean(axis=0).argmax())
    facts = {
        "encoder": encoder.id,
        "sets": {bitext.name: bitext.sha256[:16] for bitext in training},
        "candidates": sum(len(pairs) for pairs, _ in sets),
        "right": sum(int(right.sum()) for _, right in sets),
    }
    by_language = {bitext.language: float(row[best]) for bitext, row in zip(training, f1, strict=True)}
    return fit_classifier(sets, round(float(CHANCES[best]), 2), facts), by_language


def length_thresholds(pairs: Pairs, bitext: BitextSet) -> list[float]:
    """For the source sentences of each length the threshold with the best F1 among these."""
    bins = _bins(bitext.sources)
    cuts = []
    for number in range(len(LENGTHS) + 1):
        gold = bitext.gold[bins[bitext.gold[:, 0]] == number]
        inside = pairs.where(bins[pairs.sources] == number)
        cuts.append(best_threshold(inside, gold)[0] if len(inside) and len(gold) else float("inf"))
    return cuts


def above_cuts(pairs: Pairs, bitext: BitextSet, cuts: Sequence[float]) -> Pairs:
    """The pairs, best first, with their scores over the threshold of their length."""
    scores = pairs.scores / np.array(cuts, np.float32)[_bins(bitext.sources)[pairs.sources]]
    order = np.argsort(-scores, kind="stable")
    return Pairs(pairs.sources[order], pairs.targets[order], scores[order])


def reach(bitext: BitextSet, searched: Searched, pairs: Candidates) -> Rows:
    """For each true pair whether it is among the 4 and the 16 nearest of either sentence, and whether it is a candidate
    of the classifier, (true pairs, 3)."""
    sources, targets = bitext.gold.T
    ahead = searched[0].ids[sources] == targets[:, None]
    back = searched[1].ids[targets] == sources[:, None]
    among = [ahead[:, :near].any(axis=1) | back[:, :near].any(axis=1) for near in REACH]
    width = len(bitext.targets)
    return np.stack([*among, np.isin(sources * width + targets, pairs.sources * width + pairs.targets)], axis=1)


def _bins(sources: Sequence[str]) -> NDArray[np.int64]:
    """The number of each sentence's length in the table by length."""
    words = np.array([len(text.split()) for text in sources])
    return np.searchsorted(np.array(LENGTHS), words, side="right")


def _by_length(rows: Rows, sources: Sequence[str], limits: Rows) -> list[dict[str, Any]]:
    """The scores by the words of the source sentence: sentences of `least` to `most` words, their true pairs, the pairs
    that were found, those that are both, F1 with its interval, and the means of `limits` (true pairs, kinds), which are
    in the order of the true pairs' sources."""
    words = np.array([len(text.split()) for text in sources])
    bins, by_length = _bins(sources), []
    of_pairs = bins[np.flatnonzero(rows[:, 1])]
    for number, (least, after) in enumerate(pairwise((0, *LENGTHS, int(words.max(initial=LENGTHS[-1])) + 1))):
        inside = rows[bins == number]
        found, true, right = inside.sum(axis=0).astype(int).tolist()
        counts = {"sentences": len(inside), "true": true, "found": found, "right": right}
        reached = limits[of_pairs == number].mean(axis=0).tolist() if true else [0.0] * limits.shape[1]
        f1 = asdict(interval([inside], F1)) if len(inside) else {"value": 0.0, "low": 0.0, "high": 0.0}
        by_length.append({"least": least, "most": after - 1, **counts, "f1": f1, "reach": reached})
    return by_length


def timed(sentences: int, dimension: int) -> dict[str, float]:
    """The seconds of mining two sides of so many random vectors each, and what was timed."""
    rng = np.random.default_rng(1)
    sides = []
    for _ in range(2):
        vectors = rng.standard_normal((sentences, dimension), dtype=np.float32)
        sides.append((vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16))
    begin, work = time.perf_counter(), time.process_time()
    mined(nearest(sides[0], sides[1], TIMED_NEIGHBOURS), nearest(sides[1], sides[0], TIMED_NEIGHBOURS))
    return {
        "sentences": sentences,
        "dimension": dimension,
        "neighbours": TIMED_NEIGHBOURS,
        "seconds": time.perf_counter() - begin,
        "processor_seconds": time.process_time() - work,
        "threads": faiss.omp_get_max_threads(),
    }
