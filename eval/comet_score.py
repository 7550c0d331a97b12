"""Score the runs of `python -m eval.translation` by COMET, in the environment of `make comet`.

    python -m eval.comet_score RUNS --model Unbabel/wmt22-comet-da --output SCORES.json
    python -m eval.comet_score RUNS --model MODEL/checkpoints/model.ckpt --output SCORES.json
    python -m eval.comet_score RUNS --model embedded --output SCORES.json

`embedded` is the small model that rag_mt brings; a folder is one of `python -m eval.comet_train`. Then give the scores
to the harness: `python -m eval.translation ... --score-only --metrics bleu,chrf,comet --comet SCORES.json`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eval.comet_checkpoint import EMBEDDED, SHIPPED, checkpoint_of
from eval.comet_environment import comet_python, run_in_comet
from eval.metrics.comet import Triple
from eval.translation_records import read_records
from eval.translation_runs import RECORDS, finished_runs
from rag_mt.console import OK, Parser, note, positive, run
from rag_mt.errors import UserError
from rag_mt.paths import whole_file

EMBEDDED_NAME = "embedded"
BATCH = 16


def score(options: argparse.Namespace) -> int:
    """Score all finished runs and write the scores; returns the exit code."""
    folder = Path(options.runs)
    triples = triples_of(folder)
    found = comet_scores(options.model, triples, options.batch_size, options.quiet)
    rows = [
        {"src": s, "mt": t, "ref": r, "COMET": value} for (s, t, r), value in zip(triples, found["scores"], strict=True)
    ]
    facts = {name: found[name] for name in ("model", "weights", "references", "version")}
    with whole_file(Path(options.output)) as new:
        made = json.dumps(facts | {"scores": {folder.name: rows}}, ensure_ascii=False, indent=0)
        new.write_text(made + "\n", encoding="utf-8")
    mean = sum(found["scores"]) / len(rows)
    note(f"{options.output}: {len(rows)} different translations, COMET by {found['model']} {100 * mean:.2f} on average")
    return OK


def triples_of(folder: Path) -> list[Triple]:
    """The different (source, translation, reference) of all finished runs; raises UserError where there are none."""
    found = {
        (record.source, record.text, record.reference): None
        for path in finished_runs(folder)
        for record in read_records(path.with_suffix(RECORDS))
    }
    if not found:
        raise UserError(f"{folder} holds no finished runs: make some with `python -m eval.translation`")
    return list(found)


def comet_scores(model: str, triples: Sequence[Triple], batch_size: int = BATCH, quiet: bool = False) -> dict[str, Any]:
    """`scores` (COMET's own scale, one per triple) with the `model`, its `weights`, `references` and `version`.

    Raises UserError for a missing environment and a model that cannot be had.
    """
    comet_python()  # said before a checkpoint is built
    name, path = _model(model)
    rows = [{"src": s, "mt": t, "ref": r} for s, t, r in triples]
    answer = run_in_comet("comet_run", {"model": path, "rows": rows, "batch_size": batch_size, "quiet": quiet})
    return answer | {"model": name}


def _model(model: str) -> tuple[str, str]:
    """The name of a model for signatures, and the checkpoint or hub id that unbabel-comet loads."""
    if model == EMBEDDED_NAME:
        return EMBEDDED, str(checkpoint_of(SHIPPED / EMBEDDED))
    path = Path(model)
    if path.is_dir():
        return path.resolve().name, str(checkpoint_of(path))
    if path.is_file():  # MODEL/checkpoints/NAME.ckpt
        return path.resolve().parents[1].name, str(path.resolve())
    if model.endswith(".ckpt") or model.count("/") != 1 or model.startswith((".", "/", "~")):
        raise UserError(
            f"there is no COMET model {model!r}: give a hub id such as Unbabel/wmt22-comet-da, a .ckpt file, a folder "
            f"of `python -m eval.comet_train`, or {EMBEDDED_NAME}"
        )
    return model, model


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m eval.comet_score", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", metavar="RUNS", help="folder of finished runs")
    parser.add_argument("--model", required=True, metavar="ID|FILE|FOLDER|embedded", help="the COMET model")
    parser.add_argument("--output", required=True, metavar="SCORES.json", help="file of the sentence scores")
    parser.add_argument("--batch-size", type=positive, default=BATCH, metavar="N", help=f"sentences (default: {BATCH})")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return run(score, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
