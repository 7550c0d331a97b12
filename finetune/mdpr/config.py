"""The settings of an mDPR training run, read from a TOML file; the defaults are the paper's, where it has any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from finetune.training.settings import EncoderTuning, Optimisation, above_zero, token_rows
from rag_mt.base.settings import Row, Sections, at_least, check_values, read_settings

EXAMPLE = "configs/mdpr-embedded.toml"
ABOVE_ZERO = ("retrieval_temperature", "semantic_temperature")
NOT_NEGATIVE = ("semantic_weight", "language_weight")


@dataclass(frozen=True)
class ModelConfig(EncoderTuning):
    """The backbone. `shared`: one encoder for queries and passages; otherwise two, of which the passage encoder alone
    sees the contrastive losses. `pooling` is the backbone's own if empty. `start` names a passage model of the same
    shape whose weights are trained further (the second stage of a transfer)."""

    encoder: str = "FacebookAI/xlm-roberta-base"
    shared: bool = False
    pooling: Literal["", "mean", "cls", "max", "pooler"] = ""
    tuning: Literal["lora", "full"] = "full"
    alpha: int = 32
    start: str = ""


@dataclass(frozen=True)
class DataConfig:
    """What of a folder of `finetune.mdpr.data` is used.

    `relevance` names sets of questions; `pairs` pairs of languages for both contrastive losses and `texts` languages
    whose sentences are third ones of the language contrastive loss beside those pairs. `pair_size` and `text_size` are
    how many of each pair or language are used, 0 for all. Queries, passages and sentences are cut at so many tokens.
    """

    relevance: tuple[str, ...] = ("xquad-en",)
    pairs: tuple[str, ...] = ("de-en", "ru-en", "ro-en", "tr-en")
    texts: tuple[str, ...] = ()
    pair_size: int = 0
    text_size: int = 0
    query_tokens: int = 64
    passage_tokens: int = 256
    sentence_tokens: int = 64


@dataclass(frozen=True)
class TrainingConfig(Optimisation):
    """The optimisation: L = L_IR + semantic_weight * L_semaCL + language_weight * L_langCL (equation 4).

    A step has `batch` questions with `hard_negatives` each, `pair_batch` sentence pairs and `text_batch` other
    sentences, of each process. A contrastive loss of weight 0 is not computed.
    """

    steps: int = 24_540
    batch: int = 48
    hard_negatives: int = 1
    pair_batch: int = 48
    text_batch: int = 48
    semantic_weight: float = 0.01
    language_weight: float = 0.001
    retrieval_temperature: float = 1.0
    semantic_temperature: float = 1.0
    learning_rate: float = 1e-5
    weight_decay: float = 0.01
    evaluate_every: int = 1000
    checkpoint_every: int = 500
    dev_queries: int = 0


@dataclass(frozen=True)
class Config(Sections):
    """All settings of a run."""

    model: ModelConfig
    data: DataConfig
    training: TrainingConfig


def _number(training: TrainingConfig, name: str, fits: bool, wanted: str) -> Row:
    return f"training.{name}", getattr(training, name), fits, f"a number {wanted}"


def read_config(path: Path, changes: Mapping[str, str] = {}) -> Config:
    """The settings of a file with `changes` on top (see `read_settings`); raises UserError for impossible ones too."""
    config = read_settings(Config, path, changes, EXAMPLE)
    model, data, training = config.model, config.data, config.training
    contrastive = bool(training.semantic_weight or training.language_weight)
    rows = (
        *model.rows(),
        *training.rows(),
        ("data.relevance", data.relevance, bool(data.relevance), "names of sets such as xquad-en"),
        ("data.pairs", data.pairs, bool(data.pairs) or not contrastive, "pairs such as de-en, or both weights 0"),
        *at_least(0, "data", data, "pair_size", "text_size"),
        *token_rows(data, "query_tokens", "passage_tokens", "sentence_tokens"),
        *at_least(2 if contrastive else 0, "training", training, "pair_batch"),
        *at_least(0, "training", training, "hard_negatives", "text_batch", "dev_queries"),
        *above_zero(training, *ABOVE_ZERO),
        *(_number(training, name, getattr(training, name) >= 0, "of at least 0") for name in NOT_NEGATIVE),
    )
    check_values(path, rows)
    return config
