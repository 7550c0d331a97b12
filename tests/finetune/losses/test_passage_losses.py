"""The three losses of mDPR against their formulas, one term after the other, gradients included."""

from __future__ import annotations

import doctest
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from finetune.losses import passages
from finetune.losses.passages import language_contrastive, retrieval, semantic_contrastive


def sim(u, v):
    """The cosine, written out so that it can be differentiated term by term."""
    return (u * v).sum() / (u * u).sum().sqrt() / (v * v).sum().sqrt()


def slow_semantic(first, second, temperature):
    z = [*first, *second]
    n = len(first)
    total = 0.0
    for i, j in ((i, i + n) for i in range(n)):
        for a, b in ((i, j), (j, i)):
            below = sum(torch.exp(sim(z[a], z[k]) / temperature) for k in range(2 * n) if k != a)
            total = total + torch.log(torch.exp(sim(z[a], z[b]) / temperature) / below)
    return -total / (2 * n)


def slow_language(first, second, others):
    z = [*first, *second, *others]
    n = len(z)
    total = 0.0
    for i, j in ((i, i + len(first)) for i in range(len(first))):
        for k in set(range(n)) - {i, j}:
            a, b = torch.exp(sim(z[i], z[k])), torch.exp(sim(z[j], z[k]))
            total = total + torch.log(a / (a + b)) + torch.log(b / (a + b))
    return -total / (n * (n - 2))


def slow_retrieval(queries, passages, relevant, left_out, temperature):
    total = 0.0
    for i, q in enumerate(queries):
        scores = [torch.exp(sim(q, p) / temperature) for p in passages]
        below = sum(s for c, s in enumerate(scores) if not left_out[i, c])
        total = total + torch.log(scores[relevant[i]] / below)
    return -total / len(queries)


def same(fast, slow, tensors):
    """Whether two losses and all their gradients agree."""
    torch.testing.assert_close(fast, slow)
    for one, two in zip(torch.autograd.grad(fast, tensors), torch.autograd.grad(slow, tensors), strict=True):
        torch.testing.assert_close(one, two)


def drawn(seed, *sizes):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, 4, generator=generator, dtype=torch.float64, requires_grad=True) for n in sizes]


@given(seed=st.integers(0, 10_000), pairs=st.integers(1, 5), temperature=st.sampled_from([1.0, 0.2]))
def test_semantic_loss_is_equation_2(seed, pairs, temperature):
    first, second = drawn(seed, pairs, pairs)
    fast = semantic_contrastive(first, second, temperature)
    same(fast, slow_semantic(first, second, temperature), (first, second))


@given(seed=st.integers(0, 10_000), pairs=st.integers(1, 4), others=st.integers(0, 4))
def test_language_loss_is_equation_3(seed, pairs, others):
    first, second, third = drawn(seed, pairs, pairs, others)
    if 2 * pairs + others < 3:
        with pytest.raises(ValueError, match="no third one"):
            language_contrastive(first, second, third)
        return
    fast = language_contrastive(first, second, third if others else None)
    used = (first, second, third) if others else (first, second)
    same(fast, slow_language(first, second, third), used)


@given(
    seed=st.integers(0, 10_000),
    queries=st.integers(1, 4),
    further=st.integers(0, 4),
    temperature=st.sampled_from([1.0, 0.2]),
)
def test_retrieval_loss_is_equation_1_with_hard_negatives(seed, queries, further, temperature):
    asked, passages = drawn(seed, queries, queries + further)
    generator = torch.Generator().manual_seed(seed)
    relevant = torch.randperm(len(passages), generator=generator)[:queries].tolist()
    left_out = torch.rand(queries, len(passages), generator=generator) < 0.3
    left_out[torch.arange(queries), relevant] = False
    fast = retrieval(asked, passages, relevant, left_out, temperature)
    same(fast, slow_retrieval(asked, passages, relevant, left_out, temperature), (asked, passages))


def test_equal_distances_are_the_least_language_loss():
    first, second = torch.eye(3)[:1], torch.eye(3)[1:2]
    between = torch.tensor([[1.0, 1.0, 0.0], [-2.0, -2.0, 1.0], [0.0, 0.0, 1.0]])
    n = 5
    assert float(language_contrastive(first, second, between)) == pytest.approx(3 * 2 * math.log(2) / (n * (n - 2)))


def test_the_examples_of_the_docstrings():
    found = doctest.testmod(passages)
    assert found.failed == 0
    assert found.attempted > 8
