"""Settings of trainings: sections of a TOML file whose types say what each value must be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from math import cos, inf, pi
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args, get_type_hints

from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.languages import WMT16
from rag_mt.base.settings import read_settings

LEAST_TOKENS = 8
"""Fewer tokens hold no words beside a prefix and the marks of beginning and end."""
LAST_SEED = 2**32 - 1
"""The greatest seed that every library takes."""
WMT16_PAIRS = tuple(f"{code}-en" for code in WMT16)


@dataclass(frozen=True)
class Rule:
    """What the values of a setting must fit, in the metadata of its type; `expected` tells it to a user."""

    fits: Callable[[Any], bool]
    expected: str


def at_least(least: int) -> Rule:
    """The rule of numbers with a lower bound."""
    return Rule(lambda value: value >= least, f"at least {least}")


Count = Annotated[int, at_least(1)]
CountOrZero = Annotated[int, at_least(0)]
TokenLimit = Annotated[int, at_least(LEAST_TOKENS)]
Positive = Annotated[float, Rule(lambda value: 0 < value < inf, "a number above 0")]
NotNegative = Annotated[float, at_least(0)]
Share = Annotated[float, Rule(lambda value: 0 <= value <= 1, "a share from 0 to 1")]
ShareBelowOne = Annotated[float, Rule(lambda value: 0 <= value < 1, "a share from 0 to below 1")]
Seed = Annotated[int, Rule(lambda value: 0 <= value <= LAST_SEED, f"0 to {LAST_SEED}")]

Row = tuple[str, Any, Rule]
"""A setting as `section.key`, its value and a rule of its type."""


@dataclass(frozen=True)
class Settings:
    """The base of a training's `Config`, which has a field for each section, a dataclass with defaults; `example` is a
    file to try."""

    example = ""

    @classmethod
    def read(cls, path: Path, changes: Mapping[str, str] = {}) -> Self:
        """The settings of a file with `changes` on top (see `read_settings`); raises UserError for impossible ones."""
        settings = read_settings(cls, path, changes, cls.example)
        for name, value, rule in settings.rows():
            if value is not None and not rule.fits(value):
                raise UserError(f"{path} sets {name} to {value!r}: expected {rule.expected}")
        return settings

    def rows(self) -> Iterator[Row]:
        """All settings that have a rule."""
        for section in fields(self):
            values = getattr(self, section.name)
            for key, kind in get_type_hints(type(values), include_extras=True).items():
                parts = kind, *get_args(kind)  # a rule may stand in a union with None
                for rule in (rule for part in parts for rule in getattr(part, "__metadata__", ())):
                    yield f"{section.name}.{key}", getattr(values, key), rule

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return asdict(self)


@dataclass(frozen=True)
class EncoderTuning:
    """How an encoder is tuned, the base of every `[model]` section that has one.

    `tuning` is `lora` (an adapter of `rank` and `alpha`) or `full` (all weights); the first `frozen_layers` layers stay
    as they are, and with 0 `full` trains the whole model. `dropout` is that of the layers, None for the model's own.
    """

    encoder: str = DEFAULT_ENCODER
    tuning: Literal["lora", "full"] = "lora"
    rank: Count = 16
    alpha: Count = 16
    lora_dropout: ShareBelowOne = 0.0
    frozen_layers: CountOrZero = 0
    dropout: ShareBelowOne | None = None


@dataclass(frozen=True)
class Optimisation:
    """The settings of AdamW and of a run's course, the base of every `[training]` section.

    A run takes `steps` steps of `batch` examples. The learning rate rises over `warm_up` steps and then falls to 0.
    Gradients are clipped to a norm of `clip`. `dtype` is the number format of the model (`auto`, `float32`,
    `bfloat16`, ...). Every `evaluate_every` steps there is a point of the curve, every `checkpoint_every` a checkpoint.
    """

    steps: Count
    batch: Count
    learning_rate: Positive
    evaluate_every: Count
    checkpoint_every: Count
    warm_up: NotNegative = 0
    weight_decay: NotNegative = 0.0
    clip: Positive = 1.0
    seed: Seed = 1
    dtype: str = "auto"

    fall: ClassVar[Literal["cosine", "linear"]] = "cosine"
    """How the learning rate falls after the warm-up."""

    @property
    def warm_up_steps(self) -> int:
        """The steps over which the learning rate rises."""
        return int(self.warm_up)

    def share(self, step: int) -> float:
        """The share of the learning rate that `step` (from 0) has: a linear rise over the warm-up, then a fall to 0
        along half a cosine or a line."""
        if step < self.warm_up_steps:
            return (step + 1) / self.warm_up_steps
        done = min(1.0, (step - self.warm_up_steps) / max(1, self.steps - self.warm_up_steps))
        return 1 - done if self.fall == "linear" else 0.5 * (1 + cos(pi * done))
