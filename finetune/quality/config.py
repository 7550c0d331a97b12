"""The settings of a training of the quality estimator, read from a TOML file."""

from __future__ import annotations

from dataclasses import dataclass

from finetune.training import settings


@dataclass(frozen=True)
class ModelConfig(settings.EncoderTuning):
    """The encoder, which is read to its last layer; `start` names an estimator of the same shape that is trained
    further."""

    start: str = ""


@dataclass(frozen=True)
class DataConfig:
    """Pairs of up to `max_tokens` tokens; `leave_out` names kinds or directions that are not trained on, with commas
    between them (`ro-en`, `mqm`). The share `damaged` of the examples is damaged (see `eval.data.damage`)."""

    max_tokens: settings.TokenLimit = 256
    leave_out: str = ""
    damaged: settings.Share = 0.0


@dataclass(frozen=True)
class TrainingConfig(settings.Optimisation):
    """The optimisation; `warm_up` is a share of the steps."""

    steps: settings.Count = 2500
    batch: settings.Count = 32
    learning_rate: settings.Positive = 1e-3
    warm_up: settings.ShareBelowOne = 0.05
    weight_decay: settings.NotNegative = 0.01
    evaluate_every: settings.Count = 500
    checkpoint_every: settings.Count = 50


@dataclass(frozen=True)
class Config(settings.Settings):
    """All settings of a run."""

    example = "quality"

    model: ModelConfig
    data: DataConfig
    training: TrainingConfig
