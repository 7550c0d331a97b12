"""The options that all training commands have: settings changed on the command line, and the device."""

from __future__ import annotations

import argparse

from rag_mt.console import positive
from rag_mt.toml_settings import changes_of, shown_changes


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
