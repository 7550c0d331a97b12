"""The settings of an encoder that is trained on text alone, read from a TOML file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from finetune.training import settings

FEWEST_PIECES = 300
"""Fewer pieces do not hold the letters of seven languages."""


@dataclass(frozen=True)
class ModelConfig:
    """A transformer like BERT of `layers` layers and `hidden` dimensions with `heads` heads of attention, over a
    `vocabulary` of so many pieces of words."""

    layers: settings.Count = 6
    hidden: settings.Count = 256
    heads: settings.Count = 4
    vocabulary: Annotated[int, settings.at_least(FEWEST_PIECES)] = 32_000
    dropout: settings.ShareBelowOne = 0.1


@dataclass(frozen=True)
class DataConfig:
    """Of each text `dev_sentences` are left out of the training, and of the rest a sentence is drawn as often as the
    text's share to the power of `exponent` tells, which favours small texts. The vocabulary is made of
    `vocabulary_sentences` that are drawn in the same way. Sentences are cut after `max_tokens` tokens, of which
    `masked` are hidden."""

    max_tokens: settings.TokenLimit = 64
    masked: Annotated[float, settings.Rule(lambda value: 0 < value < 1, "a share between 0 and 1")] = 0.15
    exponent: settings.NotNegative = 0.7
    dev_sentences: settings.Count = 200
    vocabulary_sentences: settings.Count = 100_000


@dataclass(frozen=True)
class TrainingConfig(settings.Optimisation):
    """The optimisation: `batch` sentences a step and process."""

    steps: settings.Count = 16_000
    batch: settings.Count = 128
    learning_rate: settings.Positive = 5e-4
    warm_up: settings.NotNegative = 0.05
    weight_decay: settings.NotNegative = 0.01
    evaluate_every: settings.Count = 2000
    checkpoint_every: settings.Count = 500

    fall = "linear"


@dataclass(frozen=True)
class Config(settings.Settings):
    """All settings of a run."""

    example = "masked"

    model: ModelConfig
    data: DataConfig
    training: TrainingConfig
