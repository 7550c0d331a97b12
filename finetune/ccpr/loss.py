"""The whole loss of a CCPR step (equation 7), with negatives from wherever the settings want them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from accelerate import Accelerator
from torch.nn.functional import binary_cross_entropy_with_logits, linear

from finetune.ccpr.batches import PhraseBatch, Spans
from finetune.ccpr.config import TrainingConfig
from finetune.losses.phrases import NO_TRANSLATION, Negatives, phrase_contrastive
from retrievers.ccpr.heads import PhraseHeads


def spans_of(batch: PhraseBatch) -> tuple[Spans, Spans, Spans, Spans]:
    """The four kinds of spans of a batch: phrases of source and target, other spans of source and target."""
    return batch.source, batch.target, batch.source_others, batch.target_others


class PhraseLoss:
    """L = L_phrases + w_seg * L_segmentation of what an encoder makes of a batch.

    L_phrases is `phrase_contrastive`; L_segmentation the cross-entropy of the segmentation head on phrases against
    other spans (equation 6; two classes of the paper are one log-odds).
    """

    def __init__(self, heads: PhraseHeads, training: TrainingConfig, accelerator: Accelerator) -> None:
        self.heads, self.training, self.accelerator = heads, training, accelerator

    def __call__(self, batch: PhraseBatch, edges: Sequence[torch.Tensor]) -> tuple[torch.Tensor, dict[str, float]]:
        """The loss and its parts. `edges` are [h_start; h_end] (spans, 2 * hidden) of the four kinds of spans."""
        made = linear(torch.cat(list(edges)).float(), *self.heads.weights())
        vectors = self.heads.vectors(made).split([len(e) for e in edges])
        labels = (torch.arange(len(made), device=made.device) < len(edges[0]) + len(edges[1])).float()
        surfaces = [s.surfaces.to(made.device) for s in spans_of(batch)]
        parts = {
            "contrastive": phrase_contrastive(
                vectors[0],
                vectors[1],
                surfaces[0],
                surfaces[1],
                self.training.temperature,
                self.training.both_sides,
                *(self._negatives(side, vectors, surfaces) for side in (0, 1)),
            ),
            # A mean of no spans would be NaN.
            "segmentation": binary_cross_entropy_with_logits(self.heads.logits(made), labels, reduction="sum")
            / max(1, len(made)),
        }
        loss = parts["contrastive"] + self.training.segmentation_weight * parts["segmentation"]
        return loss, {name: float(part.detach()) for name, part in parts.items()}

    def _negatives(
        self, side: int, vectors: Sequence[torch.Tensor], surfaces: Sequence[torch.Tensor]
    ) -> Negatives | None:
        """Further negatives of a side (0 source, 1 target): spans that are no phrases, phrases of other processes."""
        parts: list[tuple[torch.Tensor, ...]] = []
        if self.training.span_negatives:
            unpaired = torch.full_like(surfaces[2 + side], NO_TRANSLATION)
            parts.append((vectors[2 + side], surfaces[2 + side], unpaired))
        if self.accelerator.num_processes > 1:
            parts.append(self._elsewhere(vectors[side], surfaces[side], surfaces[1 - side]))
        return Negatives(*map(torch.cat, zip(*parts, strict=True))) if parts else None

    def _elsewhere(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The rows that the other processes have in these tensors, without gradients."""
        device = tensors[0].device
        counts = self.accelerator.gather(torch.tensor([len(tensors[0])], device=device))
        own = self.accelerator.process_index
        kept = torch.cat([torch.arange(int(counts.max())) < (0 if i == own else int(n)) for i, n in enumerate(counts)])
        gathered = (self.accelerator.gather(self.accelerator.pad_across_processes(t.detach())) for t in tensors)
        return tuple(tensor[kept.to(device)] for tensor in gathered)
