"""Runs of systems on directions, each sentence kept as soon as it is translated.

Systems that differ in their hints ask the same wherever a sentence has none. In float32, and by llama.cpp where each
answer is computed alone, a completion does not depend on what else is computed, so that it is taken over from another
run of the folder; otherwise each run generates its own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
import transformers

from eval.data.suites import Suite
from eval.translation.records import (
    FACTS,
    GENERATION,
    RECORDS,
    RETRIEVAL,
    TIMES,
    completion_of,
    note_time,
    outputs_sha256,
    read_records,
    read_run,
    read_times,
    record_of,
    whole_lines,
    write_records,
)
from eval.translation.translators import Models, Run, open_translator
from prompts.builder import FORMAT, templates_hash
from rag_mt import __version__
from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json, settings_hash, write_json
from rag_mt.base.types import Completion, Origin, Prompt, Sentence
from rag_mt.llm.opening import fingerprint_for
from rag_mt.llm.transformers_llm import ALGORITHM
from rag_mt.translation.journal import RecordJournal, check_settings
from rag_mt.translation.tasks import SentenceTask, prepare, translate_all
from rag_mt.translation.translator import Translator

JOURNAL = ".rag-mt-journal"
"""The records of a run that is not finished."""
SAME = ("max_new_tokens", "versions")
"""The settings of a run that a completion depends on beside its prompt and the language model that answers it."""


def translate_run(run: Run, suite: Suite, models: Models, bar: Any, restart: bool = False, show: bool = True) -> None:
    """Translate what is missing of a run and write its facts; `bar` is told of every sentence."""
    path, count = run.file(RECORDS), len(run.part.sources)
    path.parent.mkdir(parents=True, exist_ok=True)
    translator = open_translator(run, suite, models, show)
    settings = run_settings(run, suite, translator)
    if restart:
        for ending in (RECORDS, FACTS, TIMES):
            run.file(ending).unlink(missing_ok=True)
    bar.set_postfix_str(f"{run.system.name} {run.part.name}")
    if path.is_file():
        old_settings, records = read_run(path)
        check_settings(path, old_settings, settings)
        if len(records) < count:
            raise UserError(f"{path} lacks sentences of its run: use --restart to make it again")
        _pass(bar, count)
    else:
        journal = RecordJournal(run.file(JOURNAL), settings, restart)
        with closing(journal):
            _pass(bar, journal.resumed)
            if journal.finished < count:
                _translate(run, translator, journal, bar, settings)
            write_records(path, settings, journal.records())
        journal.finish()
    facts = run.file(FACTS)
    if not (facts.is_file() and read_json(facts).get("fingerprint") == settings_hash(settings)):
        _write_facts(run, suite, translator, settings)


def _pass(bar: Any, sentences: int) -> None:
    """Move the bar over what was there before, which says nothing about the speed."""
    if not bar.disable:
        bar.initial += sentences
        bar.n += sentences


def _translate(run: Run, translator: Translator, journal: RecordJournal, bar: Any, settings: Mapping[str, Any]) -> None:
    part, times, llm = run.part, run.file(TIMES), translator.llm
    tasks = [
        SentenceTask(translator, Sentence(text, part.source, Origin(part.name, line)))
        for line, text in enumerate(part.sources, 1)
    ]
    missing = [task for n, task in enumerate(tasks) if n not in journal.earlier]
    begin = time.perf_counter()
    prepare(tasks if run.own.hints == "shuffled" else missing)  # whose hints are those of all other sentences
    if not journal.earlier:  # the time of all sentences was noted before the first record
        note_time(times, RETRIEVAL, time.perf_counter() - begin, len(missing))

    def asked(task: SentenceTask) -> tuple[str, str]:
        assert task.prompt is not None
        return fingerprint_for(llm, task.prompt), prompt_hash(task.prompt)

    def keep(task: SentenceTask) -> None:
        assert task.completion is not None and task.translation is not None
        n = task.sentence.source.line - 1
        record = record_of(task.translation, part.references[n], part.lines[n], task.completion)
        model, prompt = asked(task)
        journal.add_records([n], [record | {"asked": prompt} | ({} if model == llm.fingerprint else {"llm": model})])
        bar.update(1)

    known = other_completions(run.file(RECORDS), settings) if getattr(llm, "repeatable", False) else {}
    for task in missing:
        if completion := known.get(asked(task)):
            task.read(completion)
            keep(task)
    last = time.perf_counter()

    def finished(task: SentenceTask) -> None:
        nonlocal last
        assert task.completion is not None
        now = time.perf_counter()
        note_time(times, GENERATION, now - last, 1, task.sentence.source.line, task.completion.tokens)
        last = now
        keep(task)

    for _ in translate_all([task for task in missing if task.completion is None], finished):
        pass


def prompt_hash(prompt: Prompt) -> str:
    """A short hash of what the language model reads and where it stops."""
    return settings_hash([prompt.text, [prompt.source, prompt.target] if prompt.coded else prompt.chat, prompt.stop])


def other_completions(own: Path, settings: Mapping[str, Any]) -> dict[tuple[str, str], Completion]:
    """The completions in the records of the other systems of a folder, for the direction of the records `own`, by the
    fingerprint of the language model that gave them and `prompt_hash`."""
    completions: dict[tuple[str, str], Completion] = {}
    for path in sorted(own.parent.parent.glob(f"*/{own.name}")):
        head, *lines = [*whole_lines(path)] or [{}]  # a run that has just begun may have written nothing
        others = head.get("settings", {})
        if path != own and all(others.get(name) == settings[name] for name in SAME):
            for _, record in (numbered for line in lines for numbered in line.get("done", ())):
                if "asked" in record:
                    completions[record.get("llm", others["llm"]), record["asked"]] = completion_of(record)
    return completions


def run_settings(run: Run, suite: Suite, translator: Translator) -> dict[str, Any]:
    """All that could change a record of the run."""
    settings = translator.settings
    return settings | {
        "retrieval": settings_hash(settings["retrieval"]),
        "suite": suite.name,
        "sample": run.part.sha256,
        "lines": settings_hash(run.part.lines),
        "batch_size": run.own.batch_size,
        "versions": {"rag_mt": __version__, "torch": torch.__version__, "transformers": transformers.__version__},
    }


def _write_facts(run: Run, suite: Suite, translator: Translator, settings: Mapping[str, Any]) -> None:
    times, records = read_times(run.file(TIMES)), read_records(run.file(RECORDS))
    index = translator.retriever.settings.get("index", {})
    device = getattr(getattr(translator.llm, "model", None), "device", None)  # a server's model is a mere name
    facts = {
        "system": run.system.name,
        "direction": [run.part.source, run.part.target],
        "domain": run.part.cell.domain,
        "suite": suite.name,
        "label": suite.label,
        "fingerprint": settings_hash(settings),
        "sample": {"sentences": len(records), "available": run.part.available, "sha256": run.part.sha256},
        "blocks": list(run.part.blocks),
        "settings": run.own.as_dict(),
        "llm": translator.llm.fingerprint,
        "wrapper": translator.prompts.wrapper,
        "decoding": {"algorithm": ALGORITHM, "prompts": FORMAT, "templates": templates_hash()},
        "index": {name: index[name] for name in ("retriever", "sentences", "units") if name in index},
        "versions": settings["versions"],
        "device": {"name": "server" if device is None else str(device.type), "threads": torch.get_num_threads()},
        "seconds": {part: sums["seconds"] for part, sums in times.items()},
        "tokens": times[GENERATION]["tokens"],
        "taken_over": len(records) - times[GENERATION]["sentences"],
        "outputs": outputs_sha256(records),
    }
    write_json(run.file(FACTS), facts)
