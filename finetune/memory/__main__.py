"""Fit what a memory judges its sentences by, on sentences with references and drafts.

    python -m finetune.memory --cell RUNS/plain/de-en.jsonl INDEX [--cell ...] --output similarity.json

A cell is a run of `python -m eval.translation` without hints, whose outputs are the drafts, with the index (of
`--retriever memory`) that its sentences are recalled from. The index must not hold the references: who fits on its own
index is told that everything is found. The result goes into the folder of an index, for that one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from finetune.memory.cells import encoder_of, read_cells
from finetune.memory.similarity import fit_similarity
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
    words = ["python -m finetune.memory"]
    words += [f"--cell {shown_path(file)} {shown_path(index)}" for file, index in options.cell]
    words += [f"--limit {options.limit}"] if options.limit else []
    facts = {
        "command": " ".join([*words, f"--output {Path(options.output).name}"]),
        "encoder": encoder.fingerprint,
        "cells": [cell.facts() for cell in cells],
    }
    Similarity(models, {**facts, "held out": reports}).save(Path(options.output))
    for kind, report in reports.items():
        for group in [name for name, value in report.items() if isinstance(value, dict)]:
            own = report[group]
            note(
                f"{kind}, {group}: {own['sentences']} sentences, best hit expected {own['expected']:.3f}, chrF "
                f"{own['chrf']:.3f} (at best {own['at best']:.3f}, by cosine {own['by cosine']:.3f})"
            )
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    example = "--cell runs/plain/de-en.jsonl help-en --output similarity.json"
    parser = Parser("python -m finetune.memory", description=__doc__, examples=[example])
    add = parser.add_argument
    cell_help = "a run without hints and the index that its sentences are recalled from; may be repeated"
    add("--cell", nargs=2, action="append", required=True, metavar=("RUN", "INDEX"), help=cell_help)
    add("--limit", type=positive, default=0, metavar="N", help="the first N sentences of each cell (default: all)")
    add("--output", required=True, metavar="FILE", help="where the result is written, as JSON")
    add("--device", default="auto", help="auto, cpu or cuda")
    add("--quiet", action="store_true", help="no progress bar")
    return run(similarity, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
