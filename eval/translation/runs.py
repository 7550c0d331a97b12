"""Runs of systems on directions, each sentence kept as soon as it is translated."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import transformers

from eval.data.suites import Suite
from eval.translation.format import clean_counts
from eval.translation.models import Models, Run, open_translator
from eval.translation.records import (
    GENERATION,
    RETRIEVAL,
    note_time,
    outputs_sha256,
    read_records,
    read_settings,
    read_times,
    record_of,
    write_records,
)
from eval.translation.shared import asked, other_completions, repeatable
from prompts.builder import FORMAT
from prompts.templates import templates_hash
from rag_mt import __version__
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import read_json, settings_hash
from rag_mt.base.paths import alone_in, whole_file
from rag_mt.base.types import Origin, Sentence
from rag_mt.llm.routed import answering
from rag_mt.llm.transformers_llm import ALGORITHM
from rag_mt.translation.journal import RecordJournal, check_settings
from rag_mt.translation.tasks import SentenceTask, prepare, translate_all
from rag_mt.translation.translator import Translator

log = logging.getLogger("rag_mt")

RECORDS, TIMES, FACTS = ".jsonl", ".times.jsonl", ".json"
JOURNAL = ".rag-mt-journal"
"""The records of a run that is not finished."""
COMMANDS = "commands.json"
"""The commands that made a folder of runs, with the seconds that each took."""


def translate_run(run: Run, suite: Suite, models: Models, bar: Any, restart: bool = False, show: bool = True) -> None:
    """Translate what is missing of a run and write its facts; `bar` is told of every sentence.

    The missing sentences are retrieved for in one call, and each record is kept as soon as it is there. What another
    system of the folder has asked already is not generated again where that changes nothing (see
    eval/translation/shared.py).
    """
    run.file(RECORDS).parent.mkdir(parents=True, exist_ok=True)
    translator = open_translator(run, suite, models, show)
    settings = run_settings(run, suite, translator)
    if restart:
        for kind in (RECORDS, FACTS, TIMES):
            run.file(kind).unlink(missing_ok=True)
    bar.set_postfix_str(f"{run.system.name} {run.part.name}")
    if run.file(RECORDS).is_file():
        check_settings(run.file(RECORDS), read_settings(run.file(RECORDS)), settings)
        if len(read_records(run.file(RECORDS))) < len(run.part.sources):
            raise UserError(f"{run.file(RECORDS)} lacks sentences of its run: use --restart to make it again")
        _pass(bar, len(run.part.sources))
    else:
        journal = RecordJournal(run.file(JOURNAL), settings, restart)
        with closing(journal):
            _pass(bar, journal.kept)
            if journal.finished < len(run.part.sources):
                _translate(run, translator, journal, bar, settings)
            write_records(run.file(RECORDS), settings, journal.records())
        journal.finish()
    if not finished(run, settings):
        _write_facts(run, suite, translator, settings)


def _pass(bar: Any, sentences: int) -> None:
    """Move the bar over what was there before, which says nothing about the speed."""
    if not bar.disable:
        bar.initial += sentences
        bar.n += sentences


def _translate(run: Run, translator: Translator, journal: RecordJournal, bar: Any, settings: Mapping[str, Any]) -> None:
    part, times = run.part, run.file(TIMES)
    tasks = [
        SentenceTask(translator, Sentence(text, part.source, Origin(part.name, line)))
        for line, text in enumerate(part.sources, 1)
    ]
    missing = [task for n, task in enumerate(tasks) if n not in journal.found]
    begin = time.perf_counter()
    prepare(tasks if run.own.hints == "shuffled" else missing)  # whose hints are those of all other sentences
    if not journal.found:  # the time of all sentences was noted before the first record
        note_time(times, RETRIEVAL, time.perf_counter() - begin, len(missing))

    def by_whom(task: SentenceTask) -> tuple[str, str]:
        assert task.prompt is not None
        return answering(translator.llm, task.prompt).fingerprint, asked(task.prompt)

    def keep(task: SentenceTask) -> None:
        assert task.completion is not None and task.translation is not None
        n = task.sentence.source.line - 1
        record = record_of(task.translation, part.references[n], part.lines[n], task.completion)
        model, key = by_whom(task)
        other = {} if model == translator.llm.fingerprint else {"llm": model}
        journal.add_records([n], [record | {"asked": key} | other])
        bar.update(1)

    others = other_completions(run.file(RECORDS), settings) if repeatable(translator.llm) else {}
    asking = []
    for task in missing:
        if known := others.get(by_whom(task)):
            task.read(known)
            keep(task)
        else:
            asking.append(task)
    last = time.perf_counter()

    def finished(task: SentenceTask) -> None:
        nonlocal last
        assert task.completion is not None
        now = time.perf_counter()
        note_time(times, GENERATION, now - last, 1, task.sentence.source.line, task.completion.tokens)
        last = now
        keep(task)

    for _ in translate_all(asking, finished):
        pass


def run_settings(run: Run, suite: Suite, translator: Translator) -> dict[str, Any]:
    """All that could change a record of the run."""
    own = translator.settings
    own["retrieval"] = settings_hash(own["retrieval"])
    return own | {
        "suite": suite.name,
        "sample": run.part.sha256,
        "lines": settings_hash(run.part.lines),
        "batch_size": run.system.batch_size,
        "versions": {"rag_mt": __version__, "torch": torch.__version__, "transformers": transformers.__version__},
    }


def finished(run: Run, settings: Mapping[str, Any]) -> bool:
    """Whether the facts of a run are there and of these settings."""
    path = run.file(FACTS)
    return path.is_file() and read_json(path).get("fingerprint") == settings_hash(settings)


def _write_facts(run: Run, suite: Suite, translator: Translator, settings: Mapping[str, Any]) -> None:
    times, records = read_times(run.file(TIMES)), read_records(run.file(RECORDS))
    index = translator.retriever.settings.get("index", {})
    facts = {
        "system": run.system.name,
        "direction": [run.part.source, run.part.target],
        "suite": suite.name,
        "label": suite.label,
        "fingerprint": settings_hash(settings),
        "sample": {
            "sentences": len(run.part.sources),
            "available": run.part.available,
            "sha256": run.part.sha256,
        },
        "settings": run.own.as_dict(),
        "llm": translator.llm.fingerprint,
        "wrapper": translator.prompts.wrapper,
        "decoding": {"algorithm": ALGORITHM, "prompts": FORMAT, "templates": templates_hash()},
        "index": {name: index[name] for name in ("retriever", "sentences", "units") if name in index},
        "versions": settings["versions"],
        "device": {"name": _device(translator), "threads": torch.get_num_threads()},
        "seconds": {"retrieval": times.retrieval, "generation": times.generation},
        "tokens": times.tokens,
        "taken_over": len(records) - times.sentences,
        "clean": asdict(clean_counts(records)),
        "outputs": outputs_sha256(records),
    }
    with whole_file(run.file(FACTS)) as new:
        new.write_text(json.dumps(facts, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _device(translator: Translator) -> str:
    device = getattr(getattr(translator.llm, "model", None), "device", None)  # a server's model is a mere name
    return "server" if device is None else str(device.type)


def read_facts(run_file: Path) -> dict[str, Any]:
    """The facts of a finished run; raises UserError where there are none."""
    try:
        found: dict[str, Any] = read_json(run_file)
        found["system"], found["direction"], found["outputs"], found["sample"]["sha256"]
        return found
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"{run_file} is not there or is no finished run: run `python -m eval.translation` to its end"
        ) from None


def finished_runs(folder: Path) -> list[Path]:
    """The fact files of all finished runs under a folder, by system and direction."""
    return sorted(p for p in folder.glob("*/*-*.json") if p.with_suffix(RECORDS).is_file() and p.suffixes == [FACTS])


def note_command(folder: Path, command: str, seconds: float) -> None:
    """Add a finished command to those that made the folder; of several that end at once none is lost."""
    path = folder / COMMANDS
    with alone_in(folder, "eval", wait=True):
        known = read_json(path) if path.is_file() else []
        with whole_file(path) as new:
            new.write_text(json.dumps([*known, {"command": command, "seconds": round(seconds, 1)}], indent=1) + "\n")


def missing_runs(runs: Sequence[Run]) -> list[str]:
    """The runs that are not finished, such as `ccpr de-en`."""
    return [f"{run.system.name} {run.part.name}" for run in runs if not run.file(FACTS).is_file()]
