"""The settings of LoRA tuning and of its examples, read from a TOML file. The defaults are those of the CCPR paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Annotated, Literal

from finetune.training.settings import (
    Count,
    CountOrZero,
    Optimisation,
    Positive,
    Rule,
    Seed,
    Settings,
    Share,
    ShareBelowOne,
)
from rag_mt.base.defaults import DEFAULT_LLM
from rag_mt.base.languages import WMT16

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
    rank: Count = 16
    alpha: Count = 16
    dropout: ShareBelowOne = 0.05
    modules: Annotated[tuple[str, ...], Rule(bool, "names of layers such as gate_proj")] = (
        "gate_proj",
        "up_proj",
        "down_proj",
    )
    quantization: Literal["none", "8bit", "4bit"] = "none"
    start: str = ""


def _languages(codes: Sequence[str]) -> bool:
    return bool(codes) and "en" not in codes


def _weights(weights: Mapping[str, float]) -> bool:
    return all(0 <= weight < inf for weight in weights.values())


def _range(bounds: Sequence[float]) -> bool:
    return not bounds or (len(bounds) == 2 and 0 <= bounds[0] <= bounds[1] <= 1)


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

    languages: Annotated[tuple[str, ...], Rule(_languages, "codes beside en")] = WMT16
    held_out: bool = True
    pairs: Count = 300
    domain_weights: Annotated[Mapping[str, float], Rule(_weights, "weights of at least 0")] = field(
        default_factory=lambda: dict(NEWS_FIRST)
    )
    fewest_words: CountOrZero = 4
    most_words: int = 60
    longest_ratio: float = 2.5
    no_hints: Share = 0.0
    least_confidence: Annotated[tuple[float, ...], Rule(_range, "two numbers from 0 to 1, such as [0.4, 0.7]")] = ()
    right_hints: Share = 0.0
    seed: Seed = 1

    @property
    def for_development(self) -> DataConfig:
        """The settings of development examples: all hints of at least the least confidence."""
        return replace(self, right_hints=0.0, no_hints=0.0, least_confidence=self.least_confidence[:1] * 2)


@dataclass(frozen=True)
class TrainingConfig(Optimisation):
    """The optimisation. A step sees `batch` examples, computed `micro` at a time or, if `micro_tokens` is given, as
    many as have so many tokens together with their padding. Examples of more than `cutoff` tokens are left out.
    `checkpointing` computes the layers again for the backward pass, which saves memory and costs time."""

    steps: Count = 100
    batch: Count = 16
    micro: Count = 2
    micro_tokens: CountOrZero = 0
    cutoff: Count = 4096
    learning_rate: Positive = 4e-4
    warm_up: CountOrZero = 10
    wrapper: str = "auto"
    checkpointing: bool = False
    evaluate_every: Count = 50
    checkpoint_every: Count = 50


@dataclass(frozen=True)
class Config(Settings):
    """All settings of a run."""

    example = "configs/lora-embedded.toml"

    model: ModelConfig
    data: DataConfig
    training: TrainingConfig
