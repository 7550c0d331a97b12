"""Training runs of phrase models side by side: what was set otherwise, and the development scores at their end.

    python -m eval.training_report BASE OTHER ... [--output FILE.md]

reads the `training.json` of each model folder. Scores are those of `finetune.ccpr`: strict accuracy@1 among all spans
of the development sentences that are read during training (a small pool: for choices, not for results), and how well
the segmentation head tells phrases from other spans (area under the ROC curve). The first run is the base.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rag_mt.console import OK, Parser, run
from rag_mt.errors import UserError
from rag_mt.fingerprints import read_json
from rag_mt.paths import whole_file

SCORES = ("average", "segmentation_auc")
NOT_SETTINGS = ("evaluate_every", "checkpoint_every")


def table(runs: Mapping[str, Mapping[str, Any]]) -> str:
    """A Markdown table, a row per run."""
    first = next(iter(runs.values()))
    languages = [name for name in first["curve"][-1] if name.endswith("-en")]
    heads = ["run", "set otherwise", "pairs seen", "minutes", *languages, "average", "change", "segmentation AUC"]
    rows = [heads, ["---"] * len(heads)]
    for name, own in runs.items():
        last = own["curve"][-1]
        scores = [f"{last[language]:.1f}" if language in last else "" for language in languages]
        change = "" if own is first else f"{round(last['average'] - first['curve'][-1]['average'], 1) + 0.0:+.1f}"
        rows.append(
            [
                name,
                changes(flat(first["settings"]), flat(own["settings"])),
                f"{own['sentence_pairs_seen']:,}",
                f"{own['training_seconds'] / 60:.1f}",
                *scores,
                f"{last['average']:.1f}",
                change,
                f"{last['segmentation_auc']:.1f}",
            ]
        )
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def changes(base: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """The settings of a run that are not those of the base; of paths the last part."""
    differ = [name for name in sorted(base.keys() | own.keys()) if base.get(name) != own.get(name)]
    kept = [name for name in differ if name.rpartition(".")[2] not in NOT_SETTINGS]
    return ", ".join(f"`{name}={str(own.get(name, 'default')).rpartition('/')[2]}`" for name in kept)


def flat(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """`{"model": {"layer": 8}}` as `{"model.layer": 8}`; what is nested more deeply stays as it is."""
    return {f"{section}.{name}": value for section, own in settings.items() for name, value in own.items()}


def read_runs(folders: Sequence[str], program: str) -> dict[str, Mapping[str, Any]]:
    """The `training.json` of each folder that `program` wrote, by the folders' names.

    Raises UserError for a folder without one or without a score, and for two of the same name.
    """
    runs: dict[str, Mapping[str, Any]] = {}
    for folder in map(Path, folders):
        path = folder / "training.json"
        if not path.is_file():
            raise UserError(f"there is no {path}: give folders that `python -m {program}` wrote")
        found = read_json(path)
        if not found.get("curve"):
            raise UserError(f"{path} has no scores yet: train until the first evaluation")
        if folder.name in runs:
            raise UserError(f"two of the folders are named {folder.name}: rename one, names are the rows of the table")
        runs[folder.name] = found
    return runs


def show(text: str, output: str | None) -> int:
    """Print a table and maybe write it to a file; returns the exit code."""
    print(text, end="")
    if output:
        with whole_file(Path(output)) as path:
            path.write_text(text, encoding="utf-8")
    return OK


def arguments_parser(prog: str, description: str | None, folders: str) -> Parser:
    """The arguments of a report about training runs, whose `folders` are named so in the help."""
    parser = Parser(prog=prog, description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="FOLDER", help=folders)
    parser.add_argument("--output", metavar="FILE.md", help="write the table here too")
    return parser


def report(options: argparse.Namespace) -> int:
    """Print the table and maybe write it."""
    return show(table(read_runs(options.runs, "finetune.ccpr")), options.output)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = arguments_parser("python -m eval.training_report", __doc__, "model folders, the base first")
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
