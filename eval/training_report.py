"""Training runs side by side, read from the `training.json` of each folder.

    python -m eval.training_report BASE OTHER ... [--output FILE.md]

Of phrase models (`python -m finetune.ccpr`): what was set otherwise than in the first run, and the development scores
at the end: strict accuracy@1 among all spans of the development sentences that are read during training (a small pool:
for choices, not for results), and how well the segmentation head tells phrases from other spans (area under the ROC
curve).

Of adapters of a language model (`python -m finetune.lora`): a row per evaluation with the sentence pairs seen until
then. Losses are natural logarithms per token of the answer, on development examples with the hints of the adapter's
method.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.report.blocks import markdown_table
from rag_mt.base.console import OK, Parser, run
from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json, write_whole
from rag_mt.models.adapter_files import seen_before

NOT_SETTINGS = ("evaluate_every", "checkpoint_every")

Runs = Mapping[str, Mapping[str, Any]]
"""The `training.json` of each run by the name of its folder."""


def phrase_table(runs: Runs) -> str:
    """A Markdown table of phrase models, a row per run."""
    first = next(iter(runs.values()))
    base = first["curve"][-1]
    languages = [name for name in base if name.endswith("-en")]
    head = ["run", "set otherwise", "pairs seen", "minutes", *languages, "average", "change", "segmentation AUC"]
    rows = []
    for name, own in runs.items():
        last = own["curve"][-1]
        changed = changes(flat(first["settings"]), flat(own["settings"]))
        seen, minutes = f"{own['sentence_pairs_seen']:,}", f"{own['training_seconds'] / 60:.1f}"
        scores = [f"{last[language]:.1f}" if language in last else "" for language in (*languages, "average")]
        change = "" if own is first else f"{round(last['average'] - base['average'], 1) + 0.0:+.1f}"
        rows.append([name, changed, seen, minutes, *scores, change, f"{last['segmentation_auc']:.1f}"])
    return markdown_table(head, rows)


def adapter_table(runs: Runs) -> str:
    """A Markdown table of adapters, a row per evaluation; pairs seen and minutes include those of the runs that one
    began with. Raises UserError for a run without development losses."""
    rows = []
    for name, own in runs.items():
        if "dev" not in own["curve"][0]:
            raise UserError(f"adapter {name} was trained without development examples: train it with --dev DEV.jsonl")
        pairs, seconds = seen_before(own.get("started_from"))
        for point in own["curve"]:
            directions = ", ".join(f"{key} {point[key]:.2f}" for key in sorted(point) if "-" in key)
            seen, minutes = f"{pairs + point['pairs']:,}", f"{(seconds + point['seconds']) / 60:.0f}"
            rows.append([name, seen, minutes, f"{point['loss']:.3f}", f"{point['dev']:.3f}", directions])
    return markdown_table(["run", "pairs seen", "minutes", "training loss", "dev loss", "by direction"], rows)


def changes(base: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """The settings of a run that are not those of the base; of paths the last part."""
    names = [name for name in sorted(base.keys() | own.keys()) if base.get(name) != own.get(name)]
    shown = [name for name in names if name.rpartition(".")[2] not in NOT_SETTINGS]
    return ", ".join(f"`{name}={str(own.get(name, 'default')).rpartition('/')[2]}`" for name in shown)


def flat(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """`{"model": {"layer": 8}}` as `{"model.layer": 8}`; what is nested more deeply stays as it is."""
    return {f"{section}.{name}": value for section, own in settings.items() for name, value in own.items()}


def read_runs(folders: Sequence[str]) -> Runs:
    """The `training.json` of each folder, by the folders' names.

    Raises UserError for a folder without one or without a score, and for two of the same name.
    """
    runs: dict[str, Mapping[str, Any]] = {}
    for folder in map(Path, folders):
        path = folder / "training.json"
        if not path.is_file():
            raise UserError(
                f"there is no {path}: give folders of `python -m finetune.ccpr` or `python -m finetune.lora`"
            )
        facts = read_json(path)
        if not facts.get("curve"):
            raise UserError(f"{path} has no scores yet: train until the first evaluation")
        if folder.name in runs:
            raise UserError(f"two of the folders are named {folder.name}: rename one, names are the rows of the table")
        runs[folder.name] = facts
    return runs


def table(runs: Runs) -> str:
    """The table of these runs; raises UserError for runs of both kinds, which no table can hold."""
    phrase_models = [name for name, own in runs.items() if "segmentation_auc" in own["curve"][-1]]
    if not phrase_models:
        return adapter_table(runs)
    if other := next((name for name in runs if name not in phrase_models), None):
        raise UserError(f"{phrase_models[0]} is a phrase model and {other} is none: give runs of one kind")
    return phrase_table(runs)


def report(options: argparse.Namespace) -> int:
    """Print the table and maybe write it."""
    text = table(read_runs(options.runs)) + "\n"
    print(text, end="")
    if options.output:
        write_whole(Path(options.output), text)
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m eval.training_report",
        description=__doc__,
        examples=["BASE OTHER --output training.md"],
    )
    parser.add_argument("runs", nargs="+", metavar="FOLDER", help="folders of models or adapters, the base first")
    parser.add_argument("--output", metavar="FILE.md", help="write the table here too")
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
