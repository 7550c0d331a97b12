"""Intervals, p-values and their correction: sacreBLEU's own numbers, cases whose answer is known, and the null."""

from __future__ import annotations

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest
from scipy.stats import kstest, permutation_test

from eval.metrics import open_metrics
from eval.metrics.formulas import mean_rows
from eval.significance import SEED, compare, difference, holm, interval

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
    (metric,) = open_metrics([name], "en")
    rows = [metric.statistics([], outputs, references) for outputs in (ours, baseline)]
    found = compare([rows[0]], [rows[1]], metric.formula, resamples=300, trials=400)
    test = PairedTest([("b", baseline), ("s", ours)], {"m": theirs}, [references], "ar", 400)
    assert test._seed == SEED
    (result,) = [r[1] for key, r in test()[1].items() if key != "System"]
    assert found.p == pytest.approx(result.p_value, abs=1.01 / 400)  # one sample may fall on the edge
    assert found.low < found.value < found.high


def test_p_is_exact_where_all_exchanges_can_be_counted() -> None:
    ours, theirs = np.array([5.0, 7, 6, 8, 9, 4, 6, 7]), np.array([4.0, 6.5, 6.2, 6, 8.5, 4.1, 5, 6])
    exact = permutation_test(
        (ours, theirs), lambda a, b, axis: np.mean(a - b, axis=axis), permutation_type="samples", vectorized=True
    )
    found = compare([mean_rows(ours)], [mean_rows(theirs)], "mean", trials=40_000)
    assert found.p == pytest.approx(exact.pvalue, abs=0.003)


def test_known_cases() -> None:
    rng = np.random.default_rng(3)
    noise = rng.normal(50, 10, 200)
    equal = compare([mean_rows(noise)], [mean_rows(noise)], "mean")
    assert (equal.value, equal.low, equal.high, equal.p) == (0, 0, 0, 1)
    better = compare([mean_rows(noise + rng.normal(2, 1, 200))], [mean_rows(noise)], "mean")
    assert better.low > 1.5 and better.high < 2.5 and better.p < 0.0002
    worse = compare([mean_rows(noise)], [mean_rows(noise + 2 + rng.normal(0, 1, 200))], "mean")
    assert worse.p < 0.0002 and worse.high < 0
    same = compare([mean_rows(noise)], [mean_rows(rng.permutation(noise))], "mean")
    assert same.p > 0.05 and same.low < 0 < same.high


def test_the_interval_is_that_of_a_mean() -> None:
    gap = np.random.default_rng(4).normal(0.3, 2, 400)
    found = compare([mean_rows(gap)], [mean_rows(np.zeros(400))], "mean", resamples=4000)
    error = gap.std() / 20
    assert found.value == pytest.approx(gap.mean())
    assert found.low == pytest.approx(gap.mean() - 1.96 * error, abs=0.02)
    assert found.high == pytest.approx(gap.mean() + 1.96 * error, abs=0.02)
    alone = interval([mean_rows(gap)], "mean", resamples=4000)
    assert (alone.value, alone.low, alone.high) == (found.value, found.low, found.high)


def null(seed: int, clustered: bool, trainings: int = 1) -> float:
    """p where nothing differs: 40 clusters of 5 units that mostly say the same."""
    rng, groups = np.random.default_rng(seed), np.repeat(np.arange(40), 5)
    sides = [rng.normal(0, 1, 40)[groups] + rng.normal(0, 0.3, (trainings, 200)) for _ in range(2)]
    return compare(
        [mean_rows(sides[0])], [mean_rows(sides[1])], "mean", [groups] if clustered else None, 50, 400, seed
    ).p


@pytest.mark.parametrize("trainings", [1, 3])
def test_p_is_uniform_where_nothing_differs(trainings: int) -> None:
    found = [null(seed, True, trainings) for seed in range(300)]
    assert kstest(found, "uniform").statistic < 0.08
    assert np.mean(np.array(found) < 0.05) == pytest.approx(0.05, abs=0.035)


def test_units_of_a_cluster_taken_for_independent_mislead() -> None:
    assert np.mean([null(seed, False) < 0.05 for seed in range(100)]) > 0.2


def test_the_interval_holds_the_true_difference_in_95_of_100() -> None:
    groups, held = np.repeat(np.arange(60), 4), 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        gap = 0.5 + rng.normal(0, 1, 60)[groups] + rng.normal(0, 1, 240)
        found = interval([mean_rows(gap)], "mean", [groups], 300, seed)
        held += found.low <= 0.5 <= found.high
    assert held / 200 == pytest.approx(0.95, abs=0.045)


