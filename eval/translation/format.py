"""Whether outputs are one clean translation, before and after the answer is read out of the completion."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eval.translation.records import Record
from prompts.answers import UNFINISHED
from prompts.safety import MARKS, one_line
from rag_mt.text.answers import without_loop
from rag_mt.text.words import surface

FAULTS = ("no answer", "echo", "loop", "mark", "not ended", "went on", "more")
"""What can be wrong with an output: none could be read or it has no words; it is the source again; it repeats itself;
it holds a mark of the prompts; it did not end; and, before the reader only, the model `went on` after the
line, where generation was stopped, or there is `more` than the translation (further lines, labels)."""


@dataclass(frozen=True)
class Clean:
    """Of `outputs` the number that are clean, and how many have each fault: of the completions (`raw`) and of what the
    user gets (`text`)."""

    outputs: int
    raw: int
    text: int
    raw_faults: dict[str, int]
    text_faults: dict[str, int]


def clean_counts(records: Sequence[Record]) -> Clean:
    """The counts of a run."""
    raw, text = [raw_faults(r) for r in records], [text_faults(r) for r in records]
    return Clean(len(records), _none(raw), _none(text), _counts(raw), _counts(text))


def _none(faults: Iterable[set[str]]) -> int:
    return sum(not own for own in faults)


def _counts(faults: Sequence[set[str]]) -> dict[str, int]:
    return {name: sum(name in own for own in faults) for name in FAULTS}


def raw_faults(record: Record) -> set[str]:
    """What is wrong with a completion as the language model gave it."""
    raw = record.completion.text.strip()
    found = _faults(raw, record)
    if not record.completion.finished:
        found.add("not ended")
    if record.completion.stopped:
        found.add("went on")
    if not found and _words(raw) != _words(record.text):  # the reader took something away
        found.add("more")
    return found


def text_faults(record: Record) -> set[str]:
    """What is wrong with the translation that the user gets."""
    if not record.translation.ok:
        return {"no answer"}
    found = _faults(record.text, record)
    if UNFINISHED in record.translation.notes:
        found.add("not ended")
    return found


def _faults(text: str, record: Record) -> set[str]:
    source, found = one_line(record.source), set()
    if not text or (not any(map(str.isalnum, text)) and any(map(str.isalnum, source))):
        return {"no answer"}
    if surface(text) == surface(source) != surface(record.reference):
        found.add("echo")
    if without_loop(text) != text and without_loop(source) == source:
        found.add("loop")
    if any(mark in text and mark not in source for mark in MARKS):
        found.add("mark")
    return found


def _words(text: str) -> str:
    """The letters and digits of a text: look-alikes of punctuation that the reader turns back are no fault."""
    return "".join(filter(str.isalnum, text))
