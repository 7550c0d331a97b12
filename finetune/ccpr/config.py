"""The settings of a CCPR training run, read from a TOML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from finetune.training.settings import EncoderTuning, Optimisation, above_zero, token_rows
from rag_mt.base.settings import Sections, at_least, check_values, read_settings


@dataclass(frozen=True)
class ModelConfig(EncoderTuning):
    """The encoder and the heads on it; `layer` 0 is its last one. `start` names a phrase model of the same shape whose
    weights are trained further."""

    layer: int = 0
    dimension: int = 128
    normalised: bool = True
    segment_width: int = 0
    max_words: int = 6
    prefix: str = ""
    start: str = ""


@dataclass(frozen=True)
class DataConfig:
    """Which phrase pairs, in what mixture. `languages` name folders of phrase pairs."""

    languages: tuple[str, ...] = ("de-en", "cs-en", "fi-en", "ru-en", "ro-en", "tr-en")
    domain_weights: Mapping[str, float] = field(default_factory=dict)
    language_power: float = 0.7
    max_tokens: int = 96
    per_sentence: int = 16
    other_contexts: bool = False
    dev_sentences: int = 120


@dataclass(frozen=True)
class TrainingConfig(Optimisation):
    """The optimisation. `batch` sentence pairs a step and process, encoded in `chunks` with cached gradients."""

    steps: int = 20_000
    batch: int = 64
    chunks: int = 1
    learning_rate: float = 5e-5
    head_learning_rate: float | None = None
    warm_up: int = 1000
    weight_decay: float = 0.01
    temperature: float = 1.0
    segmentation_weight: float = 1.0
    both_sides: bool = True
    span_negatives: bool = False
    evaluate_every: int = 500
    checkpoint_every: int = 250


@dataclass(frozen=True)
class Config(Sections):
    """All settings of a run."""

    model: ModelConfig
    data: DataConfig
    training: TrainingConfig


def read_config(path: Path, changes: Mapping[str, str] = {}) -> Config:
    """The settings of a file with `changes` on top (see `read_settings`); raises UserError for impossible ones too."""
    config = read_settings(Config, path, changes, "configs/ccpr-embedded.toml")
    model, data, training = config.model, config.data, config.training
    rows = (
        *model.rows(),
        *training.rows(),
        ("data.languages", data.languages, bool(data.languages), "names of folders of phrase pairs such as de-en"),
        *token_rows(data, "max_tokens"),
        *above_zero(training, "head_learning_rate", "temperature"),
        *at_least(1, "training", training, "chunks"),
    )
    check_values(path, rows)
    return config
