"""Encoders that are made trainable."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import DistilBertConfig, DistilBertModel

from finetune.training import encoder as training
from finetune.training.encoder import TrainedEncoder, alike, first_layers, open_encoder
from finetune.training.settings import EncoderTuning
from rag_mt.base.errors import UserError


def test_an_encoder_built_otherwise_is_told() -> None:
    model = DistilBertModel(DistilBertConfig(vocab_size=9, dim=8, n_heads=2, n_layers=1, hidden_dim=8))
    with pytest.raises(UserError, match=r"^small \(DistilBertModel\) is not built like BERT: choose .*e5-small"):
        first_layers(model, 0, "small")


@given(st.lists(st.integers(1, 80), min_size=1, max_size=120))
def test_rows_are_in_one_group_of_similar_lengths(lengths: list[int]) -> None:
    groups = alike(torch.tensor(lengths), torch.device("cpu"))
    assert sorted(torch.cat(groups).tolist()) == list(range(len(lengths)))
    assert all(len(rows) >= training.FEWEST for rows in groups[:-1])
    for rows in groups:
        found = [lengths[row] for row in rows.tolist()]
        assert found == sorted(found, reverse=True)
        assert all(length >= training.SIMILAR * found[0] for length in found[training.FEWEST :])


def test_states_and_gradients_do_not_depend_on_the_groups(tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = open_encoder(EncoderTuning(str(tiny_encoder), tuning="full"), 2, "cpu", "float32", 1)
    lengths = torch.tensor([3, 40, 5, 12, 60, 4, 33, 2])
    mask = (torch.arange(60) < lengths[:, None]).long()
    ids = torch.randint(5, 4000, mask.shape, generator=torch.Generator().manual_seed(0)) * mask + (1 - mask)

    def read() -> tuple[torch.Tensor, torch.Tensor]:
        states = encoder.states(ids, mask) * mask[:, :, None]
        encoder.model.zero_grad()
        states.square().sum().backward()
        return states.detach(), encoder.model.get_input_embeddings().weight.grad.clone()

    encoder.model.eval()
    read_rows: list[tuple[int, ...]] = []
    states_of = TrainedEncoder.states_at_once

    def watched(self: TrainedEncoder, ids: torch.Tensor, *more: object) -> torch.Tensor:
        read_rows.append(tuple(ids.shape))
        return states_of(self, ids, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(TrainedEncoder, "states_at_once", watched)
    whole = read()
    monkeypatch.setattr(training, "FEWEST", 2)
    grouped = read()
    assert read_rows == [(8, 60), (2, 60), (2, 33), (2, 5), (2, 3)]
    for one, other in zip(whole, grouped, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
