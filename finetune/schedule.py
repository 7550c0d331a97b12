"""How the learning rate goes over a training run."""

from __future__ import annotations

import math


def rate_share(step: int, warm_up: int, steps: int) -> float:
    """The share of the learning rate that a step (from 0) has: a linear rise, then half a cosine down to 0."""
    if step < warm_up:
        return (step + 1) / warm_up
    done = (step - warm_up) / max(1, steps - warm_up)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


def linear_share(step: int, steps: int, warm_up: float) -> float:
    """The share of the learning rate at a step (from 0): a linear rise over the share `warm_up` of all steps, then a
    linear fall to 0."""
    rise = max(1, round(warm_up * steps))
    return min((step + 1) / rise, (steps - step) / max(1, steps - rise))
