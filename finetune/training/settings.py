"""The settings that several trainings share: what is checked of them, and the options that change them."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Literal

from finetune.training.optimisation import rate_share
from rag_mt.base.console import positive
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.settings import Row, at_least, changes_of, drop_row, seed_row, shown_changes

LEAST_TOKENS = 8
"""Fewer tokens hold no words beside a prefix and the marks of beginning and end."""


@dataclass(frozen=True)
class EncoderTuning:
    """How an encoder is tuned, the base of every `[model]` section that has one.

    `encoder` names the model to begin with. `tuning` is `lora` (an adapter of `rank` and `alpha`) or `full` (all
    weights); the first `frozen_layers` layers stay as they are, and with 0 `full` trains the whole model. `dropout` is
    that of the layers, None for the model's own.
    """

    encoder: str = DEFAULT_ENCODER
    tuning: Literal["lora", "full"] = "lora"
    rank: int = 16
    alpha: int = 16
    lora_dropout: float = 0.0
    frozen_layers: int = 0
    dropout: float | None = None

    def rows(self) -> list[Row]:
        """The checks of these settings, for `check_values`."""
        return [
            *at_least(1, "model", self, "rank", "alpha"),
            *at_least(0, "model", self, "frozen_layers"),
            drop_row("model.lora_dropout", self.lora_dropout),
            drop_row("model.dropout", self.dropout or 0.0),
        ]


@dataclass(frozen=True)
class Optimisation:
    """The settings of AdamW and of a run's course, the base of every `[training]` section.

    A run takes `steps` steps of `batch` examples. The learning rate rises over `warm_up` steps and then falls to 0.
    Gradients are clipped to a norm of `clip`. `dtype` is the number format of the model (`auto`, `float32`,
    `bfloat16`, ...). Every `evaluate_every` steps there is a point of the curve, every `checkpoint_every` a checkpoint.
    """

    steps: int
    batch: int
    learning_rate: float
    evaluate_every: int
    checkpoint_every: int
    warm_up: float = 0
    weight_decay: float = 0.0
    clip: float = 1.0
    seed: int = 1
    dtype: str = "auto"

    fall: ClassVar[Literal["cosine", "linear"]] = "cosine"
    """How the learning rate falls after the warm-up."""
    least_steps: ClassVar[int] = 1
    least_batch: ClassVar[int] = 1

    @property
    def warm_up_steps(self) -> int:
        """The steps over which the learning rate rises."""
        return int(self.warm_up)

    def share(self, step: int) -> float:
        """The share of the learning rate that `step` (from 0) has."""
        return rate_share(step, self.steps, self.warm_up_steps, self.fall)

    def rows(self) -> list[Row]:
        """The checks of these settings, for `check_values`."""
        return [
            *at_least(self.least_steps, "training", self, "steps"),
            *at_least(self.least_batch, "training", self, "batch"),
            *at_least(1, "training", self, "evaluate_every", "checkpoint_every"),
            *at_least(0, "training", self, "warm_up", "weight_decay"),
            *above_zero(self, "learning_rate", "clip"),
            seed_row("training.seed", self.seed),
        ]


def token_rows(data: Any, *keys: str) -> list[Row]:
    """Where texts are cut."""
    return at_least(LEAST_TOKENS, "data", data, *keys)


def above_zero(training: Any, *keys: str) -> list[Row]:
    """Finite numbers of the optimisation that are more than 0; None, where it may be, fits."""
    values = {key: getattr(training, key) for key in keys}
    return [(f"training.{key}", v, v is None or 0 < v < inf, "a number above 0") for key, v in values.items()]


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add `--max-steps`, `--set` and `--device`."""
    parser.add_argument("--max-steps", type=positive, metavar="N", help="so many steps instead of the configured ones")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change a setting")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda (default: auto)")


def changes_in(options: argparse.Namespace) -> dict[str, str]:
    """The settings that the options change; raises UserError for a `--set` of another form."""
    changes = changes_of(options.set)
    if options.max_steps:
        changes["training.steps"] = str(options.max_steps)
    return changes


def shown_options(options: argparse.Namespace) -> str:
    """The options that change settings, for the record of a command; a blank stands before each."""
    return shown_changes(options.set) + (f" --max-steps {options.max_steps}" if options.max_steps else "")
