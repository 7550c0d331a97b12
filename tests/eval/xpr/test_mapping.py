"""Orthogonal maps: rotations are found again, with pairs and without."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import orthogonal_procrustes

from eval.xpr.mapping import (
    SelfLearning,
    _dictionary,
    centre,
    first_dictionary,
    normalised,
    procrustes,
    self_learned,
    unit,
)
from rag_mt.base.types import Floats

SMALL = SelfLearning(first=300, patience=5, neighbours=5)


def rotation(width: int, seed: int) -> Floats:
    made, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((width, width)))
    return made.astype(np.float32)


def words(count: int, width: int, seed: int) -> Floats:
    """Vectors with clusters and directions of unequal weight, as those of words have."""
    rng = np.random.default_rng(seed)
    themes = rng.standard_normal((count // 10, width)) * np.linspace(2, 0.2, width)
    made = themes[rng.integers(len(themes), size=count)] + 0.6 * rng.standard_normal((count, width))
    return normalised(made.astype(np.float32), centre(made.astype(np.float32)))


@given(st.integers(2, 12), st.integers(0, 10_000))
def test_a_rotation_is_found_from_pairs(width: int, seed: int) -> None:
    source = np.random.default_rng(seed).standard_normal((4 * width, width)).astype(np.float32)
    turn = rotation(width, seed + 1)
    np.testing.assert_allclose(procrustes(source.T @ source @ turn), turn, atol=1e-4)


def test_with_noise_it_is_scipys_map() -> None:
    rng = np.random.default_rng(5)
    source, target = (rng.standard_normal((40, 9)).astype(np.float32) for _ in range(2))
    found = procrustes(source.T @ target)
    np.testing.assert_allclose(found, orthogonal_procrustes(source, target)[0], atol=1e-5)
    np.testing.assert_allclose(found @ found.T, np.eye(9), atol=1e-5)


def test_rows_are_centred_between_two_lengths() -> None:
    rows = np.array([[3.0, 0], [0, 2], [0, 0]], np.float32)
    np.testing.assert_allclose(unit(rows), [[1, 0], [0, 1], [0, 0]])
    mean = centre(rows[:2])
    np.testing.assert_allclose(mean, [0.5, 0.5])
    half = math.sqrt(0.5)
    np.testing.assert_allclose(normalised(rows, mean), [[half, -half], [-half, half], [0, 0]], atol=1e-6)


def slow_dictionary(similarities: Floats, neighbours: int) -> set[tuple[int, int]]:
    """CSLS as it is written down, cell by cell."""
    rows, columns = similarities.shape
    of_rows = [np.mean(sorted(similarities[i])[-neighbours:]) for i in range(rows)]
    of_columns = [np.mean(sorted(similarities[:, j])[-neighbours:]) for j in range(columns)]
    csls = np.array(
        [[2 * similarities[i, j] - of_rows[i] - of_columns[j] for j in range(columns)] for i in range(rows)]
    )
    forward = {(i, int(csls[i].argmax())) for i in range(rows)}
    return forward | {(int(csls[:, j].argmax()), j) for j in range(columns)}


def test_the_dictionary_is_that_of_csls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eval.xpr.mapping.BLOCK", 7)
    similarities = np.random.default_rng(2).standard_normal((30, 23)).astype(np.float32)
    pairs, mean = _dictionary(torch.from_numpy(similarities), 4, 1.0, torch.Generator())
    assert set(map(tuple, pairs.tolist())) == slow_dictionary(similarities, 4)
    assert len(pairs) == 53
    assert mean == pytest.approx((similarities.max(1).mean() + similarities.max(0).mean()) / 2, abs=1e-5)


def test_the_first_dictionary_sees_through_a_rotation() -> None:
    source = words(300, 20, seed=1)
    mixed = np.random.default_rng(3).permutation(300)
    pairs = first_dictionary(source, (source @ rotation(20, 4))[mixed], SMALL)
    assert pairs.shape == (600, 2)
    assert (mixed[pairs[:, 1]] == pairs[:, 0]).mean() > 0.9


def test_a_noisy_rotation_is_learnt_without_pairs() -> None:
    """The sides share most of their words in another order, and every vector is disturbed."""
    rng = np.random.default_rng(7)
    everything = words(420, 20, seed=6)
    turn = rotation(20, 8)
    mixed = rng.permutation(400)
    disturbed = everything @ turn + 0.03 * rng.standard_normal((420, 20)).astype(np.float32)
    target = normalised(disturbed[mixed], np.zeros(20, np.float32))
    source = everything[20:]
    first = first_dictionary(source, target, SMALL)
    rotation_found, similarity, rounds = self_learned(source, target, SMALL)
    nearest = (source @ rotation_found @ target.T).argmax(1)
    shared = np.isin(np.arange(20, 420), mixed)
    right = (mixed[nearest] == np.arange(20, 420))[shared].mean()
    assert right > 0.95
    assert right > (mixed[first[:, 1]] == first[:, 0] + 20).mean() + 0.2, "learning has improved on its beginning"
    assert SMALL.patience < rounds < SMALL.most
    assert 0.8 < similarity <= 1


def test_equal_seeds_learn_equal_maps() -> None:
    source, target = words(60, 8, seed=1), words(60, 8, seed=2)
    few = SelfLearning(first=50, most=8)
    (first, _, rounds), (second, *_) = (self_learned(source, target, few) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert rounds == 8
    np.testing.assert_allclose(first @ first.T, np.eye(8), atol=1e-4)
    other, *_ = self_learned(source, target, SelfLearning(first=50, most=8, seed=2))
    assert not np.allclose(first, other, atol=1e-3)
