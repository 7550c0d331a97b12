"""Score the runs of `python -m eval.translation` by COMET, in the environment of `make comet`.

    python -m eval.comet.score RUNS --model Unbabel/wmt22-comet-da --output SCORES.json
    python -m eval.comet.score RUNS --model MODEL/checkpoints/model.ckpt --output SCORES.json

Then give the scores to the harness:
`python -m eval.translation ... --score-only --metrics bleu,chrf,comet --comet SCORES.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from eval.metrics.comet import FACTS, Triple, read_scores
from eval.translation.records import RECORDS, command_line, finished_runs, note_command, read_records
from rag_mt.base.console import OK, Parser, note, positive, run
from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json, write_whole

VARIABLE = "RAG_MT_COMET"
FOLDER = Path(__file__).parents[2] / ".venv-comet"
"""The environment of unbabel-comet, which `make comet` creates; the variable names another one."""
PROGRAM = Path(__file__).with_name("isolated.py")
BATCH = 16
BLOCK = 20_000
"""Translations that are scored before they are written; the model is loaded again for the next ones."""


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
    comet_python()  # a missing environment is reported before anything is scored
    facts, known = _earlier(output, _model(options.model)[0])
    reused = sum(t in known for t in triples)
    block = _missing(triples, known) or triples[:1]  # at least one: it tells whether the weights are the same
    while block:
        answer = comet_scores(options.model, block, options.batch_size, options.quiet)
        used = {name: answer[name] for name in FACTS}
        if facts and used != facts:
            note(f"{output} has scores of other weights or of another version: all are made again")
            known, reused = {}, 0
        facts = used
        known.update(zip(block, answer["scores"], strict=True))
        rows = [{"src": t[0], "mt": t[1], "ref": t[2], "COMET": known[t]} for t in triples if t in known]
        content = {**facts, "scores": {folder.name: rows}}
        write_whole(output, json.dumps(content, ensure_ascii=False, indent=0) + "\n")
        block = _missing(triples, known)
    model = Path(options.model) if Path(options.model).exists() else options.model
    command = command_line("eval.comet.score", [folder.name], {"model": model, "output": output})
    note_command(folder, command, time.perf_counter() - begin)
    mean = sum(known[t] for t in triples) / len(triples)
    note(f"{output}: {len(triples)} different translations, COMET by {facts['model']} {100 * mean:.2f} on average")
    if reused:
        note(f"{reused} of them were scored before")
    return OK


def _missing(triples: Sequence[Triple], known: Mapping[Triple, float]) -> list[Triple]:
    """The first of those that have no score, as many as are scored together."""
    return [t for t in triples if t not in known][:BLOCK]


def _earlier(output: Path, model: str) -> tuple[dict[str, Any], dict[Triple, float]]:
    """The facts and the scores in a file that an earlier call has written by that model; empty if there is none."""
    if not output.is_file():
        return {}, {}
    facts, scores = read_scores(output)
    if facts["model"] != model:
        raise UserError(f"{output} has scores by {facts['model']}: name another --output for those by {model}")
    return facts, scores


def triples_of(folder: Path) -> list[Triple]:
    """The different (source, translation, reference) of all finished runs; raises UserError where there are none."""
    records = (record for path in finished_runs(folder) for record in read_records(path.with_suffix(RECORDS)))
    triples = list(dict.fromkeys((r.source, r.text, r.reference) for r in records))
    if not triples:
        raise UserError(f"{folder} holds no finished runs: make some with `python -m eval.translation`")
    return triples


def comet_scores(model: str, triples: Sequence[Triple], batch_size: int = BATCH, quiet: bool = False) -> dict[str, Any]:
    """`scores` (COMET's own scale, one per triple) with the `model`, its `weights`, `references` and `version`.

    Raises UserError for a missing environment and a model that cannot be downloaded or loaded.
    """
    name, path = _model(model)
    rows = [{"src": s, "mt": t, "ref": r} for s, t, r in triples]
    answer = run_in_comet({"model": path, "rows": rows, "batch_size": batch_size, "quiet": quiet})
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


def run_in_comet(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of `eval/comet/isolated.py`, run in the environment of unbabel-comet, to a JSON-able request.

    Its progress goes to stderr. Raises UserError with what it says is wrong, or if it ends without an answer.
    """
    with TemporaryDirectory() as scratch:
        asked, answered = Path(scratch) / "request.json", Path(scratch) / "answer.json"
        asked.write_text(json.dumps(request), encoding="utf-8")
        # -P: the folder of the program holds modules of this project, which are not for that environment
        command = [str(comet_python()), "-P", str(PROGRAM), str(asked), str(answered)]
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        code = subprocess.run(command, stdout=subprocess.DEVNULL, env=environment, check=False).returncode
        if not answered.is_file():
            raise UserError(
                f"unbabel-comet ended without an answer (exit code {code}): its own message is above; if its "
                "environment is damaged, delete .venv-comet and run `make comet`"
            )
        answer: dict[str, Any] = read_json(answered)
    if "error" in answer:
        raise UserError(answer["error"])
    return answer


def comet_python() -> Path:
    """The Python of the environment; raises UserError where there is none with unbabel-comet in it."""
    folder = Path(os.environ.get(VARIABLE) or FOLDER)
    python = next((p for p in (folder / "bin" / "python", folder / "Scripts" / "python.exe") if p.is_file()), None)
    packages = (*folder.glob("lib/python3*/site-packages"), folder / "Lib" / "site-packages")
    if python is None or not any((p / "comet" / "__init__.py").is_file() for p in packages):
        raise UserError(
            f"there is no environment with unbabel-comet in {folder}: run `make comet`, which creates .venv-comet, or "
            f"set {VARIABLE} to the folder of your own"
        )
    return python


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m eval.comet.score",
        description=__doc__,
        examples=["RUNS --model Unbabel/wmt22-comet-da --output comet.json"],
    )
    parser.add_argument("runs", metavar="RUNS", help="folder of finished runs")
    parser.add_argument("--model", required=True, metavar="ID|FILE", help="the COMET model")
    parser.add_argument("--output", required=True, metavar="SCORES.json", help="file of the sentence scores")
    parser.add_argument("--batch-size", type=positive, default=BATCH, metavar="N", help="sentences")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return run(score, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
