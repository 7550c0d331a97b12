"""XpCo against a reference that loops over pairs."""

from __future__ import annotations

import math

import pytest
import torch

from finetune.losses.phrases import LEFT_OUT, Negatives, xpco


def slow_direction(
    queries: torch.Tensor, keys: Negatives, own: Negatives, temperature: float, first: int
) -> torch.Tensor:
    """Equation 3 for each phrase, its mean."""
    losses = []
    for i, query in enumerate(queries):
        right = first + i
        positive = torch.exp(torch.dot(query, keys.vectors[right]) / temperature)
        total = positive
        for j in range(len(keys.vectors)):
            same = keys.surfaces[j] == keys.surfaces[right] or own.surfaces[j] == own.surfaces[right]
            if j != right and not same:
                total = total + torch.exp(torch.dot(query, keys.vectors[j]) / temperature)
        losses.append(-torch.log(positive / total))
    return torch.stack(losses).mean()


def unit(*shape: int) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(*shape, dtype=torch.float64), dim=-1)


@pytest.mark.parametrize("first", [0, 3])
def test_loss_and_gradients_are_those_of_the_formula(first: int) -> None:
    torch.manual_seed(1)
    pairs, keys = 4, 9
    # Two keys say the same in the second language, two in the first one: they are no negatives of each other.
    source_keys = Negatives(unit(keys, 5), torch.tensor([0, 1, 2, 3, 4, 5, 5, 7, 8]))
    target_keys = Negatives(unit(keys, 5), torch.tensor([0, 1, 1, 3, 4, 5, 6, 7, 4]))
    found = []
    for reference in (False, True):
        torch.manual_seed(2)
        source, target = unit(pairs, 5).requires_grad_(), unit(pairs, 5).requires_grad_()
        if reference:
            loss = slow_direction(source, target_keys, source_keys, 0.1, first)
            loss = loss + slow_direction(target, source_keys, target_keys, 0.1, first)
        else:
            loss = xpco(source, target, source_keys, target_keys, 0.1, first)
        found.append((loss, *torch.autograd.grad(loss, (source, target))))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_known_value_and_gradient_through_keys() -> None:
    """Two orthogonal pairs: each direction costs log(1 + exp(-1 / T)); without momentum the keys learn as well."""
    vectors = torch.eye(2, dtype=torch.float64).requires_grad_()
    surfaces = torch.tensor([0, 1])
    loss = xpco(vectors, vectors, Negatives(vectors, surfaces), Negatives(vectors, surfaces), 0.5)
    assert float(loss.detach()) == pytest.approx(2 * math.log(1 + math.exp(-2)))
    loss.backward()
    assert vectors.grad is not None and float(vectors.grad.abs().sum()) > 0


def test_a_pair_that_says_the_same_is_no_negative() -> None:
    """The same English phrase with translations into two languages: neither repels the other."""
    same = torch.tensor([3, 3])
    other = torch.tensor([1, 2])
    loss = xpco(unit(2, 4), unit(2, 4), Negatives(unit(2, 4), other), Negatives(unit(2, 4), same))
    assert float(loss.detach()) == pytest.approx(0)


def test_a_pair_that_is_left_out_does_not_count() -> None:
    torch.manual_seed(3)
    vectors = [unit(4, 5) for _ in range(4)]
    gone = torch.tensor([1, LEFT_OUT, 3, 4])
    kept = torch.tensor([0, 2, 3])
    with_it = xpco(vectors[0], vectors[1], Negatives(vectors[2], gone), Negatives(vectors[3], gone))
    one, other, *keys = (v[kept] for v in vectors)
    without = xpco(one, other, Negatives(keys[0], gone[kept]), Negatives(keys[1], gone[kept]))
    torch.testing.assert_close(with_it, without)
    none = torch.full((4,), LEFT_OUT)
    assert xpco(vectors[0], vectors[1], Negatives(vectors[2], none), Negatives(vectors[3], none)) == 0