def test_trainings_count_by_their_mean_and_widen_the_interval() -> None:
    rng = np.random.default_rng(8)
    units = rng.normal(0, 1, 300)
    trainings = units + np.array([[-1.0], [0.0], [1.0]])
    found, alone = interval([mean_rows(trainings)], "mean"), interval([mean_rows(units)], "mean")
    assert found.value == pytest.approx(alone.value)
    assert found.high - found.low > 3 * (alone.high - alone.low)
    assert interval([mean_rows(np.stack([units] * 3))], "mean").low == pytest.approx(alone.low)
    with pytest.raises(ValueError, match="different numbers of trainings"):
        interval([mean_rows(trainings), mean_rows(units)], "mean")


def test_sets_are_averaged_and_share_the_clusters_of_one_name() -> None:
    rng = np.random.default_rng(9)
    values = rng.normal(0, 1, 200)
    names = np.array([f"article {n}" for n in range(200)])
    same = interval([mean_rows(values)] * 2, "mean", [names, names])
    apart = interval([mean_rows(values)] * 2, "mean", [names, np.char.add("other ", names)])
    assert same.value == pytest.approx(apart.value)
    assert same.high - same.low > 1.25 * (apart.high - apart.low)
    ours = [mean_rows(np.full(10, 1.0)), mean_rows(np.zeros(30))]
    assert compare(ours, [mean_rows(np.zeros(10)), mean_rows(np.zeros(30))], "mean").value == pytest.approx(0.5)


def test_units_must_match() -> None:
    with pytest.raises(ValueError, match="not of the same units"):
        compare([mean_rows(np.zeros(3))], [mean_rows(np.zeros(4))], "mean")
    with pytest.raises(ValueError, match="clusters are not those"):
        interval([mean_rows(np.zeros(3))], "mean", [np.arange(4)])


def test_what_is_drawn_does_not_depend_on_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    sides = [[mean_rows(rng.normal(0, 1, 50))] for _ in range(2)]
    whole = compare(sides[0], sides[1], "mean")
    monkeypatch.setattr("eval.significance.CELLS", 1)
    assert compare(sides[0], sides[1], "mean") == whole


@pytest.mark.parametrize(
    ("given", "corrected"),
    [
        ([], []),
        ([0.04], [0.04]),
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),  # Holm (1979), worked out by hand
        ([0.5, 0.6, 0.001], [1.0, 1.0, 0.003]),
    ],
)
def test_holm(given: list[float], corrected: list[float]) -> None:
    assert list(holm(dict(enumerate(given))).values()) == pytest.approx(corrected)


def test_a_family_has_a_false_mark_in_one_of_twenty_at_most() -> None:
    rng = np.random.default_rng(2)
    tables = rng.random((2000, 30))
    marked = [min(holm(dict(enumerate(row.tolist()))).values()) < 0.05 for row in tables]
    assert np.mean(marked) < 0.065
    assert np.mean(tables.min(axis=1) < 0.05) > 0.75  # without a correction


def test_p_is_about_other_trainings_where_that_is_asked() -> None:
    """Three trainings of two equal systems, which say more about themselves than the clusters do."""
    groups, found = np.repeat(np.arange(40), 5), []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        sides = [
            mean_rows(rng.normal(0, 0.3, (3, 1)) + rng.normal(0, 1, (1, 40))[:, groups] * 0.1 + rng.normal(0, 1, 200))
            for _ in range(2)
        ]
        found.append(
            [
                compare([sides[0]], [sides[1]], "mean", [groups], 50, 400, seed, other_trainings=other).p < 0.05
                for other in (False, True)
            ]
        )
    these, others = np.mean(found, axis=0)
    assert these > 0.15 and others < 0.09


def test_trainings_of_one_seed_are_a_pair() -> None:
    """What a seed does to both systems is no difference between them."""
    rng = np.random.default_rng(2)
    seeds, units = rng.normal(0, 3, (3, 1)), rng.normal(0, 1, 300)
    ours, theirs = mean_rows(seeds + units + 0.5 + rng.normal(0, 0.2, (3, 300))), mean_rows(seeds + units)
    paired = compare([ours], [theirs], "mean", other_trainings=True)
    assert paired.p < 0.01 and 0.4 < paired.low < paired.high < 0.6
    alone = compare([ours], [theirs[:2]], "mean", other_trainings=True)
    assert alone.p > 0.2 and alone.high - alone.low > 2
    unpaired, ends = compare([ours], [theirs], "mean"), difference([ours], [theirs], "mean")
    assert (ends.value, ends.low, ends.high) == (unpaired.value, unpaired.low, unpaired.high)
