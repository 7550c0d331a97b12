"""How much of an index an adaptation can learn from in the given time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from finetune.adapt.config import TextConfig
from rag_mt.base.errors import UserError

FIXED = 90.0
"""Seconds for loading models, whatever their work."""


@dataclass(frozen=True)
class Speeds:
    """Measured seconds: of the back-translation and comparison of a sentence (`back`), of a search for hints (`hint`),
    and of a training example (`train`)."""

    back: float
    hint: float
    train: float


@dataclass(frozen=True)
class Plan:
    """So many sentences to check on and to train on, and how often an example is seen."""

    held_out: int
    train: int
    passes: int

    def seconds(self, speeds: Speeds, own: int, settings: TextConfig) -> dict[str, float]:
        """What each part is expected to take, with so many pairs of the user's own. An example that is only measured
        costs a third of one that is trained on, and is measured five times; a sentence of the check is translated
        twice."""
        examples = (self.train + own) / (1 - settings.replay)
        return {
            "back-translation": (self.held_out + self.train) * speeds.back,
            "hints": (self.held_out + settings.hints * self.train) * speeds.hint,
            "training": (self.passes * examples + self.held_out * 5 / 3) * speeds.train,
            "check": 2 * self.held_out * (speeds.back + speeds.hint),
            "loading": FIXED,
        }

    def describe(self, seconds: Mapping[str, float], minutes: int) -> str:
        """One line for people."""
        parts = ", ".join(f"{name} {value / 60:.0f}" for name, value in seconds.items())
        times = "once" if self.passes == 1 else f"{self.passes} times"
        return (
            f"estimate: {self.train} sentences to learn from {times}, {self.held_out} to check on; minutes: {parts}; "
            f"in all {sum(seconds.values()) / 60:.0f} of {minutes}"
        )


def planned(speeds: Speeds, minutes: int, held_out: int, available: int, own: int, settings: TextConfig) -> Plan:
    """As many sentences, up to those `available`, as fit one pass in the time; if all fit, as many passes as do. Raises
    UserError where even the fewest take longer."""

    def takes(train: int, passes: int) -> float:
        return sum(Plan(held_out, train, passes).seconds(speeds, own, settings).values())

    budget, fewest = minutes * 60, min(settings.fewest_pairs, available)
    if takes(fewest, 1) > budget:
        raise UserError(
            f"--minutes {minutes} is too short: {fewest} sentences to learn from and {held_out} to check on take about "
            f"{ceil(takes(fewest, 1) / 60)} minutes here, so give that or more"
        )
    each = takes(fewest + 1, 1) - takes(fewest, 1)
    train = min(available, fewest + int((budget - takes(fewest, 1)) / each)) if each > 0 else available
    passes = max(n for n in range(1, settings.passes + 1) if n == 1 or takes(train, n) <= budget)
    return Plan(held_out, train, passes)
