"""The model that judges translations: an encoder that reads a sentence and its translation together, and a small head.

The score is what people would give from 0 to 100 in a direct assessment: from 70 the meaning is closely kept, below 50
much of it is lost (the scale of MLQE-PE, Fomicheva et al. 2022, section 3.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from rag_mt.models.trained import ModelSettings, save_head

HEAD = "head.safetensors"
MIDDLE, SPREAD = 70.0, 25.0
"""The head's output 0 is the score MIDDLE, and 1 is SPREAD points more."""

Pair = tuple[str, str]
"""A sentence and its translation."""


@dataclass(frozen=True)
class EstimatorSettings(ModelSettings):
    """What makes an estimator beside its weights: `encoder` is read to its last layer, a pair has up to `max_tokens`
    tokens, and `measured` and `expected`, both rising, are scores of the model and what people gave in their place.
    `probability` are the settings of `rag_mt.quality.probability.Probability`, empty if it was not fitted."""

    FILE, KIND, COMMAND = "quality.json", "quality estimator", "python -m finetune.quality"

    hidden: int
    max_tokens: int = 256
    measured: Sequence[float] = (0.0, 100.0)
    expected: Sequence[float] = (0.0, 100.0)
    probability: Mapping[str, Any] = field(default_factory=dict)


class EstimatorHead(nn.Module):
    """First state and mean state of a pair to one number: Linear(2d, d), tanh, Linear(d, 1)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Numbers (pairs,) of states (pairs, tokens, hidden) with their mask (pairs, tokens)."""
        states, weights = states.float(), mask.unsqueeze(-1).float()
        mean = (states * weights).sum(1) / weights.sum(1)
        numbers: torch.Tensor = self.layers(torch.cat([states[:, 0], mean], dim=1))[:, 0]
        return numbers

    def save(self, folder: Path) -> None:
        """Write the weights into the folder, in float16."""
        save_head(self, folder / HEAD, torch.float16)


def tokenise_pairs(tokenizer: PreTrainedTokenizerBase, pairs: Sequence[Pair], max_tokens: int) -> list[list[int]]:
    """The token ids of pairs, of which the longer side is cut where both have more than `max_tokens`."""
    if not pairs:
        return []
    sources, targets = zip(*pairs, strict=True)
    encoded: Any = tokenizer(list(sources), list(targets), truncation="longest_first", max_length=max_tokens)
    ids: list[list[int]] = encoded["input_ids"]
    return ids
