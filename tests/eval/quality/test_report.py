"""The report on estimates: its numbers on sets whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from eval.data.judgements import Judged, JudgedSet
from eval.quality.__main__ import PEARSON, Scored, against


def scored(seed: int = 1, count: int = 200) -> Scored:
    """A set with an estimator that is right up to noise, a cosine that knows nothing, and lengths that are the
    truth."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=count)
    rows = [Judged(f"source {n // 2}", "x", float(value)) for n, value in enumerate(truth)]
    ways = {"estimator": truth + rng.normal(0, 0.5, count), "cosine": rng.normal(size=count), "lengths": truth.copy()}
    return Scored(JudgedSet("mqm", "en-de", "dev", rows), truth, ways)


def test_pearson_is_that_of_numpy() -> None:
    own = scored()
    for way in own.ways:
        expected = np.corrcoef(own.ways[way], own.truth)[0, 1]
        assert PEARSON.corpus(own.statistics(way).sum(axis=0, keepdims=True))[0] == pytest.approx(expected)
        assert own.correlation(way) == pytest.approx(expected)


def test_the_worst_fifth() -> None:
    own = scored()
    assert own.found("lengths") == 1.0
    assert own.found("estimator") > 0.5 > own.found("cosine")


def test_what_is_better_is_significant_and_what_is_worse_is_below() -> None:
    own = scored()
    better, worse = against([own], "cosine")["mqm.en-de.dev"], against([own], "lengths")["mqm.en-de.dev"]
    assert better.low > 0 and better.p < 0.01
    assert worse.high < 0 and worse.p < 0.05
