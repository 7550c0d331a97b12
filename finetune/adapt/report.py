"""The report of an adaptation, and the place where its adapter is kept."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rag_mt.base.files import whole_folder, write_json, write_whole
from rag_mt.models.adapter_files import ADAPTERS
from rag_mt.translation.index_adapters import REPORT, describe

PAGE = "report.md"
BACK_TRANSLATIONS = (
    "The held-out sentences are whole blocks of the index that no example is of. What is translated is their "
    "back-translation, with hints from the other blocks; text that was not written by a translation model can gain "
    "another amount."
)
OWN_PAIRS = (
    "The held-out sentences are of your own pairs. Nothing is learnt from them, nor from what has the same target, and "
    "where that stands in the index, hints are from the other blocks alone."
)


def place_of(index: Path, source: str) -> Path:
    """The folder of an index's adapter for a source language."""
    return index / ADAPTERS / source


def store(adapter: Path, index: Path, report: Mapping[str, Any], aside: Path) -> Path:
    """Put an adapter with its report beside the index, whole or not at all; one that is there moves to `aside`."""
    place = place_of(index, str(report["source"]))
    if place.exists():
        shutil.rmtree(aside, ignore_errors=True)
        place.rename(aside)
    with whole_folder(place) as part:
        for file in adapter.iterdir():
            if file.is_file():
                shutil.copyfile(file, part / file.name)
        write_json(part / REPORT, report)
        write_whole(part / PAGE, page(report))
    return place


def page(report: Mapping[str, Any]) -> str:
    """The report for people, in Markdown."""
    scores, loss = report["scores"], report["loss"]
    change = report["settings"]["config"]["average"]["change"]
    minutes = {name: value / 60 for name, value in report["seconds"].items()}
    rows = [
        ("chrF of the held-out sentences", scores["chrf_before"], scores["chrf"]),
        ("BLEU", scores["bleu_before"], scores["bleu"]),
        ("loss per token of their examples, at the end of the training", loss["before"], loss["after"]),
    ]
    dropped = [f"- {count} {reason}" for reason, count in report["dropped"].items()]
    lines = [
        f"# An adapter from {report['source']} to {report['target']} for {report['llm']}",
        "",
        f"`{report['command']}` (rag_mt {report['version']}): {describe(dict(report))}, "
        f"p {scores['p']:.3f} by paired bootstrap over sentences.",
        "",
        "| | before | after |",
        "|---|---|---|",
        *(f"| {name} | {before:.2f} | {after:.2f} |" for name, before, after in rows),
        "",
        f"The adapter has the weights that it began with and {change:g} of what the training changed in them; the loss "
        "after is that of the training itself.",
        "",
        OWN_PAIRS if report["examples"].get("of them your own") else BACK_TRANSLATIONS,
        "",
        "## Data",
        "",
        *(f"- {count} {name}" for name, count in report["examples"].items()),
        "",
        "Left out:",
        "",
        *(dropped or ["- nothing"]),
        "",
        "## Minutes",
        "",
        "| " + " | ".join(minutes) + " |",
        "|" + "---|" * len(minutes),
        "| " + " | ".join(f"{value:.1f}" for value in minutes.values()) + " |",
        "",
        "`report.json` has all settings, `training.json` those of the training with its curve.",
    ]
    return "\n".join(lines) + "\n"
