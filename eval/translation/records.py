"""The files of a folder of runs: a run is a system on a direction, RUNS/SYSTEM/SRC-TGT (in the suites of domains
RUNS/SYSTEM/DOMAIN.SRC-TGT) with these endings.

    .jsonl         its settings, then a record per sentence
    .times.jsonl   the seconds that its batches took
    .json          facts, once it is finished
    .scores.json   statistics of every sentence by metric

RUNS/commands.json has the commands that made the folder.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from eval.metrics.formulas import FORMULAS, Rows
from rag_mt.base.errors import UserError
from rag_mt.base.files import alone_in, read_json, whole_file, write_whole
from rag_mt.base.settings import shown_path
from rag_mt.base.types import Completion, Metric, Origin, Sentence, Translation
from rag_mt.translation.journal import pack, unpack

RECORDS, TIMES, FACTS, SCORES = ".jsonl", ".times.jsonl", ".json", ".scores.json"
COMMANDS = "commands.json"
RETRIEVAL, GENERATION = "retrieval", "generation"


@dataclass(frozen=True)
class Record:
    """A translated sentence of a run: the translation that the user gets, the reference, the line of the pair in its
    file, and the language model's completion before the answer is read out of it."""

    translation: Translation
    reference: str
    line: int
    completion: Completion

    @property
    def source(self) -> str:
        return self.translation.source.text

    @property
    def text(self) -> str:
        return self.translation.text


def record_of(translation: Translation, reference: str, line: int, completion: Completion) -> dict[str, Any]:
    """The record as JSON-able values."""
    return {"line": line, "reference": reference, **values_of(completion), **pack(translation)}


def values_of(completion: Completion) -> dict[str, Any]:
    """What `completion_of` reads."""
    names = {"raw": "text", "tokens": "tokens", "finished": "finished", "stopped": "stopped"}
    return {name: getattr(completion, attribute) for name, attribute in names.items()}


def write_records(path: Path, settings: Mapping[str, Any], records: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
    """Write the records of a finished run, numbered in order."""
    with whole_file(path) as part, part.open("w", encoding="utf-8", errors="surrogatepass", newline="\n") as file:
        for line in chain([{"journal": 1, "settings": settings}], ({"done": [numbered]} for numbered in records)):
            file.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")


def read_run(path: Path) -> tuple[dict[str, Any], list[Record]]:
    """The settings and the records of a finished run, in order; raises UserError for another file."""
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogatepass").split("\n")
        head, *rest = map(json.loads, filter(None, lines))
        settings = head["settings"]
        values = dict(numbered for line in rest for numbered in line["done"])
        return settings, [_record(values[n], settings["source"], n) for n in sorted(values)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is no run of `python -m eval.translation` ({error!r}): make it again") from None


def read_records(path: Path) -> list[Record]:
    """The records of `read_run`."""
    return read_run(path)[1]


def _record(values: Mapping[str, Any], language: str, number: int) -> Record:
    source = Sentence(values["source"], language, Origin("", number + 1))
    return Record(unpack(values, source), values["reference"], values["line"], completion_of(values))


def completion_of(values: Mapping[str, Any]) -> Completion:
    """The completion in the values of a record."""
    return Completion(values["raw"], values["tokens"], values["finished"], values["stopped"])


def whole_lines(path: Path) -> Iterator[Any]:
    """The values in a file of JSON lines that may not be there; a line that a crash has cut is left out."""
    if path.is_file():
        with path.open(encoding="utf-8", errors="surrogatepass") as lines:
            for line in lines:
                try:
                    yield json.loads(line)
                except ValueError:
                    continue


def outputs_sha256(records: Sequence[Record]) -> str:
    """A hash of all sources, outputs and references."""
    rows = [[r.source, r.text, r.reference] for r in records]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def note_time(path: Path, part: str, seconds: float, sentences: int, batch: int = 0, tokens: int = 0) -> None:
    """Add a measured time to the file, apart from the records: those are the same in every run, times are not."""
    item = {"part": part, "batch": batch, "seconds": round(seconds, 4), "sentences": sentences, "tokens": tokens}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(item) + "\n")


def read_times(path: Path) -> dict[str, Counter[str]]:
    """The sums of seconds, sentences and tokens of retrieval (prompts are built in it) and of generation. What an
    interrupted run measured twice counts once, by its last time."""
    last = {(item.pop("part"), item.pop("batch")): item for item in whole_lines(path)}
    sums: dict[str, Counter[str]] = {RETRIEVAL: Counter(), GENERATION: Counter()}
    for (part, _), item in last.items():
        sums[part].update(item)
    return sums


def read_facts(path: Path) -> dict[str, Any]:
    """The facts of a finished run; raises UserError where there are none."""
    try:
        facts: dict[str, Any] = read_json(path)
        facts["system"], facts["direction"], facts["outputs"], facts["sample"]["sha256"]
        return facts
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"{path} is not there or is no finished run: run `python -m eval.translation` to its end"
        ) from None


