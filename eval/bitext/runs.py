"""Mining in sets whose true pairs are known: settings chosen on the training part, scores on the test part.

Precision, recall and F1 are counted as BUCC does: a pair is right if it is one of the true ones.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
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
from retrievers.mining.margin import Neighbours, Pairs, Strategy, absolute, mined, nearest, ratio

NEIGHBOURS = (1, 2, 4, 8, 16)
TIMED_NEIGHBOURS = 4
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
MAX, INTERSECTION = ([Way("margin", k, strategy) for k in NEIGHBOURS] for strategy in ("max", "intersection"))
WAYS = (COSINE, *MAX, *INTERSECTION)


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
) -> dict[str, Any]:
    """Encode both parts of every language (what `cache` holds is not encoded again), choose the number of neighbours
    and the thresholds on the training parts, and score the test parts.

    What is returned is JSON-able: `trials` on the training parts, `results` on the test parts, the scores by `lengths`
    of source sentences, how many sentences were `encoded`, and the `seconds` of comparing all of them.
    """
    vectors, seconds = VectorCache(cache, encoder, kind), 0.0
    searched: dict[BitextSet, tuple[Neighbours, Neighbours]] = {}
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
    results, lengths = [], {}
    for test in tests:
        baseline = None
        for way in (COSINE, MAX[chosen], INTERSECTION[chosen]):
            threshold, _ = trials[test.language, way]
            pairs = way.pairs(*searched[test])
            rows = statistics(pairs.at_least(threshold), test)
            baseline = rows if baseline is None else baseline
            results.append(
                {
                    "language": test.language,
                    "way": asdict(way),
                    "threshold": threshold,
                    "scores": asdict(scored(rows)),
                    # F1 less that of the cosine.
                    "gain": asdict(compare([rows], [baseline], F1)),
                    # F1 of the threshold that would have been best here: what is missing is the threshold's fault.
                    "best": best_threshold(pairs, test.gold)[1],
                    # The share of true pairs whose translation is the nearest sentence of the other side.
                    "nearest": float((searched[test][0].ids[test.gold[:, 0], 0] == test.gold[:, 1]).mean()),
                }
            )
            if way == MAX[chosen]:
                lengths[test.language] = _by_length(rows, test.sources)
    return {
        "model": name,
        "kind": kind,
        "neighbours": NEIGHBOURS[chosen],
        "trials": [
            {"language": code, "way": asdict(way), "threshold": threshold, "f1": f1}
            for (code, way), (threshold, f1) in trials.items()
        ],
        "results": results,
        "lengths": lengths,
        "encoded": vectors.encoded,
        "seconds": seconds,
    }


def _by_length(rows: Rows, sources: Sequence[str]) -> list[dict[str, float]]:
    """The scores by the words of the source sentence: sentences of `least` to `most` words, their true pairs, the pairs
    that were found, those that are both, and F1."""
    words = np.array([len(text.split()) for text in sources])
    by_length = []
    for least, after in pairwise((0, *LENGTHS, int(words.max(initial=LENGTHS[-1])) + 1)):
        inside = rows[(words >= least) & (words < after)]
        found, true, right = inside.sum(axis=0).astype(int).tolist()
        counts = {"sentences": len(inside), "true": true, "found": found, "right": right}
        f1 = float(_f1(inside.sum(axis=0)[None])[0])
        by_length.append({"least": least, "most": after - 1, **counts, "f1": f1})
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
