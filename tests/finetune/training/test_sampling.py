"""In what order training examples come."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finetune.training.sampling import epoch_order, rows_of, weighted_order


@given(st.integers(1, 20), st.integers(1, 9), st.integers(0, 5))
@settings(max_examples=30)
def test_each_example_is_seen_equally_often(examples, batch, seed):
    steps = 3 * examples
    seen = [row for step in range(steps) for row in rows_of(step, batch, examples, seed)]
    assert len(seen) == steps * batch
    for begin in range(0, len(seen) - examples + 1, examples):
        assert sorted(seen[begin : begin + examples]) == list(range(examples))


def test_an_epoch_draws_one_order_for_all_its_steps():
    """A permutation of all examples in every step was most of a step's time with a million examples."""
    epoch_order.cache_clear()
    rows = [row for step in range(50) for row in rows_of(step, 16, 400, 3)]
    assert epoch_order.cache_info().misses == 2
    orders = [np.random.default_rng([3, epoch]).permutation(400) for epoch in range(2)]
    assert rows == np.concatenate(orders).tolist()


def test_the_first_row_of_a_weighted_order_comes_in_proportion_to_its_weight():
    weights = np.array([1.0, 0.0, 6.0, 3.0])
    orders = [weighted_order(weights, [7, seed]).tolist() for seed in range(2000)]
    assert all(sorted(order) == [0, 2, 3] for order in orders)
    first = Counter(order[0] for order in orders)
    assert [first[row] / 2000 for row in (0, 2, 3)] == pytest.approx([0.1, 0.6, 0.3], abs=0.03)
