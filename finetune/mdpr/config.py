"""The settings of an mDPR training run, read from a TOML file; the defaults are the paper's, where it has any."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from finetune.training import settings

LossWeight = Annotated[float, settings.Rule(lambda value: value >= 0, "a number of at least 0")]


@dataclass(frozen=True)
class ModelConfig(settings.EncoderTuning):
    """The backbone. `shared`: one encoder for queries and passages; otherwise two, of which the passage encoder alone
    sees the contrastive losses. `pooling` is the backbone's own if empty. `start` names a passage model of the same
    shape whose weights are trained further (the second stage of a transfer)."""

    encoder: str = "FacebookAI/xlm-roberta-base"
    shared: bool = False
    pooling: Literal["", "mean", "cls", "max", "pooler"] = ""
    tuning: Literal["lora", "full"] = "full"
    alpha: settings.Count = 32
    start: str = ""


@dataclass(frozen=True)
class DataConfig:
    """What of a folder of `finetune.mdpr.data` is used.

    `relevance` names sets of questions; `pairs` pairs of languages for both contrastive losses and `texts` languages
    whose sentences are third ones of the language contrastive loss beside those pairs. `pair_size` and `text_size` are
    how many of each pair or language are used, 0 for all. Queries, passages and sentences are cut at so many tokens.
    """

    relevance: Annotated[tuple[str, ...], settings.Rule(bool, "names of sets such as xquad-en")] = ("xquad-en",)
    pairs: tuple[str, ...] = ("de-en", "ru-en", "ro-en", "tr-en")
    texts: tuple[str, ...] = ()
    pair_size: settings.CountOrZero = 0
    text_size: settings.CountOrZero = 0
    query_tokens: settings.TokenLimit = 64
    passage_tokens: settings.TokenLimit = 256
    sentence_tokens: settings.TokenLimit = 64


@dataclass(frozen=True)
class TrainingConfig(settings.Optimisation):
    """The optimisation: L = L_IR + semantic_weight * L_semaCL + language_weight * L_langCL (equation 4).

    A step has `batch` questions with `hard_negatives` each, `pair_batch` sentence pairs and `text_batch` other
    sentences, of each process. A contrastive loss of weight 0 is not computed.
    """

    steps: settings.Count = 24_540
    batch: settings.Count = 48
    hard_negatives: settings.CountOrZero = 0
    pair_batch: settings.CountOrZero = 48
    text_batch: settings.CountOrZero = 48
    semantic_weight: LossWeight = 0.01
    language_weight: LossWeight = 0.001
    retrieval_temperature: settings.Positive = 1.0
    semantic_temperature: settings.Positive = 1.0
    learning_rate: settings.Positive = 1e-5
    weight_decay: settings.NotNegative = 0.01
    evaluate_every: settings.Count = 1000
    checkpoint_every: settings.Count = 500
    dev_queries: settings.CountOrZero = 0


@dataclass(frozen=True)
class Config(settings.Settings):
    """All settings of a run."""

    example = "mdpr-embedded"

    model: ModelConfig
    data: DataConfig
    training: TrainingConfig

    def rows(self) -> Iterator[settings.Row]:
        """All settings that have a rule, here or in the type."""
        yield from super().rows()
        if self.training.semantic_weight or self.training.language_weight:
            yield "data.pairs", self.data.pairs, settings.Rule(bool, "pairs such as de-en, or both weights 0")
            yield "training.pair_batch", self.training.pair_batch, settings.at_least(2)
