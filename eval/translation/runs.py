"""Runs of systems on directions, each sentence kept as soon as it is translated.

Systems that differ in their hints ask the same wherever a sentence has none. In float32, and by llama.cpp where each
answer is computed alone, a completion does not depend on what else is computed, so that it is taken over from another
run of the folder; otherwise each run generates its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
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
    values_of,
    whole_lines,
    write_records,
)
from eval.translation.translators import Models, Run, open_translator
from prompts.builder import FORMAT
from prompts.wording import templates_hash
from rag_mt import __version__
from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json, settings_hash, write_json
from rag_mt.base.types import Completion, Origin, Prompt, Sentence
from rag_mt.llm.transformers_llm import ALGORITHM
from rag_mt.translation.journal import RecordJournal, check_settings
from rag_mt.translation.queue import TaskQueue, longest_first
from rag_mt.translation.tasks import SentenceTask, prepare
from rag_mt.translation.translator import Translator

JOURNAL = ".rag-mt-journal"
"""The records of a run that is not finished."""
SAME = ("llm", "max_new_tokens", "versions")
"""The settings of a run that a completion depends on beside its prompt."""


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
    shuffled = run.own.hints == "shuffled"
    needed = tasks if shuffled else missing  # shuffled hints are those of all other sentences
    begin = time.perf_counter()
    prepare(needed)
    if not journal.earlier:  # the time of all sentences was noted before the first record
        note_time(times, RETRIEVAL, time.perf_counter() - begin, len(missing))

    def keep(task: SentenceTask) -> None:
        assert task.completion is not None and task.prompt is not None and task.translation is not None
        n = task.sentence.source.line - 1
        begun = task.prompt.begun
        answer = replace(task.completion, text=begun + task.completion.text)
        record = record_of(task.translation, part.references[n], part.lines[n], answer)
        if not begun:  # no other system asks just that
            record["asked"] = prompt_hash(task.prompt)
        if task.draft is not None and task.draft.completion is not task.completion:
            record["first"] = values_of(task.draft.completion) | {"asked": prompt_hash(task.draft.prompt)}
        journal.add_records([n], [record])
        bar.update(1)

    known = other_completions(run.file(RECORDS), settings) if getattr(llm, "repeatable", False) else {}
    queue = _Timed(times, keep, known)
    queue.take_over(missing)
    drafting = 0.0
    if translator.memory is not None:
        if shuffled:
            for n, record in journal.earlier.items():
                task = tasks[n]
                assert task.prompt is not None
                task.read(task.prompt, completion_of(record.get("first", record)))
            begin = time.perf_counter()
            _empty(translator, _Drafts(longest_first(task for task in tasks if task.draft is None)))
            drafting = time.perf_counter() - begin
        queue.prepare(needed)
        queue.take_over(missing)
    for task in missing:
        if task.translation is not None:
            keep(task)
    queue.extend(longest_first(task for task in missing if task.translation is None), drafting)
    _empty(translator, queue)


def _empty(translator: Translator, queue: TaskQueue[SentenceTask]) -> None:
    """Let all tasks of a queue be answered."""
    for _ in translator.answer(queue):
        pass


class _Drafts(TaskQueue[SentenceTask]):
    """Tasks of which the drafts alone are wanted for now."""

    def drafted(self, task: SentenceTask) -> None:
        """Nothing is recalled for it yet."""


class _Timed(TaskQueue[SentenceTask]):
    """A queue that notes in the file `times` how long each sentence took; `keep` hears of each that is translated.
    `known` are completions that need not be computed."""

    def __init__(self, times: Path, keep: Callable[[SentenceTask], object], known: Mapping[str, Completion]) -> None:
        super().__init__(finished=self._note)
        self._times, self._keep, self._known = times, keep, known
        self._taken_over: set[int] = set()
        self._last = time.perf_counter()

    def extend(self, tasks: Iterable[SentenceTask], spent: float) -> None:
        """Let these be answered, from now on; so many seconds were spent on their drafts."""
        self._waiting.extend(tasks)
        self._last = time.perf_counter() - spent

    def take_over(self, tasks: Sequence[SentenceTask]) -> None:
        """Read the known completions for those of the tasks that are to be answered."""
        for task, prompt in [(one, prompt) for one in tasks for prompt in one.questions]:
            if completion := self._known.get(prompt_hash(prompt)):
                self._taken_over.add(id(completion))
                task.read(prompt, completion)

    def prepare(self, tasks: Sequence[SentenceTask]) -> None:
        """See `TaskQueue.prepare`; what is recalled for drafts is retrieval, and its time counts as such."""
        drafted = [task for task in tasks if task.draft is not None and task.recalled is None]
        begin = time.perf_counter()
        super().prepare(tasks)
        seconds = time.perf_counter() - begin
        self._last += seconds
        for task in drafted:
            note_time(self._times, RETRIEVAL, seconds / len(drafted), 0, task.sentence.source.line)

    def _note(self, task: SentenceTask) -> None:
        now = time.perf_counter()
        tokens = sum(answer.tokens for answer in task.answers if id(answer) not in self._taken_over)
        note_time(self._times, GENERATION, now - self._last, 1, task.sentence.source.line, tokens)
        self._last = now
        self._keep(task)


def prompt_hash(prompt: Prompt) -> str:
    """A short hash of what the language model reads and where it stops."""
    shape = [prompt.source, prompt.target] if prompt.coded else prompt.chat
    return settings_hash([prompt.text + prompt.begun, shape, prompt.stop])


def other_completions(own: Path, settings: Mapping[str, Any]) -> dict[str, Completion]:
    """The completions of the same language model in the records of the other systems of a folder, for the direction of
    the records `own`, by `prompt_hash`."""
    completions: dict[str, Completion] = {}
    for path in sorted(own.parent.parent.glob(f"*/{own.name}")):
        head, *lines = [*whole_lines(path)] or [{}]  # a run that has just begun may have written nothing
        others = head.get("settings", {})
        if path != own and all(others.get(name) == settings[name] for name in SAME):
            for _, record in (numbered for line in lines for numbered in line.get("done", ())):
                for values in (record, record.get("first", {})):  # `first`: of a draft that another answer followed
                    if "asked" in values:
                        completions[values["asked"]] = completion_of(values)
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
