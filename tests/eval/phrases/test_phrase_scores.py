"""Metrics of phrase retrieval on values worked out by hand, and the bootstrap on cases with a known answer."""

from __future__ import annotations

import numpy as np
import pytest

from eval.phrases.runs import Outcomes, Scores, accuracies, average, difference, of_trainings, outcomes, scores


def made(right: list[bool], sentences: list[int] | None = None) -> Outcomes:
    none = np.zeros(len(right), dtype=bool)
    numbers = np.arange(len(right)) if sentences is None else np.array(sentences)
    return Outcomes(np.array(right, dtype=np.int64), none, none, numbers, 9)


def test_outcomes_of_hand_made_hits() -> None:
    truth = np.array([[0, 5, 10]] * 6)
    first = np.array([[0, 5, 10], [0, 5, 12], [0, 10, 12], [1, 5, 10], [-1, 5, 10], [0, 0, 6]])
    surfaces = np.array([[7, 1, 2], [1, 7, 2], [1, 2, 3], [7, 1, 2], [7, -1, -1], [1, 2, 7]])
    found = outcomes(surfaces, first, np.full(6, 7), truth, np.arange(6), 9)
    assert found.ranks.tolist() == [1, 2, 0, 1, 1, 3]
    assert found.instances.tolist() == [True, False, False, False, False, False]
    assert found.overlaps.tolist() == [True, True, False, False, False, True]
    assert scores(found) == pytest.approx(Scores(3 / 6, 1 / 6, (3 + 1 / 2 + 1 / 3) / 6, 3 / 6))


def test_a_hit_outside_the_set_is_never_the_true_instance() -> None:
    found = outcomes(np.array([[3]]), np.array([[-1, 0, 4]]), np.array([3]), np.array([[-1, 0, 4]]), np.array([0]), 9)
    assert not found.instances.any()
    assert not found.overlaps.any()


def test_averages_count_sets_alike() -> None:
    parts = [scores(made([True] * 9 + [False])), scores(made([False, True]))]
    assert average(parts).accuracy == pytest.approx((0.9 + 0.5) / 2)


def test_equal_systems_do_not_differ() -> None:
    same = made([True, False] * 50)
    assert difference([same], [same]) == difference([same], [same])
    found = difference([same], [same])
    assert (found.value, found.low, found.high, found.p) == (0, 0, 0, 1)


def test_a_clear_gain_is_significant_and_a_small_one_is_not() -> None:
    rng = np.random.default_rng(1)
    base = rng.random(1000) < 0.4
    clear, small = base | (rng.random(1000) < 0.3), base.copy()
    small[:3] = True
    found = difference([made(clear.tolist())], [made(base.tolist())])
    assert found.value == pytest.approx(clear.mean() - base.mean())
    assert 0 < found.low < found.value < found.high
    assert found.p == pytest.approx(1 / 10_001)
    worse = difference([made(base.tolist())], [made(clear.tolist())])
    assert (worse.value, worse.p) == (pytest.approx(-found.value), found.p)
    few = difference([made(small.tolist()[:20])], [made(base.tolist()[:20])])
    assert few.p > 0.05


def test_the_interval_is_that_of_the_normal_approximation() -> None:
    gain = np.random.default_rng(2).random(2000) < 0.25
    found = difference([made(gain.tolist())], [made([False] * 2000)])
    half = 1.96 * np.sqrt(gain.mean() * (1 - gain.mean()) / 2000)
    assert found.high - found.low == pytest.approx(2 * half, rel=0.1)


def test_trainings_count_by_their_mean_and_widen_the_interval() -> None:
    rng = np.random.default_rng(3)
    base = made((rng.random(400) < 0.4).tolist())
    parts = [made((rng.random(400) < share).tolist()) for share in (0.5, 0.6, 0.7)]
    together = of_trainings(parts)
    assert accuracies([together]) == pytest.approx([(part.ranks == 1).mean() for part in parts])
    assert accuracies([base]) == pytest.approx([(base.ranks == 1).mean()])
    assert scores(together).accuracy == pytest.approx(np.mean([scores(part).accuracy for part in parts]))
    assert scores(together).mrr == pytest.approx(np.mean([scores(part).mrr for part in parts]))
    one, several = difference([parts[1]], [base]), difference([together], [base])
    assert several.value == pytest.approx(np.mean([difference([part], [base]).value for part in parts]))
    assert several.high - several.low > one.high - one.low
    assert several.p > one.p
    assert of_trainings([base]) is base


def test_queries_of_a_sentence_are_drawn_together() -> None:
    gain = [True] * 100 + [False] * 100
    alone = difference([made(gain)], [made([False] * 200)])
    tied = difference([made(gain, [n // 20 for n in range(200)])], [made([False] * 200, [n // 20 for n in range(200)])])
    assert tied.high - tied.low > 3 * (alone.high - alone.low)


def test_sets_are_averaged_and_must_match() -> None:
    ours, theirs = [made([True] * 10), made([False] * 10)], [made([False] * 10)] * 2
    assert difference(ours, theirs).value == pytest.approx(0.5)
    with pytest.raises(ValueError, match="same queries"):
        difference([made([True, True], [0, 0])], [made([True, True], [0, 1])])
