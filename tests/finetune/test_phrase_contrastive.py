"""The contrastive loss against the formula, one term after the other."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from finetune.losses.phrase_contrastive import Negatives, phrase_contrastive


def slow_direction(x, y, sx, sy, t, both_sides, own_negatives, other_negatives):
    x, y = x.detach(), y.detach()
    total = 0.0
    for i in range(len(x)):
        positive = math.exp(float(x[i] @ y[i]) / t)
        below = positive
        for j in range(len(y)):
            if j != i and sy[j] != sy[i]:
                below += math.exp(float(x[i] @ y[j]) / t)
            if both_sides and j != i and sx[j] != sx[i]:
                below += math.exp(float(x[i] @ x[j]) / t)
        for vectors, surfaces, same in ((other_negatives, sy, True), (own_negatives, sx, both_sides)):
            if vectors is not None and same:
                for v, s in zip(vectors.vectors, vectors.surfaces.tolist(), strict=True):
                    if s != surfaces[i]:
                        below += math.exp(float(x[i] @ v) / t)
        total -= math.log(positive / below)
    return total / len(x)


@given(
    seed=st.integers(0, 10_000),
    size=st.integers(1, 6),
    both_sides=st.booleans(),
    further=st.integers(0, 3),
    temperature=st.sampled_from([1.0, 0.3]),
)
def test_value_and_gradient_are_those_of_the_formula(seed, size, both_sides, further, temperature):
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(size, 4, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(2))
    sx, sy = (torch.randint(0, 4, (size,), generator=generator) for _ in range(2))
    made = [
        Negatives(
            torch.randn(further, 4, generator=generator, dtype=torch.float64),
            torch.randint(0, 4, (further,), generator=generator),
        )
        for _ in range(2)
    ]
    negatives = made if further else [None, None]
    loss = phrase_contrastive(x, y, sx, sy, temperature, both_sides, *negatives)
    there = slow_direction(x, y, sx.tolist(), sy.tolist(), temperature, both_sides, negatives[0], negatives[1])
    back = slow_direction(y, x, sy.tolist(), sx.tolist(), temperature, both_sides, negatives[1], negatives[0])
    assert float(loss) == pytest.approx((there + back) / 2)
    (gradient,) = torch.autograd.grad(loss, x)
    with torch.no_grad():
        step = torch.zeros_like(x)
        step[0, 0] = 1e-6
    moved = phrase_contrastive(x + step, y, sx, sy, temperature, both_sides, *negatives)
    assert float(moved - loss) / 1e-6 == pytest.approx(float(gradient[0, 0]), abs=1e-4)


def test_the_same_surface_elsewhere_is_no_negative():
    vectors = torch.eye(3)
    different = phrase_contrastive(vectors, vectors, torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6]), both_sides=False)
    same = phrase_contrastive(vectors, vectors, torch.tensor([1, 1, 1]), torch.tensor([4, 4, 4]), both_sides=False)
    assert float(same) == 0
    assert float(different) == pytest.approx(math.log(1 + 2 / math.e))


def test_aligned_vectors_have_a_lower_loss_than_swapped_ones():
    x, y = torch.eye(4), torch.eye(4)
    surfaces = torch.arange(4)
    good = phrase_contrastive(x, y, surfaces, surfaces + 9, 0.1)
    bad = phrase_contrastive(x, y.flip(0), surfaces, surfaces + 9, 0.1)
    assert float(good) < 0.01 < 5 < float(bad)
