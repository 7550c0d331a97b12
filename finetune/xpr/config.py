"""The settings of an XPR training run, read from a TOML file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from finetune.training import settings
from retrievers.xpr.model import HeadOn

LanguagePairs = Annotated[tuple[str, ...], settings.Rule(bool, "names of phrase sets such as de-en")]


@dataclass(frozen=True)
class ModelConfig(settings.EncoderTuning):
    """The encoder and the head on it; `layer` 0 is its last one. The head begins as the identity, which leaves a short
    training what the encoder knows, or at random, as the paper's. It is on the mean of a phrase's states, as in the
    paper's text, or on each of its `tokens` before the mean, as in the authors' code (see `XprSettings`)."""

    layer: int = 0
    head: bool = True
    head_start: Literal["identity", "random"] = "identity"
    head_on: HeadOn = "mean"
    prefix: str = ""


@dataclass(frozen=True)
class DataConfig:
    """Which phrase pairs, and how many of their example `sentences` a step draws (0: phrases alone). Of a sentence that
    is longer than `max_chars` the part around the phrase is taken. Dev accuracy is measured on `dev_pairs` pairs of
    each language with `dev_sentences` examples each."""

    languages: LanguagePairs = settings.WMT16_PAIRS
    sentences: settings.CountOrZero = 4
    max_chars: settings.Count = 300
    max_tokens: settings.TokenLimit = 80
    dev_pairs: settings.Count = 200
    dev_sentences: settings.Count = 4


@dataclass(frozen=True)
class TrainingConfig(settings.Optimisation):
    """The optimisation: `batch` phrase pairs a step and process for so many `steps`, or, if that is 0, `epochs`.

    `warm_up` is a share of the steps. `momentum` 0 has no second encoder: the keys are the trained vectors themselves.
    `queue` is the number of keys of earlier batches that are negatives as well (MoCo). Sentences are encoded in
    `chunks` of similar length; `cached` gives the memory of one chunk for the time of one more forward pass.
    """

    steps: settings.CountOrZero = 0
    epochs: settings.Count = 100
    batch: Annotated[int, settings.at_least(2)] = 256
    chunks: settings.Count = 1
    cached: bool = False
    learning_rate: settings.Positive = 2e-5
    head_learning_rate: settings.Positive | None = None
    warm_up: settings.ShareBelowOne = 0.01
    temperature: settings.Positive = 0.06
    momentum: settings.ShareBelowOne = 0.999
    queue: settings.CountOrZero = 0
    evaluate_every: settings.Count = 100
    checkpoint_every: settings.Count = 50

    fall = "linear"


@dataclass(frozen=True)
class Config(settings.Settings):
    """All settings of a run."""

    example = "xpr-embedded"

    model: ModelConfig
    data: DataConfig
    training: TrainingConfig
