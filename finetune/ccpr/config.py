"""The settings of a CCPR training run, read from a TOML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from finetune.training import settings

LanguagePairs = Annotated[tuple[str, ...], settings.Rule(bool, "names of folders of phrase pairs such as de-en")]


@dataclass(frozen=True)
class ModelConfig(settings.EncoderTuning):
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
    """Which phrase pairs, in what mixture. `languages` name folders of phrase pairs. A share `rewritten` of the texts
    is read in lower or upper case or without its last mark: otherwise a phrase finds text of the same case before
    text of the same meaning."""

    languages: LanguagePairs = settings.WMT16_PAIRS
    domain_weights: Mapping[str, float] = field(default_factory=dict)
    language_power: float = 0.7
    max_tokens: settings.TokenLimit = 96
    per_sentence: int = 16
    other_contexts: bool = False
    rewritten: settings.ShareBelowOne = 0.0
    dev_sentences: int = 120


@dataclass(frozen=True)
class TrainingConfig(settings.Optimisation):
    """The optimisation. `batch` sentence pairs a step and process, encoded in `chunks` with cached gradients.

    Negatives of a phrase are the phrases of the other side, with `own_phrases` those of its own side, and with
    `span_negatives` spans that are no phrases: of the other side and, with `own_spans`, of its own. The paper's text
    has all phrases of both sides. Its code has none of the own side that is in a pair of the batch, and on both sides
    further phrases of the same sentences; spans that are no phrases stand for those here.
    """

    steps: settings.Count = 20_000
    batch: settings.Count = 64
    chunks: settings.Count = 1
    learning_rate: settings.Positive = 5e-5
    head_learning_rate: settings.Positive | None = None
    warm_up: settings.CountOrZero = 1000
    weight_decay: settings.NotNegative = 0.01
    temperature: settings.Positive = 1.0
    segmentation_weight: float = 1.0
    own_phrases: bool = True
    span_negatives: bool = False
    own_spans: bool = True
    evaluate_every: settings.Count = 500
    checkpoint_every: settings.Count = 250


@dataclass(frozen=True)
class Config(settings.Settings):
    """All settings of a run."""

    example = "ccpr-embedded"

    model: ModelConfig
    data: DataConfig
    training: TrainingConfig
