"""How well a language model translates after so many sentence pairs: the development losses of LoRA runs.

    python -m eval.tuning_report ADAPTER ... [--output FILE.md]

reads the `training.json` of each adapter folder that `python -m finetune.lora` wrote. Losses are natural logarithms per
token of the answer, on development examples with the hints of the adapter's method.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.training_report import read_run
from rag_mt.console import OK, Parser, run
from rag_mt.errors import UserError
from rag_mt.paths import whole_file


def table(runs: Mapping[str, Mapping[str, Any]]) -> str:
    """A Markdown table, a row per evaluation; pairs seen include those of the adapter that a run began with."""
    heads = ["run", "pairs seen", "minutes", "training loss", "dev loss", "by direction"]
    rows = [heads, ["---"] * len(heads)]
    for name, own in runs.items():
        before = own.get("started_from", {}).get("sentence_pairs_seen", 0)
        for point in own["curve"]:
            directions = ", ".join(f"{key} {point[key]:.2f}" for key in sorted(point) if "-" in key)
            seen, spent = before + point["pairs"], point["seconds"] / 60
            rows.append([name, f"{seen:,}", f"{spent:.0f}", f"{point['loss']:.3f}", f"{point['dev']:.3f}", directions])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def report(options: argparse.Namespace) -> int:
    """Print the table and maybe write it."""
    runs = {Path(folder).name: read_run(folder) for folder in options.runs}
    if len(runs) < len(options.runs):
        raise UserError("two of the adapters have folders of the same name: rename one")
    for name, own in runs.items():
        if "dev" not in own["curve"][0]:
            raise UserError(f"adapter {name} was trained without development examples: train it with --dev DEV.jsonl")
    text = table(runs)
    print(text, end="")
    if options.output:
        with whole_file(Path(options.output)) as path:
            path.write_text(text, encoding="utf-8")
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m eval.tuning_report", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("runs", nargs="+", metavar="ADAPTER", help="adapter folders, those of the first stage first")
    parser.add_argument("--output", metavar="FILE.md", help="write the table here too")
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
