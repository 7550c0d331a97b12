"""The settings of an XPR training run, read from a TOML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from finetune.training.settings import EncoderTuning, Optimisation, above_zero, token_rows
from rag_mt.base.settings import Sections, at_least, check_values, drop_row, read_settings


@dataclass(frozen=True)
class ModelConfig(EncoderTuning):
    """The encoder and the head on it; `layer` 0 is its last one. The head begins as the identity, which leaves a short
    training what the encoder knows, or at random, as the paper's."""

    layer: int = 0
    head: bool = True
    head_start: Literal["identity", "random"] = "identity"
    prefix: str = ""


@dataclass(frozen=True)
class DataConfig:
    """Which phrase pairs, and how many of their example `sentences` a step draws (0: phrases alone). Of a sentence that
    is longer than `max_chars` the part around the phrase is taken. Dev accuracy is measured on `dev_pairs` pairs of
    each language with `dev_sentences` examples each."""

    languages: tuple[str, ...] = ("de-en", "cs-en", "fi-en", "ru-en", "ro-en", "tr-en")
    sentences: int = 4
    max_chars: int = 300
    max_tokens: int = 80
    dev_pairs: int = 200
    dev_sentences: int = 4


@dataclass(frozen=True)
class TrainingConfig(Optimisation):
    """The optimisation: `batch` phrase pairs a step and process for so many `steps`, or, if that is 0, `epochs`.

    `warm_up` is a share of the steps. `momentum` 0 has no second
    encoder: the keys are the trained vectors themselves. `queue` is the number of keys of earlier batches that are
    negatives as well (MoCo). Sentences are encoded in `chunks` of similar length; `cached` gives the memory of one
    chunk for the time of one more forward pass.
    """

    steps: int = 0
    epochs: int = 100
    batch: int = 256
    chunks: int = 1
    cached: bool = False
    learning_rate: float = 2e-5
    head_learning_rate: float | None = None
    warm_up: float = 0.01
    temperature: float = 0.06
    momentum: float = 0.999
    queue: int = 0
    evaluate_every: int = 100
    checkpoint_every: int = 50

    fall = "linear"
    least_steps = 0
    least_batch = 2

    @property
    def warm_up_steps(self) -> int:
        """The steps (at least one) over which the learning rate rises."""
        return max(1, round(self.warm_up * self.steps))


@dataclass(frozen=True)
class Config(Sections):
    """All settings of a run."""

    model: ModelConfig
    data: DataConfig
    training: TrainingConfig


def read_config(path: Path, changes: Mapping[str, str] = {}) -> Config:
    """The settings of a file with `changes` on top (see `read_settings`); raises UserError for impossible ones too."""
    config = read_settings(Config, path, changes, "configs/xpr-embedded.toml")
    model, data, training = config.model, config.data, config.training
    rows = (
        *model.rows(),
        *training.rows(),
        ("data.languages", data.languages, bool(data.languages), "names of phrase sets such as de-en"),
        *at_least(0, "data", data, "sentences"),
        *at_least(1, "data", data, "max_chars", "dev_pairs", "dev_sentences"),
        *token_rows(data, "max_tokens"),
        *at_least(0, "training", training, "queue"),
        *at_least(1, "training", training, "epochs", "chunks"),
        drop_row("training.momentum", training.momentum),
        drop_row("training.warm_up", training.warm_up),
        *above_zero(training, "head_learning_rate", "temperature"),
    )
    check_values(path, rows)
    return config
