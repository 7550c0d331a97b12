"""The settings that several trainings share: what is checked of them, and the options that change them."""

from __future__ import annotations

import argparse
from math import inf
from typing import Any

from rag_mt.base.console import positive
from rag_mt.base.settings import Row, at_least, changes_of, drop_row, shown_changes

LEAST_TOKENS = 8
"""Fewer tokens hold no words beside a prefix and the marks of beginning and end."""


def tuning_rows(model: Any) -> list[Row]:
    """How an encoder is tuned (see `finetune.training.tuning.Tuning`)."""
    return [
        *at_least(1, "model", model, "rank", "alpha"),
        *at_least(0, "model", model, "frozen_layers"),
        drop_row("model.lora_dropout", model.lora_dropout),
        drop_row("model.dropout", model.dropout or 0.0),
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
