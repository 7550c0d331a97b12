"""The settings of LoRA tuning and of its examples, read from a TOML file. The defaults are those of the CCPR paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Literal

from finetune.training.settings import Optimisation
from rag_mt.base.defaults import DEFAULT_LLM
from rag_mt.base.languages import WMT16
from rag_mt.base.settings import Sections, at_least, check_values, drop_row, read_settings, seed_row

NEWS_FIRST = {
    "news": 4.0,
    "news+captions": 4.0,
    "mixed": 4.0,
    "wiki/reddit": 3.0,
    "conversation": 0.1,
    "fiction": 0.3,
    "medical": 0.1,
    "wmt-tok": 0.0,
    "fiction-game": 0.03,
    "tech-docs": 0.03,
    "ui": 0.0,
    "dict-phrases": 0.0,
}


@dataclass(frozen=True)
class ModelConfig:
    """The language model and the adapter on it. `start` names an adapter folder of the same shape that is trained
    further; `quantization` (none, 8bit, 4bit) is that of the frozen weights."""

    llm: str = DEFAULT_LLM
    rank: int = 16
    alpha: int = 16
    dropout: float = 0.05
    modules: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj")
    quantization: Literal["none", "8bit", "4bit"] = "none"
    start: str = ""


@dataclass(frozen=True)
class DataConfig:
    """Which pairs become examples, and what of their hints is shown.

    Of the training data the pairs are those that phrase retrievers were not trained on, whose hints are no better than
    those of new text; with `held_out = false`, for examples without hints, the others.

    `pairs` per language are drawn in a random order in which a domain's weight (1 if none is given, never drawn if 0)
    decides how early it comes. Both sides have `fewest_words` to `most_words` words, and the longer one at most
    `longest_ratio` times the characters of the other. The share `no_hints` of the examples is shown none.
    `least_confidence`, if given, is a range of which each example draws the least confidence of its hints, for
    retrievers that tell one; else hints are those of a translation. The share `right_hints` of the examples with
    phrases is also shown right ones, which the index has in other sentences: retrieved hints alone are too few and too
    seldom right for a small model to learn from some hundred examples that a hint can be taken up. Development
    examples have none of these, and all hints of at least the lower end of the range.
    """

    languages: tuple[str, ...] = WMT16
    held_out: bool = True
    pairs: int = 300
    domain_weights: Mapping[str, float] = field(default_factory=lambda: dict(NEWS_FIRST))
    fewest_words: int = 4
    most_words: int = 60
    longest_ratio: float = 2.5
    no_hints: float = 0.0
    least_confidence: tuple[float, ...] = ()
    right_hints: float = 0.0
    seed: int = 1

    @property
    def for_development(self) -> DataConfig:
        """The settings of development examples: all hints of at least the least confidence."""
        return replace(self, right_hints=0.0, no_hints=0.0, least_confidence=self.least_confidence[:1] * 2)


@dataclass(frozen=True)
class TrainingConfig(Optimisation):
    """The optimisation. A step sees `batch` examples, computed `micro` at a time or, if `micro_tokens` is given, as
    many as have so many tokens together with their padding. Examples of more than `cutoff` tokens are left out.
    `checkpointing` computes the layers again for the backward pass, which saves memory and costs time."""

    steps: int = 100
    batch: int = 16
    micro: int = 2
    micro_tokens: int = 0
    cutoff: int = 4096
    learning_rate: float = 4e-4
    warm_up: int = 10
    wrapper: str = "auto"
    checkpointing: bool = False
    evaluate_every: int = 50
    checkpoint_every: int = 50


@dataclass(frozen=True)
class Config(Sections):
    """All settings of a run."""

    model: ModelConfig
    data: DataConfig
    training: TrainingConfig


def read_config(path: Path, changes: Mapping[str, str] = {}) -> Config:
    """The settings of a file with `changes` on top (see `read_settings`); raises UserError for impossible ones too."""
    config = read_settings(Config, path, changes, "configs/lora-embedded.toml")
    model, data, training = config.model, config.data, config.training
    ranges, weights = data.least_confidence, data.domain_weights
    rows = (
        *at_least(1, "model", model, "rank", "alpha"),
        ("model.modules", model.modules, bool(model.modules), "names of layers such as gate_proj"),
        *at_least(1, "data", data, "pairs"),
        *at_least(0, "data", data, "fewest_words"),
        ("data.domain_weights", weights, all(0 <= w < inf for w in weights.values()), "weights of at least 0"),
        ("data.languages", data.languages, bool(data.languages) and "en" not in data.languages, "codes beside en"),
        drop_row("model.dropout", model.dropout),
        seed_row("data.seed", data.seed),
        ("data.no_hints", data.no_hints, 0 <= data.no_hints <= 1, "a share from 0 to 1"),
        ("data.right_hints", data.right_hints, 0 <= data.right_hints <= 1, "a share from 0 to 1"),
        (
            "data.least_confidence",
            ranges,
            not ranges or (len(ranges) == 2 and 0 <= ranges[0] <= ranges[1] <= 1),
            "two numbers from 0 to 1, such as [0.4, 0.7]",
        ),
        *training.rows(),
        *at_least(1, "training", training, "micro", "cutoff"),
        *at_least(0, "training", training, "micro_tokens"),
    )
    check_values(path, rows)
    return config
