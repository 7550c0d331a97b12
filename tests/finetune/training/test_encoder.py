"""Encoders that are made trainable."""

from __future__ import annotations

import pytest
from transformers import DistilBertConfig, DistilBertModel

from finetune.training.encoder import first_layers
from rag_mt.base.errors import UserError


def test_an_encoder_built_otherwise_is_told() -> None:
    model = DistilBertModel(DistilBertConfig(vocab_size=9, dim=8, n_heads=2, n_layers=1, hidden_dim=8))
    with pytest.raises(UserError, match=r"^small \(DistilBertModel\) is not built like BERT: choose .*e5-small"):
        first_layers(model, 0, "small")
