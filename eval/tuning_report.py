"""How well a language model translates after so many sentence pairs: the development losses of LoRA runs.

    python -m eval.tuning_report ADAPTER ... [--output FILE.md]

reads the `training.json` of each adapter folder that `python -m finetune.lora` wrote. Losses are natural logarithms per
token of the answer, on development examples with the hints of the adapter's method.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from eval.training_report import arguments_parser, read_runs, show
from rag_mt.adapters import seen_before
from rag_mt.console import run
from rag_mt.errors import UserError


def table(runs: Mapping[str, Mapping[str, Any]]) -> str:
    """A Markdown table, a row per evaluation; pairs seen and minutes include those of the runs that one began with."""
    heads = ["run", "pairs seen", "minutes", "training loss", "dev loss", "by direction"]
    rows = [heads, ["---"] * len(heads)]
    for name, own in runs.items():
        pairs, seconds = seen_before(own.get("started_from"))
        for point in own["curve"]:
            directions = ", ".join(f"{key} {point[key]:.2f}" for key in sorted(point) if "-" in key)
            seen, spent = pairs + point["pairs"], (seconds + point["seconds"]) / 60
            rows.append([name, f"{seen:,}", f"{spent:.0f}", f"{point['loss']:.3f}", f"{point['dev']:.3f}", directions])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def report(options: argparse.Namespace) -> int:
    """Print the table and maybe write it."""
    runs = read_runs(options.runs, "finetune.lora")
    for name, own in runs.items():
        if "dev" not in own["curve"][0]:
            raise UserError(f"adapter {name} was trained without development examples: train it with --dev DEV.jsonl")
    return show(table(runs), options.output)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = arguments_parser("python -m eval.tuning_report", __doc__, "adapter folders, the first stage first")
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
