"""Combining rankings, against slow references."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_mt.base.errors import UserError
from retrievers.passage import HybridSettings, Rankings, min_max, reciprocal_rank_fusion, weighted


def ranking(*rows):
    """Rows of {id: score}, padded with -1."""
    depth = max((len(row) for row in rows), default=0)
    ids, scores = np.full((len(rows), depth), -1), np.zeros((len(rows), depth), np.float32)
    for n, row in enumerate(rows):
        best = sorted(row.items(), key=lambda item: (-item[1], item[0]))
        ids[n, : len(best)] = [key for key, _ in best]
        scores[n, : len(best)] = [value for _, value in best]
    return Rankings(scores, ids)


def scaled(row):
    if not row:
        return {}
    low, high = min(row.values()), max(row.values())
    return {key: (value - low) / (high - low) if high > low else 1.0 for key, value in row.items()}


def test_scores_are_put_between_0_and_1_per_query():
    made = min_max(ranking({1: 8.0, 2: 4.0, 3: 6.0}, {5: 0.9}, {}))
    assert made.tolist() == [[1, 0.5, 0], [1, 0, 0], [0, 0, 0]]


rows = st.dictionaries(st.integers(0, 9), st.sampled_from([0.25, 0.5, 0.75, 1.0, 3.0]), max_size=6)


@given(rows, rows, st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(1, 12))
def test_a_missing_text_counts_0(terms, dense, alpha, k):
    made = weighted(ranking(terms, terms), ranking(dense, {}), alpha, k)
    for n, own in enumerate((dense, {})):
        first, second = scaled(terms), scaled(own)
        sums = {key: alpha * first.get(key, 0) + (1 - alpha) * second.get(key, 0) for key in {**first, **second}}
        best = sorted(sums.items(), key=lambda item: (-round(item[1], 5), item[0]))[:k]
        found = [(i, s) for i, s in zip(made.ids[n].tolist(), made.scores[n].tolist(), strict=True) if i >= 0]
        wanted = pytest.approx([value for _, value in best], abs=1e-6)
        assert len({i for i, _ in found}) == len(best)
        assert [s for _, s in found] == wanted and [sums[i] for i, _ in found] == wanted  # rounding orders equals


def test_alpha_at_its_ends_is_one_ranking_alone():
    terms, dense = ranking({1: 9, 2: 5, 3: 1}), ranking({4: 0.9, 3: 0.8, 1: 0.1})
    assert weighted(terms, dense, 1.0, 2).ids.tolist() == [[1, 2]]
    assert weighted(terms, dense, 0.0, 2).ids.tolist() == [[4, 3]]


def test_reciprocal_rank_fusion():
    made = reciprocal_rank_fusion([ranking({1: 9, 2: 5}), ranking({2: 0.9, 3: 0.8})], 5)
    assert made.ids[0].tolist()[:3] == [2, 1, 3]
    assert made.scores[0, :3].tolist() == pytest.approx([1 / 62 + 1 / 61, 1 / 61, 1 / 62])


@pytest.mark.parametrize("alpha", [-0.1, 1.1])
def test_an_alpha_that_is_no_share(alpha):
    with pytest.raises(UserError, match="alpha"):
        weighted(ranking({1: 1}), ranking({1: 1}), alpha, 1)
    with pytest.raises(UserError, match="alpha"):
        HybridSettings(alpha=alpha)
