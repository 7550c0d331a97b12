"""Draw the figures of the documentation, docs/figures/*.svg, from the numbers in reports/figures/*.json.

    python -m eval.figures                                   all figures of the numbers that are there
    python -m eval.figures --runs RUNS                       first the numbers of gain-by-similarity, from runs
    python -m eval.speed.llm --output reports/figures/speed-by-engine.json      the numbers of speed-by-engine

RUNS is a folder that `python -m eval.translation --output RUNS` has made with plain and at least one other system. The
same numbers give the same file. The architecture is drawn without numbers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.figures import architecture, gains, speeds
from eval.report.reading import read_runs
from rag_mt.base.console import OK, Parser, note, run
from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json, write_json, write_whole

NUMBERS, FIGURES = Path("reports/figures"), Path("docs/figures")
GAINS = "gain-by-similarity"
MEASURED: dict[str, Callable[[Mapping[str, Any]], str]] = {GAINS: gains.draw, "speed-by-engine": speeds.draw}
"""The figures of measured numbers, by name."""


def drawn(numbers: Path) -> dict[str, str]:
    """The SVG of every figure by name, of those with numbers only where these are in the folder; raises UserError for
    a file that has no such numbers."""
    figures = {"architecture": architecture.draw()}
    for name, draw in MEASURED.items():
        path = numbers / f"{name}.json"
        if path.is_file():
            try:
                figures[name] = draw(read_json(path))
            except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
                raise UserError(f"{path} has no numbers of {name} ({error!r}): make it again") from None
    return figures


def figures(options: argparse.Namespace) -> int:
    """Write the numbers of runs, if given, and draw all figures."""
    if options.runs:
        options.numbers.mkdir(parents=True, exist_ok=True)
        write_json(options.numbers / f"{GAINS}.json", gains.gains_of(read_runs(options.runs)))
    options.output.mkdir(parents=True, exist_ok=True)
    pictures = drawn(options.numbers)
    for name, svg in pictures.items():
        write_whole(options.output / f"{name}.svg", svg)
        note(f"{options.output / name}.svg")
    for name in MEASURED.keys() - pictures.keys():
        note(f"{name} is not drawn: {options.numbers / name}.json is not there; see `python -m eval.figures --help`")
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(prog="python -m eval.figures", description=__doc__, examples=["", "--runs RUNS --output figures"])
    add = parser.add_argument
    add("--runs", type=Path, metavar="RUNS", help="make the numbers of gain-by-similarity from these runs")
    add("--numbers", type=Path, default=NUMBERS, metavar="DIR", help="folder of the numbers")
    add("--output", type=Path, default=FIGURES, metavar="DIR", help="folder of the figures")
    return run(figures, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
