"""How the learning rate goes over a training run."""

from __future__ import annotations

import math


def rate_share(step: int, warm_up: int, steps: int) -> float:
    """The share of the learning rate that a step (from 0) has: a linear rise, then half a cosine down to 0."""
    if step < warm_up:
        return (step + 1) / warm_up
    done = (step - warm_up) / max(1, steps - warm_up)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
