"""The settings of LoRA tuning and of its examples, read from a TOML file. The defaults are those of the CCPR paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Annotated, Literal

from finetune.training import settings
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


LayerNames = Annotated[tuple[str, ...], settings.Rule(bool, "names of layers such as gate_proj")]
Languages = Annotated[tuple[str, ...], settings.Rule(lambda codes: codes and "en" not in codes, "codes beside en")]
Weights = Annotated[
    Mapping[str, float],
    settings.Rule(lambda weights: all(0 <= weight < inf for weight in weights.values()), "weights of at least 0"),
]
Range = Annotated[
    tuple[float, ...],
    settings.Rule(
        lambda ends: not ends or (len(ends) == 2 and 0 <= ends[0] <= ends[1] <= 1),
        "two numbers from 0 to 1, such as [0.4, 0.7]",
    ),
]


@dataclass(frozen=True)
class ModelConfig:
    """The language model and the adapter on it. `start` names an adapter folder of the same shape that is trained
    further; `quantization` is that of the frozen weights."""

    llm: str = DEFAULT_LLM
    rank: settings.Count = 16
    alpha: settings.Count = 16
    dropout: settings.ShareBelowOne = 0.05
    modules: LayerNames = ("gate_proj", "up_proj", "down_proj")
    quantization: Literal["none", "8bit", "4bit"] = "none"
    start: str = ""


@dataclass(frozen=True)
class DataConfig:
    """Which pairs become examples, and what of their hints is shown.

    Training pairs are those that phrase retrievers were not trained on, whose hints are no better than those of new
    text; with `held_out = false`, for examples without hints, the others. `pairs` per language are drawn in a random
    order in which a domain's weight (1 if none is given, never drawn if 0) decides how early it comes. Both sides have
    `fewest_words` to `most_words` words, and the longer one at most `longest_ratio` times the characters of the other.

    The share `no_hints` of the examples is shown none. `least_confidence` is a range of which each example draws the
    least confidence of its hints, for retrievers that tell one; else hints are those of a translation. The share
    `right_hints` of the examples with phrases is also shown right ones, which the index has in other sentences:
    retrieved hints alone are too few and too seldom right for a small model to learn that a hint can be taken up.

    Examples of a memory (`finetune.lora.memory`) show up to three sentences that are similar to the pair elsewhere in
    the same text, at least `apart` lines away. The share `wrong_hints` of them shows those of another pair, the share
    `both_sides` also what the sentences translate, the share `related` only the most similar one, as the retrievers of
    sentences and passages do. Pairs of parts of `phrase_texts` texts in each language, in both directions, show phrases
    that CCPR finds in the part, of the confidence that `least_confidence` says.

    The share `context` of the examples of a memory whose texts are documents shows up to three sentences before the
    pair (see `finetune.lora.context`), the share `own_context` of them with the language model's own translations.
    """

    languages: Languages = WMT16
    held_out: bool = True
    pairs: settings.Count = 300
    domain_weights: Weights = field(default_factory=lambda: dict(NEWS_FIRST))
    fewest_words: settings.CountOrZero = 4
    most_words: int = 60
    longest_ratio: float = 2.5
    no_hints: settings.Share = 0.0
    least_confidence: Range = ()
    right_hints: settings.Share = 0.0
    apart: settings.CountOrZero = 40
    wrong_hints: settings.Share = 0.0
    both_sides: settings.Share = 0.0
    related: settings.Share = 0.0
    phrase_texts: settings.CountOrZero = 0
    context: settings.Share = 0.0
    own_context: settings.Share = 0.0
    seed: settings.Seed = 1

    @property
    def for_development(self) -> DataConfig:
        """The settings of development examples: all hints that are found, of at least the lower end of
        `least_confidence`."""
        least = self.least_confidence[:1] * 2
        own = replace(self, least_confidence=least, no_hints=0.0, right_hints=0.0, wrong_hints=0.0, both_sides=0.0)
        return replace(own, context=0.0)


@dataclass(frozen=True)
class TrainingConfig(settings.Optimisation):
    """The optimisation. A step computes its examples `micro` at a time or, if `micro_tokens` is given, as many as have
    so many tokens together, without padding. Examples of more than `cutoff` tokens are left out. `checkpointing`
    computes the layers again for the backward pass, which saves memory and costs time. With `vocabulary` the loss takes
    only so many tokens of the answers as they are, and a sample of all others (see `finetune.lora.vocabulary`)."""

    steps: settings.Count = 100
    batch: settings.Count = 16
    micro: settings.Count = 2
    micro_tokens: settings.CountOrZero = 0
    vocabulary: settings.CountOrZero = 0
    cutoff: settings.Count = 4096
    learning_rate: settings.Positive = 4e-4
    warm_up: settings.CountOrZero = 10
    wrapper: str = "auto"
    checkpointing: bool = False
    evaluate_every: settings.Count = 50
    checkpoint_every: settings.Count = 50


@dataclass(frozen=True)
class Config(settings.Settings):
    """All settings of a run."""

    example = "lora-embedded"

    model: ModelConfig
    data: DataConfig
    training: TrainingConfig
