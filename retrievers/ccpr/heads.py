"""The two heads of CCPR on the hidden states of a span's first and last token, and their settings on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from rag_mt.models.trained import ModelSettings, save_head

WEIGHTS = "heads.safetensors"
ENCODER = "encoder"
"""The folder of an encoder that was tuned as a whole; other models have an adapter for theirs."""


@dataclass(frozen=True)
class PhraseSettings(ModelSettings):
    """What makes a phrase model beside its weights.

    `encoder` names the base encoder, `layer` the hidden layer that the heads read (the layers above are not run),
    `dimension` the length of a phrase vector. `normalised` phrase vectors have length 1; otherwise they are the
    paper's, compared by inner product. `segment_width` is the hidden width of the segmentation head, 0 for the paper's
    single linear layer. Spans have up to `max_words` words. A span of the target text is indexed if its probability is
    above `index_threshold`, one of a source sentence is looked up if it is above `query_threshold` (0.9 in the paper's
    code; here a confidence model judges the hits afterwards, and 0.5 finds more: reports/segmentation-thresholds.md).
    """

    FILE, KIND, COMMAND = "ccpr.json", "phrase model", "python -m finetune.ccpr"

    layer: int
    hidden: int
    dimension: int = 128
    normalised: bool = True
    segment_width: int = 0
    max_words: int = 6
    prefix: str = ""
    index_threshold: float = 0.7
    query_threshold: float = 0.5


class PhraseHeads(nn.Module):
    """Phrase vectors and phrase probabilities from [h_start; h_end] (CCPR, equations 1 and 5).

    Both first layers are linear in the concatenation, so that each token is projected once, as a start and as an end,
    and a span costs one addition: `project` then `spans`.
    """

    def __init__(self, settings: PhraseSettings) -> None:
        super().__init__()
        self.settings = settings
        self.phrase = nn.Linear(2 * settings.hidden, settings.dimension)
        self.segment = nn.Linear(2 * settings.hidden, settings.segment_width or 1)
        self.decide = nn.Linear(settings.segment_width, 1) if settings.segment_width else None

    def weights(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Weight (dimension + segment width, 2 * hidden) and bias of both heads' first layers as one."""
        return torch.cat([self.phrase.weight, self.segment.weight]), torch.cat([self.phrase.bias, self.segment.bias])

    def project(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What each token adds as a start and as an end, from states (..., hidden): two float32 tensors (..., dimension
        + segment width) whose sum for a span's two tokens goes into `vectors` and `logits`."""
        weight, bias = self.weights()
        hidden = self.settings.hidden
        starts = nn.functional.linear(states.float(), weight[:, :hidden], bias)
        return starts, nn.functional.linear(states.float(), weight[:, hidden:])

    def vectors(self, spans: torch.Tensor) -> torch.Tensor:
        """Phrase vectors (spans, dimension) of projected spans (spans, dimension + segment width)."""
        vectors = spans[..., : self.settings.dimension]
        return nn.functional.normalize(vectors, dim=-1) if self.settings.normalised else vectors

    def logits(self, spans: torch.Tensor) -> torch.Tensor:
        """Log-odds of being a phrase, shape (spans,), of projected spans (spans, dimension + segment width)."""
        return self.decided(spans[..., self.settings.dimension :])

    def decided(self, hidden: torch.Tensor) -> torch.Tensor:
        """Log-odds of being a phrase of the last columns of projected spans (spans, segment width)."""
        if self.decide is None:
            return hidden.squeeze(-1)
        logits: torch.Tensor = self.decide(torch.relu(hidden)).squeeze(-1)
        return logits

    def save(self, folder: Path, dtype: torch.dtype = torch.float16) -> None:
        """Write settings and weights."""
        self.settings.save(folder)
        save_head(self, folder / WEIGHTS, dtype)

    @staticmethod
    def load(folder: Path) -> PhraseHeads:
        """Read settings and weights, in evaluation mode; raises UserError for what does not belong together."""
        heads = PhraseHeads(PhraseSettings.load(folder))
        heads.settings.load_head(heads, folder / WEIGHTS)
        return heads.eval()
