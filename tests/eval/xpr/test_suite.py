"""Accuracy of phrase retrieval both ways against a slow reference, and what is asked."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from numpy.typing import NDArray

from eval.xpr.suite import Asked, compared, nearest, result, score, task
from rag_mt.base.types import Floats
from retrievers.xpr.examples import ExampleSet, Side, sentence_table, write_examples

SOURCE = ("haus", "heim", "hund", "katze", "ding", "frei")
TARGET = ("house", "home", "dog", "cat", "thing")
# House and home are both right for haus; ding-thing is training; frei is in no pair; cat is known for hund.
PAIRS = [[0, 0, 2], [1, 1, 2], [2, 2, 2], [0, 1, 2], [4, 4, 0], [3, 3, 1], [2, 3, 3]]


def side(language: str, phrases: tuple[str, ...]) -> Side:
    spans = [[n, n, 0, len(p)] for n, p in enumerate(phrases)]
    return Side(language, phrases, sentence_table(phrases), np.array(spans, np.int32))


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> ExampleSet:
    folder = tmp_path_factory.mktemp("sets") / "de-en"
    rows = np.array(PAIRS, np.int32)
    return write_examples(folder, "de-en", (side("de", SOURCE), side("en", TARGET)), rows, {})


def test_what_is_asked_and_searched(own: ExampleSet) -> None:
    asked = task(own, "test", others=10)
    assert asked.pairs.tolist() == [[0, 0], [1, 1], [2, 2], [0, 1]]
    assert asked.candidates[0].tolist() == [0, 1, 2, 5], "asked phrases, then those of no pair"
    assert asked.candidates[1].tolist() == [0, 1, 2]
    assert asked.asked == [3, 3]
    assert asked.concepts.tolist() == ["house", "home", "dog", "home"] and not asked.several.any()
    assert asked.answers[1][0] == {0, 1}
    assert asked.answers[1][2] == {2, 3}, "known translations are right"
    assert task(own, "test", others=0).candidates[0].tolist() == [0, 1, 2]


def test_some_pairs_are_those_of_whole_concepts(own: ExampleSet) -> None:
    two = task(own, "test", others=10, most=2)
    assert len(two.pairs) == 2
    assert two.asked == [len(set(two.pairs[:, 0].tolist())), len(set(two.pairs[:, 1].tolist()))]
    assert two.candidates[0].tolist()[-1] == 5
    assert task(own, "test", others=10, most=2).pairs.tolist() == two.pairs.tolist()
    assert [two.answers[1][n] for n in range(2)] == [
        task(own, "test", 0).answers[1][task(own, "test", 0).pairs.tolist().index(pair)] for pair in two.pairs.tolist()
    ]


def slow_right(own: ExampleSet, sides: tuple[Floats, Floats], others: int) -> list[list[bool]]:
    """The definition, query by query."""
    asked = task(own, "test", others)
    made = []
    for begin in (0, 1):
        row = []
        for n, pair in enumerate(asked.pairs.tolist()):
            query = sides[begin][pair[begin]]
            scores = {
                c: query @ sides[1 - begin][c] / np.linalg.norm(sides[1 - begin][c])
                for c in asked.candidates[1 - begin].tolist()
            }
            row.append(max(scores, key=scores.__getitem__) in asked.answers[1 - begin][n])
        made.append(row)
    return made


@pytest.mark.parametrize("seed", range(5))
def test_results_are_those_of_the_definition(own: ExampleSet, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eval.xpr.suite.BLOCK", 2)
    rng = np.random.default_rng(seed)
    sides = rng.standard_normal((6, 4)).astype(np.float32), rng.standard_normal((5, 4)).astype(np.float32)
    found = result(task(own, "test", 10), lambda side, rows: sides[side][rows])
    assert found.among_all.tolist() == slow_right(own, sides, 10)
    assert found.among_own.tolist() == slow_right(own, sides, 0)


def test_a_phrase_without_a_vector_finds_nothing(own: ExampleSet) -> None:
    sides = np.zeros((6, 2), np.float32), np.ones((5, 2), np.float32)
    found = result(task(own, "test", 0), lambda side, rows: sides[side][rows])
    assert not found.among_all[0].any()


def test_nearest_takes_the_first_of_equals() -> None:
    assert nearest(np.ones((1, 2), np.float32), np.ones((3, 2), np.float32)).tolist() == [0]
    assert nearest(np.zeros((0, 2), np.float32), np.ones((3, 2), np.float32)).tolist() == []


def told(right: NDArray[np.bool_], concepts: Iterable[int]) -> Asked:
    names = np.array([f"concept {n}" for n in concepts])
    return Asked(right, names, np.arange(len(names)) % 2 == 0)


def asked(right: list[list[int]], concepts: list[int]) -> Asked:
    return told(np.array(right, bool), concepts)


def test_accuracy_is_the_mean_of_both_directions_and_of_sets() -> None:
    first = asked([[1, 1, 0, 0], [1, 0, 0, 0]], [0, 1, 2, 3])
    second = asked([[1, 1], [1, 1]], [0, 1])
    assert first.accuracy == 0.375
    whole = score([first, second])
    assert whole.value == pytest.approx((0.375 + 1) / 2)
    assert whole.low < whole.value < whole.high
    assert score([second]).low == score([second]).high == 1


def test_pairs_of_a_concept_are_drawn_together() -> None:
    rng = np.random.default_rng(0)
    right = rng.random((2, 400)) < 0.5
    right[:, 1::2] = right[:, ::2]  # pairs of a concept say the same twice
    alone = score([told(right, range(400))])
    together = score([told(right, np.arange(400) // 2)])
    assert together.high - together.low > 1.25 * (alone.high - alone.low)
    one, other = right[:, ::2], right[:, 1::2]  # the same as two sets
    apart = score([told(one, range(200)), told(other, range(200, 400))])
    shared = score([told(one, range(200)), told(other, range(200))])
    assert shared.value == apart.value and shared.high - shared.low > 1.25 * (apart.high - apart.low)


def test_pairs_of_several_words_are_told_apart() -> None:
    found = asked([[1, 0, 1, 0], [1, 0, 0, 0]], [5, 6, 7, 8]).of_several_words()
    assert found.right.tolist() == [[True, True], [True, False]] and found.concepts.tolist() == [
        "concept 5",
        "concept 7",
    ]


def test_systems_are_compared_on_the_same_pairs() -> None:
    ours, theirs = asked([[1, 1, 1], [1, 1, 0]], [0, 1, 2]), asked([[0, 0, 0], [0, 0, 0]], [0, 1, 2])
    gain = compared([ours], [theirs])
    assert gain.value == pytest.approx(5 / 6)
    assert gain.low > 0
    assert gain.p == pytest.approx(2 / 2**3, abs=0.015)  # all exchanges but two are nearer to 0
    with pytest.raises(ValueError, match="same pairs"):
        compared([ours], [asked([[0, 0], [0, 0]], [0, 1])])
