"""The settings of an XPR training run, read from a TOML file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from finetune.training.settings import (
    WMT16_PAIRS,
    Count,
    CountOrZero,
    EncoderTuning,
    Optimisation,
    Positive,
    Rule,
    Settings,
    ShareBelowOne,
    TokenLimit,
    at_least,
)


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

    languages: Annotated[tuple[str, ...], Rule(bool, "names of phrase sets such as de-en")] = WMT16_PAIRS
    sentences: CountOrZero = 4
    max_chars: Count = 300
    max_tokens: TokenLimit = 80
    dev_pairs: Count = 200
    dev_sentences: Count = 4


@dataclass(frozen=True)
class TrainingConfig(Optimisation):
    """The optimisation: `batch` phrase pairs a step and process for so many `steps`, or, if that is 0, `epochs`.

    `warm_up` is a share of the steps. `momentum` 0 has no second encoder: the keys are the trained vectors themselves.
    `queue` is the number of keys of earlier batches that are negatives as well (MoCo). Sentences are encoded in
    `chunks` of similar length; `cached` gives the memory of one chunk for the time of one more forward pass.
    """

    steps: CountOrZero = 0
    epochs: Count = 100
    batch: Annotated[int, at_least(2)] = 256
    chunks: Count = 1
    cached: bool = False
    learning_rate: Positive = 2e-5
    head_learning_rate: Positive | None = None
    warm_up: ShareBelowOne = 0.01
    temperature: Positive = 0.06
    momentum: ShareBelowOne = 0.999
    queue: CountOrZero = 0
    evaluate_every: Count = 100
    checkpoint_every: Count = 50

    fall = "linear"

    @property
    def warm_up_steps(self) -> int:
        """The steps (at least one) over which the learning rate rises."""
        return max(1, round(self.warm_up * self.steps))


@dataclass(frozen=True)
class Config(Settings):
    """All settings of a run."""

    example = "configs/xpr-embedded.toml"

    model: ModelConfig
    data: DataConfig
    training: TrainingConfig