@dataclass(frozen=True)
class Scored:
    """What a metric says of a run: its statistics (sentences, statistics)."""

    name: str
    signature: str
    formula: str
    statistics: Rows

    @property
    def corpus(self) -> float:
        """The score of all sentences."""
        return float(FORMULAS[self.formula].corpus(self.statistics.sum(axis=0)[None])[0])

    @property
    def sentences(self) -> Rows:
        """The score of each sentence."""
        return FORMULAS[self.formula].sentences(self.statistics)

    def as_dict(self) -> dict[str, Any]:
        """JSON-able; counts as whole numbers."""
        counts = self.statistics.astype(np.int64)
        rows = counts if (counts == self.statistics).all() else self.statistics
        return {**vars(self), "statistics": rows.tolist()}


def scored(metric: Metric, records: Sequence[Record]) -> Scored:
    """The metric's statistics for the outputs of some records."""
    texts = ([r.source for r in records], [r.text for r in records], [r.reference for r in records])
    return Scored(metric.name, metric.signature, metric.formula, metric.statistics(*texts))


def score_run(path: Path, records: Sequence[Record], outputs: str, metrics: Sequence[Metric]) -> list[Scored]:
    """The scores of a run by some metrics, which are added to those in the file `path`.

    A metric of the same signature is not computed again; `outputs` is the hash of what was scored, and scores of other
    outputs are dropped.
    """
    scores = {old.name: old for old in read_scores(path, outputs)}
    for metric in metrics:
        if metric.name not in scores or scores[metric.name].signature != metric.signature:
            scores[metric.name] = scored(metric, records)
    write_whole(path, json.dumps({"outputs": outputs, "metrics": [s.as_dict() for s in scores.values()]}) + "\n")
    return [scores[metric.name] for metric in metrics]


def read_scores(path: Path, outputs: str) -> list[Scored]:
    """The scores in a file, none if it is not there or is of other outputs; raises UserError if it is damaged."""
    try:
        content = read_json(path)
        if content["outputs"] != outputs:
            return []
        return [Scored(**{**row, "statistics": np.array(row["statistics"], np.float64)}) for row in content["metrics"]]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error!r}): delete it and score again with --score-only") from None


def finished_runs(folder: Path) -> list[Path]:
    """The fact files of all finished runs under a folder, by system and direction."""
    paths = folder.glob(f"*/*-*{FACTS}")
    return sorted(p for p in paths if p.with_suffix(RECORDS).is_file() and not p.name.endswith(SCORES))


def command_line(module: str, arguments: Sequence[str], options: Mapping[str, Any]) -> str:
    """The command `python -m MODULE` with the options that are set (not None, False or empty); folders and files of
    this machine by their last name."""
    words = ["python", "-m", module, *arguments]
    for name, value in options.items():
        if value is not None and value is not False and value not in ("", []):
            values = value if isinstance(value, list) else [] if value is True else [value]
            shown = [v.name if isinstance(v, Path) else shown_path(str(v)) for v in values]
            words += [f"--{name.replace('_', '-')}", *shown]
    return shlex.join(words)


def note_command(folder: Path, command: str, seconds: float) -> None:
    """Add a finished command to those that made the folder; of several that end at once none is lost."""
    path = folder / COMMANDS
    with alone_in(folder, "eval", wait=True):
        known = read_json(path) if path.is_file() else []
        write_whole(path, json.dumps([*known, {"command": command, "seconds": round(seconds, 1)}], indent=1) + "\n")
