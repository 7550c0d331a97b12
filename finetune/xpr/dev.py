"""Dev accuracy of XPR during training: small, without an index."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from finetune.xpr.batches import Collator, XprBatch
from retrievers.xpr.examples import ExampleSet


def dev_accuracy(
    sets: Sequence[ExampleSet], pairs: int, collate: Collator, vectors: Callable[[XprBatch], torch.Tensor]
) -> dict[str, float]:
    """Accuracy@1 in per cent among the first `pairs` dev pairs of each set, the mean of both directions, by the set's
    name; and `average`. `vectors` gives those of a batch's phrases (2 * pairs, dimension)."""
    scores: dict[str, float] = {}
    for own in sets:
        asked = own.pairs("dev")[:pairs]
        if not len(asked):
            continue
        batch = collate([own.sides], np.insert(asked, 0, 0, axis=1), None)
        source, target = vectors(batch).chunk(2)
        scores[own.name] = round(100 * _accuracy(source @ target.T), 2)
    return {**scores, "average": round(float(np.mean(list(scores.values()))), 2) if scores else 0.0}


def _accuracy(similarity: torch.Tensor) -> float:
    """The share of rows and columns whose greatest number stands on the diagonal."""
    right = torch.arange(len(similarity), device=similarity.device)
    return float(torch.stack([(similarity.argmax(d) == right).float().mean() for d in (0, 1)]).mean())
