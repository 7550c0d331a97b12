"""Settings of trainings, sections of a TOML file whose types say what each value must be, and the command line that all
trainings share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import cos, inf, pi
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_args, get_type_hints

from rag_mt.base.console import OK, Parser, positive, run
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.files import cache_dir, settings_hash
from rag_mt.base.languages import WMT16
from rag_mt.base.settings import changes_of, config_file, read_settings, shown_changes, shown_path

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
    """The base of a training's `Config`, which has a field for each section, a dataclass with defaults; `example` is
    the name of shipped ones to try."""

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

    A run takes `steps` steps of `batch` examples. The learning rate rises over `warm_up` steps (a share of all
    if it is below 1) and then falls to 0.
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
        return max(1, round(self.warm_up * self.steps)) if 0 < self.warm_up < 1 else int(self.warm_up)

    def share(self, step: int) -> float:
        """The share of the learning rate that `step` (from 0) has: a linear rise over the warm-up, then a fall to 0
        along half a cosine or a line."""
        if step < self.warm_up_steps:
            return (step + 1) / self.warm_up_steps
        done = min(1.0, (step - self.warm_up_steps) / max(1, self.steps - self.warm_up_steps))
        return 1 - done if self.fall == "linear" else 0.5 * (1 + cos(pi * done))


C = TypeVar("C", bound=Settings)


def settings_parser(name: str, description: str | None, config: type[Settings], examples: Sequence[str] = ()) -> Parser:
    """A parser of `python -m finetune.NAME` with `--config` and `--set`, whose help ends with the examples."""
    parser = Parser(prog=f"python -m finetune.{name}", description=description, examples=examples)
    parser.add_argument("--config", required=True, metavar="NAME|FILE", help=f"settings, such as {config.example}")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change a setting")
    return parser


def read_config(options: argparse.Namespace, config: type[C], changes: Mapping[str, str] = {}) -> C:
    """The settings that `--config` and `--set` name, with `changes` on top (see `read_settings`)."""
    return config.read(config_file(options.config), {**changes_of(options.set), **changes})


def run_training(
    parser: Parser,
    config: type[C],
    data: Sequence[str],
    train: Callable[[argparse.Namespace, C, str], None],
    arguments: Sequence[str] | None,
    model: str = "model",
    trial: bool = False,
) -> int:
    """Call `train` with the options, the settings and the command as it is recorded; returns the exit code.

    `data` are the names of the options for data, by which the user's files are recorded. The `model` (or adapter) is
    written to `--output`; with `trial` the command also runs without data, and then needs none (see `trial_folder`).
    """
    place_help = f"the {model}'s folder; checkpoints lie in it too"
    parser.add_argument("--output", required=not trial, metavar="DIR", help=place_help)
    parser.add_argument("--max-steps", type=positive, metavar="N", help="so many steps instead of the configured ones")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")

    def training(options: argparse.Namespace) -> int:
        steps = {"training.steps": str(options.max_steps)} if options.max_steps else {}
        settings = read_config(options, config, steps)
        if getattr(options, data[0]) and not options.output:
            raise UserError(f"the {model} has no place: give --output DIR")
        command = f"{parser.prog} --config {shown_path(options.config)}"
        command += "".join(f" --{name} {name.upper()}" for name in data if getattr(options, name))
        command += f" --output {model.upper()}{shown_changes(options.set)}"
        train(options, settings, command + (f" --max-steps {options.max_steps}" if options.max_steps else ""))
        return OK

    return run(training, parser.parse_args(arguments))


def trial_folder(options: argparse.Namespace, config: Settings, *data: object) -> Path:
    """Where a run without `--output` is kept, by its settings and what tells its data from others."""
    return cache_dir() / "trials" / f"{Path(options.config).stem}-{settings_hash([config.as_dict(), *data])[:8]}"
