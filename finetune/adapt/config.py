"""The settings of an adaptation to an index, read from a TOML file (`adapt.toml`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from finetune.lora.config import DataConfig, ModelConfig, TrainingConfig
from finetune.training import settings

OWN_HELD_OUT = 4
"""One in so many of the user's own pairs at most is kept for the check."""


@dataclass(frozen=True)
class TextConfig:
    """Which sentences of the index are learnt from, and what is shown with them.

    Both sides of a pair have `fewest_words` to `most_words` words, the longer one at most `longest_ratio` times the
    letters and digits of the other, and their sentence vectors a cosine of at least `least_cosine`. Whole blocks of
    `block` sentences that follow each other in a file are held out for the check, the share `held_out` of all within
    `fewest_held_out` and `most_held_out` sentences; of the user's own pairs as many, if that is at most one in
    `OWN_HELD_OUT`. The share `hints` of the examples is shown what the index gives
    without the sentence's own block; general pairs are the share `replay` of all examples. Every example is seen up to
    `passes` times, as far as the time allows.
    """

    fewest_words: settings.CountOrZero = 3
    most_words: int = 60
    longest_ratio: float = 2.5
    least_cosine: settings.Share = 0.82
    block: settings.Count = 20
    held_out: settings.ShareBelowOne = 0.05
    fewest_held_out: settings.Count = 100
    most_held_out: settings.Count = 250
    fewest_pairs: settings.Count = 100
    hints: settings.Share = 0.5
    replay: settings.ShareBelowOne = 0.1
    passes: settings.Count = 1
    seed: settings.Seed = 1

    def to_hold_out(self, sentences: int) -> int:
        """How many of so many sentences the check is on."""
        return min(self.most_held_out, max(self.fewest_held_out, round(self.held_out * sentences)))

    @property
    def limits(self) -> DataConfig:
        """What a pair must fit, for `finetune.lora.examples.unusable`."""
        return DataConfig(fewest_words=self.fewest_words, most_words=self.most_words, longest_ratio=self.longest_ratio)


@dataclass(frozen=True)
class AverageConfig:
    """The weights of the adapter that is checked and kept: those it began with and the share `change` of what the
    training made of them (Wortsman et al. 2022, "Robust fine-tuning of zero-shot models"), factor by factor."""

    change: Annotated[float, settings.Rule(lambda value: 0 < value <= 1, "a share above 0, to 1")] = 0.7


@dataclass(frozen=True)
class AdaptConfig(settings.Settings):
    """All settings of an adaptation."""

    example = "adapt"

    model: ModelConfig
    text: TextConfig
    training: TrainingConfig
    average: AverageConfig
