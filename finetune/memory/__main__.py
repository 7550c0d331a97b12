"""Fit what a memory judges its sentences by, on sentences with references and drafts.

    python -m finetune.memory similarity --cell RUNS/plain/de-en.jsonl INDEX [--cell ...] --output similarity.json
    python -m finetune.memory gate --cell RUNS/plain/de-en.jsonl INDEX --config lora-embedded --adapter ADAPTER \\
        --similarity similarity.json --output gate.json

A cell is a run of `python -m eval.translation` without hints, whose outputs are the drafts, with the index (of
`--retriever memory`) that its sentences are recalled from. The index must not hold the references: who fits on its own
index is told that everything is found. The result goes into the folder of an index, for that one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from finetune.lora.config import Config
from finetune.memory.cells import encoder_of, read_cells
from finetune.memory.gate import Judge, fit_gate, judged_of
from finetune.memory.similarity import fit_similarity
from finetune.training.settings import read_config
from rag_mt.base.console import OK, Parser, note, positive, run
from rag_mt.base.errors import UserError
from rag_mt.base.settings import shown_path
from rag_mt.models.weights import FOLDER
from retrievers.memory.similarity import FILE, KINDS, MODEL, Similarity

SHIPPED = FOLDER / MODEL / FILE


def similarity(options: argparse.Namespace) -> int:
    """Fit and write the model of similarity."""
    cells = read_cells(options.cell, options.limit)
    encoder = encoder_of(cells, options.device)
    models, reports = fit_similarity(cells, encoder, not options.quiet)
    missing = [kind for kind in KINDS if kind not in models]
    if missing and SHIPPED.is_file():  # a memory of one language tells nothing of originals
        models |= {kind: Similarity.load(SHIPPED).models[kind] for kind in missing}
        note(f"kept as they ship, because not all indexes have both languages: {', '.join(missing)}")
    elif missing:
        raise UserError(
            f"the indexes have one language, and tell nothing of {', '.join(missing)}: build one from a TMX file"
        )
    facts = _facts(options, [cell.facts() for cell in cells], encoder.fingerprint)
    Similarity(models, {**facts, "held out": reports}).save(Path(options.output))
    for kind, report in reports.items():
        for group in [name for name, value in report.items() if isinstance(value, dict)]:
            own = report[group]
            note(
                f"{kind}, {group}: {own['sentences']} sentences, best hit expected {own['expected']:.3f}, chrF "
                f"{own['chrf']:.3f} (at best {own['at best']:.3f}, by cosine {own['by cosine']:.3f})"
            )
    return OK


def gate(options: argparse.Namespace) -> int:
    """Fit and write the gate."""
    cells = read_cells(options.cell, options.limit)
    encoder = encoder_of(cells, options.device)
    config = read_config(options, Config, {"model.start": options.adapter})
    judge = Judge(config, options.device)
    model = Similarity.load(Path(options.similarity))
    judged = judged_of(cells, encoder, model, judge, options.surprisal, not options.quiet)
    adapter = {"adapter": Path(options.adapter).name, **dict(judge.model.before or {})}
    facts = _facts(options, [cell.facts() for cell in cells], encoder.fingerprint)
    fitted = fit_gate(judged, {**facts, "model": config.model.llm, "adapter": adapter}, options.bound)
    fitted.save(Path(options.output))
    for name, own in fitted.fitted["held out"].items():
        if isinstance(own, dict):
            note(
                f"{name}: {own['sentences']} sentences, {own['shown']:.0%} shown, gain {own['gate']:+.3f} nats a "
                f"sentence (always {own['always']:+.3f}, at best {own['at best']:+.3f})"
            )
    return OK


def _facts(options: argparse.Namespace, cells: list[dict[str, Any]], encoder: str) -> dict[str, Any]:
    names = [f"--cell {shown_path(file)} {shown_path(index)}" for file, index in options.cell]
    words = [f"python -m finetune.memory {options.what}", *names]
    for name in ("limit", "config", "adapter", "similarity", "bound"):
        if value := getattr(options, name, None):
            words.append(f"--{name} {shown_path(str(value))}")
    words += ["--surprisal"] if getattr(options, "surprisal", False) else []
    return {"command": " ".join([*words, f"--output {Path(options.output).name}"]), "encoder": encoder, "cells": cells}


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        "python -m finetune.memory",
        description=__doc__,
        examples=["similarity --cell runs/plain/de-en.jsonl help-en --output similarity.json"],
    )
    verbs = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    for name, call, text, example in (
        ("similarity", similarity, "how similar a sentence is", "--output similarity.json"),
        ("gate", gate, "whether it is worth showing", "--config lora-embedded --adapter ADAPTER --output gate.json"),
    ):
        cell = "--cell runs/plain/de-en.jsonl help-en"
        verb = verbs.add_parser(name, help=text, description=f"Fit {text}.", examples=[f"{cell} {example}"])
        add = verb.add_argument
        cell_help = "a run without hints and the index that its sentences are recalled from; may be repeated"
        add("--cell", nargs=2, action="append", required=True, metavar=("RUN", "INDEX"), help=cell_help)
        add("--limit", type=positive, default=0, metavar="N", help="the first N sentences of each cell (default: all)")
        add("--output", required=True, metavar="FILE", help="where the result is written, as JSON")
        if name == "gate":
            add("--config", required=True, metavar="NAME|FILE", help="settings of the adapter, such as lora-embedded")
            add("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change a setting")
            add("--adapter", required=True, metavar="DIR", help="the adapter that hints will be shown to")
            add("--similarity", default=str(SHIPPED), metavar="FILE", help="the model of similarity (default: shipped)")
            bound_help = "gain that must be expected of hints that are shown, in nats"
            add("--bound", type=float, default=0.0, metavar="NATS", help=bound_help)
            add("--surprisal", action="store_true", help="let the gate look at the draft's surprisal too")
        add("--device", default="auto", help="auto, cpu or cuda")
        add("--quiet", action="store_true", help="no progress bar")
        verb.set_defaults(call=call)
    options = parser.parse_args(arguments)
    return run(options.call, options)


if __name__ == "__main__":
    sys.exit(main())
