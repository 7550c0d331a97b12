"""An encoder while it is trained for phrase retrieval: opened, run, saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch.func import functional_call
from transformers import PreTrainedTokenizerBase

from finetune.training.settings import EncoderTuning
from finetune.training.tuning import first_layers, save_trained, trainable
from rag_mt.models.loading import load_encoder
from retrievers.ccpr.model import ENCODER

Weights = Mapping[str, torch.Tensor]
NO_WEIGHTS: Weights = {}


@dataclass(frozen=True)
class TrainedEncoder:
    """The transformer `model` of `layers` layers and `hidden` dimensions with what is trained in it, to be computed in
    the number format `dtype`; `fingerprint` is that of the weights it was opened with."""

    model: Any
    tokenizer: PreTrainedTokenizerBase
    device: torch.device
    dtype: torch.dtype
    fingerprint: str
    layers: int
    hidden: int

    def states(self, input_ids: torch.Tensor, mask: torch.Tensor, weights: Weights = NO_WEIGHTS) -> torch.Tensor:
        """States (batch, tokens, hidden) of the last layer for ids and mask (batch, tokens), by the weights as they are
        or with some others by name."""
        inputs = {"input_ids": input_ids.to(self.device), "attention_mask": mask.to(self.device)}
        with torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32):
            output = functional_call(self.model, dict(weights), kwargs=inputs) if weights else self.model(**inputs)
        states: torch.Tensor = output.last_hidden_state
        return states

    def parameters(self) -> dict[str, torch.nn.Parameter]:
        """What is trained, by name, each after `encoder.`."""
        return {f"encoder.{name}": p for name, p in self.model.named_parameters() if p.requires_grad}

    def save(self, folder: Path) -> None:
        """Write the adapter into the folder or, of a model that is trained as a whole, the model into one within it."""
        save_trained(self.model, self.tokenizer, folder if isinstance(self.model, PeftModel) else folder / ENCODER)


def open_encoder(tuning: EncoderTuning, layer: int, device: str, dtype: str, seed: int) -> TrainedEncoder:
    """The encoder of the settings up to `layer` (0: the last one), with what is new in it drawn by `seed`.

    Raises UserError for a model that cannot be loaded, has no such layer, or is not built like BERT.
    """
    loaded = load_encoder(tuning.encoder, device, dtype)
    torch.manual_seed(seed)
    depth = first_layers(loaded.model, layer, tuning.encoder)
    hidden = int(loaded.model.config.hidden_size)
    model = trainable(loaded.model, tuning, depth)
    return TrainedEncoder(model, loaded.tokenizer, loaded.device, loaded.dtype, loaded.fingerprint, depth, hidden)
