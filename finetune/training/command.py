"""The command line that all trainings share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from finetune.training.settings import Settings
from rag_mt.base.console import OK, Parser, positive, run
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import settings_hash
from rag_mt.base.paths import cache_dir
from rag_mt.base.settings import changes_of, shown_changes, shown_path

C = TypeVar("C", bound=Settings)


def settings_parser(name: str, description: str | None, config: type[Settings]) -> Parser:
    """A parser of `python -m finetune.NAME` with `--config` and `--set`."""
    parser = Parser(
        prog=f"python -m finetune.{name}", description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--config", required=True, metavar="FILE", help=f"settings, such as {config.example}")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change a setting")
    return parser


def read_config(options: argparse.Namespace, config: type[C], changes: Mapping[str, str] = {}) -> C:
    """The settings that `--config` and `--set` name, with `changes` on top (see `read_settings`)."""
    return config.read(Path(options.config), {**changes_of(options.set), **changes})


def run_training(
    parser: Parser,
    config: type[C],
    data: Sequence[str],
    train: Callable[[argparse.Namespace, C, str], None],
    arguments: Sequence[str] | None,
    model: str = "model",
    trial: bool = False,
) -> int:
    """Read the arguments and settings and call `train` with both and the command as it is recorded; returns the exit
    code.

    `data` are the names of the options for data; the user's files and folders are recorded by these. `--output` is the
    place of the `model` (or adapter); with `trial`, which goes without data, it has another one (see `trial_folder`).
    """
    place_help = f"the {model}'s folder; checkpoints lie in it too"
    parser.add_argument("--output", required=not trial, metavar="DIR", help=place_help)
    parser.add_argument("--max-steps", type=positive, metavar="N", help="so many steps instead of the configured ones")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda (default: auto)")

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
