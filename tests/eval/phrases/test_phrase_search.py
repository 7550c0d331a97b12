"""The streaming search against a search of everything at once."""

from __future__ import annotations

import numpy as np
import pytest

from eval.phrases.search import TopSurfaces


def brute_force(scores, surfaces, k):
    """Per query the best scores (queries, candidates) of distinct surfaces, best first."""
    best = np.full((len(scores), surfaces.max() + 1), -np.inf)
    np.maximum.at(best, (slice(None), surfaces), scores)
    return -np.sort(-best)[:, :k]


@pytest.mark.parametrize("kind", ["unit", "narrow", "long"])
@pytest.mark.parametrize("block", [5000, 333])
def test_it_finds_what_a_full_search_finds(kind: str, block: int) -> None:
    rng = np.random.default_rng(0)
    queries, candidates = rng.normal(size=(70, 24)), rng.normal(size=(5000, 24))
    if kind == "narrow":  # all cosines near each other, as in an encoder's upper layers
        queries, candidates = queries * 0.1 + 1, candidates * 0.1 + 1
    if kind == "long":  # the inner product of vectors of any length
        candidates = candidates * rng.uniform(0.1, 40, size=(5000, 1))
    else:
        queries /= np.linalg.norm(queries, axis=1, keepdims=True)
        candidates /= np.linalg.norm(candidates, axis=1, keepdims=True)
    queries, candidates = queries.astype(np.float32), candidates.astype(np.float32)
    surfaces = rng.integers(0, 400, size=5000)
    top = TopSurfaces(queries, k=7)
    for begin in range(0, 5000, block):
        part = slice(begin, begin + block)
        top.add(candidates[part], surfaces[part], np.arange(5000)[part])
    found = top.best()
    assert (found["surface"] == surfaces[found["number"]]).all()
    assert all(len(set(row)) == 7 for row in found["surface"].tolist())
    scores = queries.astype(np.float64) @ candidates.T.astype(np.float64)
    exact = np.take_along_axis(scores, found["number"], axis=1)
    # Which of two nearly equal ones is better depends on the rounding of the processor.
    np.testing.assert_allclose(exact, brute_force(scores, surfaces, 7), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found["score"], exact, rtol=1e-4, atol=1e-5)
    assert top.seen == 5000


def test_equal_scores_go_by_number_and_gaps_are_marked() -> None:
    queries = np.array([[1, 0]], dtype=np.float32)
    vectors = np.array([[0.5, 0], [0.5, 0], [0.2, 0.9], [0.5, 0]], dtype=np.float32)
    top = TopSurfaces(queries, k=4)
    top.add(vectors[:0], np.zeros(0, np.int64), np.zeros(0, np.int64))
    top.add(vectors, np.array([3, 4, 5, 3]), np.array([12, 11, 10, 9]))
    found = top.best()
    assert found["number"].tolist() == [[9, 11, 10, -1]]
    assert found["surface"].tolist() == [[3, 4, 5, -1]]


def test_no_queries() -> None:
    top = TopSurfaces(np.zeros((0, 2), np.float32))
    top.add(np.ones((3, 2), np.float32), np.arange(3), np.arange(3))
    assert top.best()["number"].shape == (0, 10)
