"""XPR's projection head and the settings of an XPR model on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from rag_mt.models.trained import ModelSettings, save_head

WEIGHTS = "head.safetensors"
WIDER = 4


@dataclass(frozen=True)
class XprSettings(ModelSettings):
    """What makes an XPR model beside its weights.

    `encoder` names the base encoder and `layer` the hidden layer whose token states are averaged (the layers above are
    not run); `head` tells whether there is a projection head. A sentence has up to `max_tokens` tokens; `sentences` is
    the number of example sentences that the model was trained with, 0 for phrases alone.
    """

    FILE, KIND, COMMAND = "xpr.json", "XPR model", "python -m finetune.xpr"

    layer: int
    hidden: int
    head: bool = True
    sentences: int = 4
    max_tokens: int = 128
    prefix: str = ""


class XprHead(nn.Module):
    """Mean states of a phrase to its vector: Linear(d, 4d), ReLU, Linear(4d, d), then length 1 (XPR, section 3.2).

    Without a projection head only the length is changed.
    """

    def __init__(self, settings: XprSettings) -> None:
        super().__init__()
        self.settings = settings
        size = settings.hidden
        self.layers = (
            nn.Sequential(nn.Linear(size, WIDER * size), nn.ReLU(), nn.Linear(WIDER * size, size))
            if settings.head
            else nn.Sequential()
        )

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Vectors (phrases, hidden) of length 1 of states (phrases, hidden); zeros stay zeros without a head."""
        made: torch.Tensor = self.layers(states.float())
        return nn.functional.normalize(made, dim=-1)

    @torch.no_grad()
    def begin_as_identity(self) -> None:
        """Set the weights so that the head returns what it is given, x = relu(x) - relu(-x), with the other half of
        its hidden units free to learn: a short training need not first find again what the encoder knows."""
        if not self.settings.head:
            return
        first, last = self.layers[0], self.layers[-1]
        assert isinstance(first, nn.Linear) and isinstance(last, nn.Linear)
        size = self.settings.hidden
        one = torch.eye(size)
        first.weight[: 2 * size] = torch.cat([one, -one])
        first.bias.zero_()
        last.weight.zero_()
        last.weight[:, : 2 * size] = torch.cat([one, -one], dim=1)
        last.bias.zero_()

    def save(self, folder: Path, dtype: torch.dtype = torch.float16) -> None:
        """Write settings and, if there is a head, weights."""
        self.settings.save(folder)
        if self.settings.head:
            save_head(self, folder / WEIGHTS, dtype)

    @staticmethod
    def load(folder: Path) -> XprHead:
        """Read settings and weights, in evaluation mode; raises UserError for what does not belong together."""
        head = XprHead(XprSettings.load(folder))
        if head.settings.head:
            head.settings.load_head(head, folder / WEIGHTS)
        return head.eval()
