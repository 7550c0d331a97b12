"""The contrastive loss against the formula, one term after the other."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from finetune.losses.phrases import NO_TRANSLATION, Negatives, phrase_contrastive


def slow_direction(x, y, sx, sy, t, own_phrases, own_spans, own_negatives, other_negatives):
    x, y = x.detach(), y.detach()
    total = 0.0
    for i in range(len(x)):
        positive = math.exp(float(x[i] @ y[i]) / t)
        below = positive
        for j in range(len(y)):
            if sy[j] != sy[i] and sx[j] != sx[i]:
                below += math.exp(float(x[i] @ y[j]) / t)
                below += math.exp(float(x[i] @ x[j]) / t) if own_phrases else 0.0
        for negatives, same, translated, phrases, spans in (
            (other_negatives, sy, sx, True, True),
            (own_negatives, sx, sy, own_phrases, own_spans),
        ):
            if negatives is not None:
                further = (negatives.vectors, negatives.surfaces.tolist(), negatives.translations.tolist())
                for v, surface, translation in zip(*further, strict=True):
                    counted = spans if translation == NO_TRANSLATION else phrases
                    if counted and surface != same[i] and translation != translated[i]:
                        below += math.exp(float(x[i] @ v) / t)
        total -= math.log(positive / below)
    return total / len(x)


@given(
    seed=st.integers(0, 10_000),
    size=st.integers(1, 6),
    own=st.tuples(st.booleans(), st.booleans()),
    further=st.integers(0, 3),
    temperature=st.sampled_from([1.0, 0.3]),
)
def test_value_and_gradient_are_those_of_the_formula(seed, size, own, further, temperature):
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(size, 4, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(2))
    sx, sy = (torch.randint(0, 4, (size,), generator=generator) for _ in range(2))
    made = [
        Negatives(
            torch.randn(further, 4, generator=generator, dtype=torch.float64),
            torch.randint(0, 4, (further,), generator=generator),
            torch.tensor([NO_TRANSLATION, 0, 1, 2, 3])[torch.randint(0, 5, (further,), generator=generator)],
        )
        for _ in range(2)
    ]
    negatives = made if further else [None, None]
    loss = phrase_contrastive(x, y, sx, sy, temperature, *own, *negatives)
    there = slow_direction(x, y, sx.tolist(), sy.tolist(), temperature, *own, negatives[0], negatives[1])
    back = slow_direction(y, x, sy.tolist(), sx.tolist(), temperature, *own, negatives[1], negatives[0])
    assert float(loss) == pytest.approx((there + back) / 2)
    (gradient,) = torch.autograd.grad(loss, x)
    with torch.no_grad():
        step = torch.zeros_like(x)
        step[0, 0] = 1e-6
    moved = phrase_contrastive(x + step, y, sx, sy, temperature, *own, *negatives)
    assert float(moved - loss) / 1e-6 == pytest.approx(float(gradient[0, 0]), abs=1e-4)


SPANS = (
    Negatives(torch.tensor([[1.0, -1.0], [0.5, 0.5]]), torch.tensor([4, 5])),
    Negatives(torch.tensor([[-1.0, 1.0]]), torch.tensor([14])),
)
"""Of each side spans without a translation."""
MORE = (
    Negatives(
        torch.tensor([[1.0, -1.0], [0.5, 0.5], [2.0, 0.0]]),
        torch.tensor([4, 5, 6]),
        torch.tensor([NO_TRANSLATION, NO_TRANSLATION, 16]),
    ),
    Negatives(torch.tensor([[-1.0, 1.0], [0.0, 2.0]]), torch.tensor([14, 16]), torch.tensor([NO_TRANSLATION, 6])),
)
"""The same, and a phrase of another process."""


@pytest.mark.parametrize(
    ("negatives", "own_phrases", "own_spans", "loss"),
    [
        # Both alike: the values of the one setting `both_sides` that was there before.
        ((), True, True, 1.5187568664550781),
        ((), False, False, 1.1175718307495117),
        (SPANS, True, True, 1.7782461643218994),
        (SPANS, False, False, 1.269951343536377),
        (MORE, True, True, 2.687044858932495),
        (MORE, False, False, 1.7939119338989258),
        # One without the other, by `slow_direction`; without further negatives there are no spans.
        ((), True, False, 1.5187568664550781),
        ((), False, True, 1.1175718307495117),
        (SPANS, True, False, 1.6263077627532532),
        (SPANS, False, True, 1.4912480329901943),
        (MORE, True, False, 2.6342940131909254),
        (MORE, False, True, 1.9773954534957576),
    ],
)
def test_the_own_sides_phrases_and_spans_are_two_settings(negatives, own_phrases, own_spans, loss):
    source, target = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), torch.tensor([[1.0, 0.5], [0.5, 1.0], [0, 1]])
    surfaces = torch.tensor([1, 2, 3]), torch.tensor([11, 12, 13])
    made = phrase_contrastive(source, target, *surfaces, 0.5, own_phrases, own_spans, *negatives)
    assert float(made) == pytest.approx(loss, rel=1e-6)


def test_the_same_surface_elsewhere_is_no_negative():
    vectors = torch.eye(3)
    different = phrase_contrastive(
        vectors, vectors, torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6]), own_phrases=False
    )
    same = phrase_contrastive(vectors, vectors, torch.tensor([1, 1, 1]), torch.tensor([4, 4, 4]), own_phrases=False)
    assert float(same) == 0
    assert float(different) == pytest.approx(math.log(1 + 2 / math.e))


@pytest.mark.parametrize("own_phrases", [False, True])
def test_translations_of_one_phrase_into_two_languages_do_not_repel_each_other(own_phrases):
    """`Haus` (German) and `dům` (Czech) both translate `house`: neither is a negative of `house` or of the other."""
    vectors, foreign, english = torch.eye(3), torch.tensor([1, 2, 3]), torch.tensor([9, 9, 9])
    mixed = phrase_contrastive(vectors, vectors, foreign, english, own_phrases=own_phrases)
    assert float(mixed) == 0


def test_the_loss_of_no_phrases_is_zero_and_leaves_finite_gradients():
    source, target = (torch.zeros(0, 4, requires_grad=True) for _ in range(2))
    none = torch.zeros(0, dtype=torch.int64)
    loss = phrase_contrastive(source, target, none, none)
    loss.backward()
    assert float(loss.detach()) == 0
    assert source.grad is not None and torch.isfinite(source.grad).all()


def test_aligned_vectors_have_a_lower_loss_than_swapped_ones():
    x, y = torch.eye(4), torch.eye(4)
    surfaces = torch.arange(4)
    good = phrase_contrastive(x, y, surfaces, surfaces + 9, 0.1)
    bad = phrase_contrastive(x, y.flip(0), surfaces, surfaces + 9, 0.1)
    assert float(good) < 0.01 < 5 < float(bad)
