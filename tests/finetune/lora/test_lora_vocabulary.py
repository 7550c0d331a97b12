"""The loss over a part of the vocabulary: exact where the part is all, right in the mean where it is a sample."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from finetune.lora.model import Responses
from finetune.lora.vocabulary import Vocabulary
from rag_mt.models.loading import load_llm


def test_the_frequent_tokens_are_counted() -> None:
    vocabulary = Vocabulary.of([[5, 5, 9], [7, 9, 5, 2]], 3, 20)
    assert vocabulary.frequent.tolist() == [2, 5, 9]  # 2 and 7 come once: the lower number is taken
    assert Vocabulary.of([[5]], 100, 20).frequent.tolist() == [5]


def test_candidates_are_the_frequent_the_wanted_and_others_that_stand_for_the_rest() -> None:
    vocabulary = Vocabulary(torch.arange(0, 400, 2), 1000)
    wanted = torch.tensor([4, 501, 501, 2])
    found = vocabulary.candidates(wanted, 1)
    assert found.ids[found.wanted].tolist() == wanted.tolist()
    assert len(found.ids.unique()) == len(found.ids)
    drawn = found.added > 0
    assert 30 < int(drawn.sum()) <= 50
    assert found.ids[~drawn].tolist() == [*range(0, 400, 2), 501]
    assert float(found.added[drawn].exp().sum()) == pytest.approx(1000 - 201, rel=1e-5)
    assert vocabulary.candidates(wanted, 1).ids.tolist() == found.ids.tolist()
    assert vocabulary.candidates(wanted, 2).ids.tolist() != found.ids.tolist()


def test_the_sum_over_the_vocabulary_is_right_in_the_mean() -> None:
    logits = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    vocabulary = Vocabulary(torch.arange(200), 1000)
    sums = []
    for seed in range(400):
        found = vocabulary.candidates(torch.tensor([500]), seed)
        sums.append((logits[found.ids] + found.added).exp().sum())
    assert float(torch.stack(sums).mean()) == pytest.approx(float(logits.exp().sum()), rel=0.03)


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_with_all_tokens_loss_and_gradient_are_the_full_ones(tiny_llm, family) -> None:
    responses = Responses(load_llm(str(tiny_llm(family)), device="cpu", dtype="float32").model.requires_grad_(False))
    size, hidden = responses.head.weight.shape
    states = torch.randn(6, hidden, generator=torch.Generator().manual_seed(1))
    wanted = torch.arange(6) * 3
    whole = responses.loss_and_gradient(states, wanted)
    part = responses.loss_and_gradient(states, wanted, Vocabulary(torch.arange(size), size).candidates(wanted, 1))
    for one, other in zip(part, whole, strict=True):
        torch.testing.assert_close(one, other)
    fewer = Vocabulary(torch.arange(0, size, 2), size).candidates(wanted, 1)
    loss, _ = responses.loss_and_gradient(states, wanted, fewer)
    logits = responses.logits(states)[:, fewer.ids] + fewer.added
    torch.testing.assert_close(loss, cross_entropy(logits, fewer.wanted, reduction="sum"))
    assert float(loss) != pytest.approx(float(whole[0]), abs=1e-4)
