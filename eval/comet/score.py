"""Score the runs of `python -m eval.translation` by COMET, in the environment of `make comet`.

    python -m eval.comet.score RUNS --model Unbabel/wmt22-comet-da --output SCORES.json
    python -m eval.comet.score RUNS --model MODEL/checkpoints/model.ckpt --output SCORES.json

Then give the scores to the harness:
`python -m eval.translation ... --score-only --metrics bleu,chrf,comet --comet SCORES.json`.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.comet.environment import comet_python, run_in_comet
from eval.metrics.comet import Triple, read_scores
from eval.translation.records import read_records
from eval.translation.runs import RECORDS, finished_runs, note_command
from rag_mt.base.console import OK, Parser, note, positive, run
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import read_json
from rag_mt.base.paths import whole_file

BATCH = 16
BLOCK = 20_000
"""Translations that are scored before they are written; the model is loaded again for the next ones."""
FACTS = ("model", "weights", "references", "version")
"""What a file of scores tells of its model."""


def score(options: argparse.Namespace) -> int:
    """Score all finished runs and write the scores; returns the exit code.

    What the file of an earlier call has by the same weights is kept. A block of translations is written once it is
    scored, so that a stopped command goes on where it was.
    """
    begin = time.perf_counter()
    folder, output = Path(options.runs), Path(options.output)
    if output.is_dir():
        raise UserError(f"--output {output} is a folder: name a file for the scores, such as {output / 'comet.json'}")
    triples = triples_of(folder)
    comet_python()  # said before anything is scored
    facts, known = _earlier(output, _model(options.model)[0])
    kept = sum(t in known for t in triples)
    block = _missing(triples, known) or triples[:1]  # at least one: it tells whether the weights are the same
    while block:
        found = comet_scores(options.model, block, options.batch_size, options.quiet)
        own = {name: found[name] for name in FACTS}
        if facts and own != facts:
            note(f"{output} has scores of other weights or of another version: all are made again")
            known, kept = {}, 0
        facts = own
        known.update(zip(block, found["scores"], strict=True))
        _write(output, folder.name, facts, {t: known[t] for t in triples if t in known})
        block = _missing(triples, known)
    note_command(folder, _command(options), time.perf_counter() - begin)
    mean = sum(known[t] for t in triples) / len(triples)
    note(f"{output}: {len(triples)} different translations, COMET by {facts['model']} {100 * mean:.2f} on average")
    if kept:
        note(f"{kept} of them were scored before")
    return OK


def _missing(triples: Sequence[Triple], known: Mapping[Triple, float]) -> list[Triple]:
    """The first of those that have no score, as many as are scored together."""
    return [t for t in triples if t not in known][:BLOCK]


def _earlier(output: Path, model: str) -> tuple[dict[str, Any], dict[Triple, float]]:
    """What is told of the model and the scores in a file that an earlier call has written by it; empty if there is
    none."""
    if not output.is_file():
        return {}, {}
    scores, found = read_scores(output), read_json(output)
    if not isinstance(found, dict) or any(name not in found for name in FACTS):
        raise UserError(f"{output} is there and not of this command: name another --output")
    if found["model"] != model:
        raise UserError(f"{output} has scores by {found['model']}: name another --output for those by {model}")
    return {name: found[name] for name in FACTS}, scores


def _write(output: Path, name: str, facts: Mapping[str, Any], scores: Mapping[Triple, float]) -> None:
    rows = [{"src": s, "mt": t, "ref": r, "COMET": value} for (s, t, r), value in scores.items()]
    with whole_file(output) as new:
        new.write_text(
            json.dumps({**facts, "scores": {name: rows}}, ensure_ascii=False, indent=0) + "\n", encoding="utf-8"
        )


def _command(options: argparse.Namespace) -> str:
    """The command; folders and files of this machine by their last name."""
    model = Path(options.model).name if Path(options.model).exists() else options.model
    runs, output = Path(options.runs).name, Path(options.output).name
    return shlex.join(["python", "-m", "eval.comet.score", runs, "--model", model, "--output", output])


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
    name, path = _model(model)
    rows = [{"src": s, "mt": t, "ref": r} for s, t, r in triples]
    answer = run_in_comet("comet_run", {"model": path, "rows": rows, "batch_size": batch_size, "quiet": quiet})
    return answer | {"model": name}


def _model(model: str) -> tuple[str, str]:
    """The name of a model for signatures, and the checkpoint or hub id that unbabel-comet loads."""
    path = Path(model)
    if path.is_file():  # MODEL/checkpoints/NAME.ckpt
        return path.resolve().parents[1].name, str(path.resolve())
    if model.endswith(".ckpt") or model.count("/") != 1 or model.startswith((".", "/", "~")):
        raise UserError(
            f"there is no COMET model {model!r}: give a hub id such as Unbabel/wmt22-comet-da or a .ckpt file"
        )
    return model, model


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m eval.comet.score", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", metavar="RUNS", help="folder of finished runs")
    parser.add_argument("--model", required=True, metavar="ID|FILE", help="the COMET model")
    parser.add_argument("--output", required=True, metavar="SCORES.json", help="file of the sentence scores")
    parser.add_argument("--batch-size", type=positive, default=BATCH, metavar="N", help=f"sentences (default: {BATCH})")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return run(score, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
