"""Tests of significance: sacreBLEU's own numbers, and cases whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from eval.metrics import MetricSettings, open_metrics
from eval.metrics.formulas import FORMULAS
from eval.significance import SEED, bootstrap, compare, randomized

WORDS = np.array(["the", "dog", "cat", "house", "river", "runs", "sleeps", "green", "old", "and", "under", "small"])


def corpus(seed: int, noise: float, count: int = 60) -> tuple[list[str], list[str]]:
    """References and outputs in which a share of the words is another one."""
    rng, other = np.random.default_rng(5), np.random.default_rng(seed)
    references = [WORDS[rng.integers(len(WORDS), size=rng.integers(5, 12))] for _ in range(count)]
    outputs = [
        np.where(other.random(len(r)) < noise, WORDS[other.integers(len(WORDS), size=len(r))], r) for r in references
    ]
    return [" ".join(r) for r in references], [" ".join(o) for o in outputs]


@pytest.mark.parametrize(("name", "theirs"), [("bleu", BLEU()), ("chrf", CHRF()), ("chrf++", CHRF(word_order=2))])
@pytest.mark.parametrize(("first", "second"), [(0.30, 0.33), (0.30, 0.42), (0.3, 0.6)])
def test_p_values_are_those_of_sacrebleu(name: str, theirs: BLEU | CHRF, first: float, second: float) -> None:
    references, ours = corpus(1, first)
    baseline = corpus(2, second)[1]
    (metric,) = open_metrics([name], MetricSettings(), "en")
    rows = [metric.statistics([], outputs, references) for outputs in (ours, baseline)]
    found = compare([rows[0]], [rows[1]], metric.formula, resamples=300, trials=400)
    for kind, samples, own in (("bs", 300, found.bootstrap), ("ar", 400, found.randomization)):
        test = PairedTest([("b", baseline), ("s", ours)], {"m": theirs}, [references], kind, samples)
        assert test._seed == SEED
        (result,) = [r[1] for key, r in test()[1].items() if key != "System"]
        assert own == pytest.approx(result.p_value, abs=1.01 / samples)  # one sample may fall on the edge
    assert found.low < found.value < found.high


def means(values: np.ndarray) -> np.ndarray:
    return np.stack([values, np.ones(len(values))], axis=1)


def test_known_cases() -> None:
    rng = np.random.default_rng(3)
    noise = rng.normal(50, 10, 200)
    equal = compare([means(noise)], [means(noise)], "mean")
    assert (equal.value, equal.low, equal.high) == (0, 0, 0)
    assert equal.bootstrap == equal.randomization == 1 and not equal.significant
    better = compare([means(noise + rng.normal(2, 1, 200))], [means(noise)], "mean")
    assert better.significant and better.low > 1.5 and better.high < 2.5
    assert better.bootstrap < 0.002 and better.randomization < 0.0002
    worse = compare([means(noise)], [means(noise + 2 + rng.normal(0, 1, 200))], "mean")
    assert worse.significant and worse.high < 0
    same = compare([means(noise)], [means(rng.permutation(noise))], "mean")
    assert not same.significant and same.low < 0 < same.high


def test_the_interval_is_that_of_a_mean() -> None:
    gap = np.random.default_rng(4).normal(0.3, 2, 400)
    found = compare([means(gap)], [means(np.zeros(400))], "mean", resamples=4000)
    error = gap.std() / 20
    assert found.value == pytest.approx(gap.mean())
    assert found.low == pytest.approx(gap.mean() - 1.96 * error, abs=0.02)
    assert found.high == pytest.approx(gap.mean() + 1.96 * error, abs=0.02)


def test_p_values_are_spread_evenly_where_nothing_differs() -> None:
    rng = np.random.default_rng(6)
    found = [
        compare([means(rng.normal(0, 1, 50))], [means(rng.normal(0, 1, 50))], "mean", 200, 400, seed)
        for seed in range(200)
    ]
    assert np.mean([own.randomization < 0.05 for own in found]) == pytest.approx(0.05, abs=0.045)
    assert np.mean([own.randomization < 0.5 for own in found]) == pytest.approx(0.5, abs=0.12)


def test_the_bootstrap_alone_is_too_sure() -> None:
    """Why a difference needs both tests: sacreBLEU's p-value of the bootstrap is nearly one-sided."""
    rng = np.random.default_rng(8)
    found = [compare([means(rng.normal(0, 1, 100))], [means(np.zeros(100))], "mean", 200, 200, n) for n in range(200)]
    assert 0.06 < np.mean([own.bootstrap < 0.05 for own in found]) < 0.2
    assert np.mean([own.significant for own in found]) == pytest.approx(0.05, abs=0.045)


@pytest.mark.parametrize(("count", "samples"), [(7, 1100), (64, 600)])
def test_blocks_draw_what_one_draw_would(count: int, samples: int) -> None:
    rows, zero = means(np.random.default_rng(2).normal(0, 1, count)), means(np.zeros(count))
    how = FORMULAS["mean"]
    drawn = np.random.default_rng(3).choice(count, size=(samples, count), replace=True)
    expected = rows[drawn][:, :, 0].mean(axis=1)
    assert bootstrap(rows, zero, how, samples, 3) == pytest.approx(expected)
    swapped = np.random.default_rng(3).integers(2, size=(samples, count), dtype=bool)
    expected = np.where(swapped, -1, 1) @ rows[:, 0] / count
    assert randomized(rows, zero, how, samples, 3) == pytest.approx(expected)


def test_several_directions_count_alike() -> None:
    rng = np.random.default_rng(7)
    first, second = rng.normal(10, 1, 30), rng.normal(10, 1, 300)
    both = compare([means(first + 3), means(second + 1)], [means(first), means(second)], "mean")
    assert both.value == pytest.approx(2)
    assert both == compare([means(first + 3), means(second + 1)], [means(first), means(second)], "mean")
    assert both.significant
    with pytest.raises(ValueError, match="same sentences"):
        compare([means(first)], [means(second)], "mean")
