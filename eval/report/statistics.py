"""What is counted in the records of a run: what hints were worth, and whether outputs are one clean translation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from eval.hints.verdicts import lemma
from eval.metrics.formulas import Rows, chrf, open_chrf
from eval.translation.records import Record
from prompts.answers import UNFINISHED
from prompts.safety import MARKS, one_line
from rag_mt.base.languages import base_code
from rag_mt.base.types import Hint
from rag_mt.text.answers import takes_up, without_loop
from rag_mt.text.words import surface, word_texts

FAULTS = ("no answer", "echo", "loop", "mark", "not ended", "went on", "more")
"""What can be wrong with an output: none could be read or it has no words; it is the source again; it repeats itself;
it holds a mark of the prompts; it did not end; and, before the reader only, the model `went on` after the
line, where generation was stopped, or there is `more` than the translation (further lines, labels)."""


@dataclass(frozen=True)
class HintStatistics:
    """Shares are of 1, None where there is nothing to take a share of.

    `hints` per sentence, `shown` the share of sentences that have any; `literal` the share of hints whose phrase stands
    in the reference word for word, `by_lemma` that of hints whose words stand there side by side in any form (None for
    a language without word lists); `used` the share that stands in the output, `used_right` the share that stands in
    output and reference. `covered` is the share of the references' characters that lie in phrases which stand there,
    and `pasted` the chrF of the hints alone, one after the other. `gain` is the mean difference of sentence chrF to a
    baseline over sentences with hints, `gain_without` over those that have none.
    """

    shown: float
    hints: float
    literal: float | None
    by_lemma: float | None
    used: float | None
    used_right: float | None
    covered: float
    pasted: float
    gain: float | None
    gain_without: float | None


def hint_statistics(records: Sequence[Record], language: str, gains: Rows | None = None) -> HintStatistics:
    """The statistics of a run into a language; `gains` are the differences of sentence chrF to a baseline."""
    shown = np.array([bool(r.translation.hints) for r in records], dtype=bool)
    hints = [
        (r, hint, used) for r in records for hint, used in zip(r.translation.hints, r.translation.used, strict=True)
    ]
    right = [takes_up(r.reference, hint) for r, hint, _ in hints]
    lemmas = [stands_by_lemma(hint.phrase, r.reference, language) for r, hint, _ in hints]
    used = [used for _, _, used in hints]
    letters = sum(len(r.reference) for r in records)
    return HintStatistics(
        shown=float(shown.mean()) if len(records) else 0.0,
        hints=len(hints) / max(len(records), 1),
        literal=_share(right),
        by_lemma=None if None in lemmas else _share([bool(stands) for stands in lemmas]),
        used=_share(used),
        used_right=_share([a and b for a, b in zip(used, right, strict=True)]),
        covered=sum(covered(r.translation.hints, r.reference) for r in records) / max(letters, 1),
        pasted=pasted_chrf(records),
        gain=_mean(gains, shown),
        gain_without=_mean(gains, ~shown),
    )


def new_hints(records: Sequence[Record], baseline: Sequence[str]) -> tuple[float | None, int, int, int, int]:
    """What the hints of a run told that the baseline's outputs did not say already: the share of hints whose phrase
    stands there (None without hints); of the others how many stand in the reference, how many of these the output took
    up, how many stand not in the reference, and how many of these were taken up."""
    said: list[bool] = []
    counts: Counter[tuple[bool, bool]] = Counter()
    for record, before in zip(records, baseline, strict=True):
        for hint, used in zip(record.translation.hints, record.translation.used, strict=True):
            said.append(takes_up(before, hint))
            if not said[-1]:
                counts[takes_up(record.reference, hint), used] += 1
    right, wrong = (counts[kind, True] + counts[kind, False] for kind in (True, False))
    return _share(said), right, counts[True, True], wrong, counts[False, True]


def _share(values: Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None


def _mean(values: Rows | None, rows: NDArray[np.bool_]) -> float | None:
    return float(values[rows].mean()) if values is not None and rows.any() else None


def stands_by_lemma(phrase: str, text: str, language: str) -> bool | None:
    """Whether the words of a phrase stand side by side in a text, each in any form; None for a language without word
    lists."""
    try:
        wanted, there = (_lemmas(words, base_code(language)) for words in (phrase, text))
    except ValueError:
        return None
    return bool(wanted) and any(there[n : n + len(wanted)] == wanted for n in range(len(there) - len(wanted) + 1))


@lru_cache(1 << 14)
def _lemmas(text: str, language: str) -> tuple[str, ...]:
    return tuple(lemma(word, language) for word in word_texts(text))


def covered(hints: Sequence[Hint], text: str) -> int:
    """The number of characters of a text that lie in a place where the phrase of a hint stands, letter case aside."""
    inside = np.zeros(len(text), dtype=bool)
    for phrase in filter(None, (hint.phrase for hint in hints)):
        for match in re.finditer(rf"(?<!\w){re.escape(phrase)}(?!\w)", text, re.IGNORECASE):
            inside[match.start() : match.end()] = True
    return int(inside.sum())


def pasted_chrf(records: Sequence[Record]) -> float:
    """The chrF of outputs that are the hints in order and nothing else; sentences without hints count as empty."""
    outputs = [" ".join(hint.phrase for hint in r.translation.hints) for r in records]
    if not any(outputs):
        return 0.0
    statistics = open_chrf().statistics([], outputs, [r.reference for r in records])
    return float(chrf(statistics.sum(axis=0)[None])[0])


def completion_faults(record: Record) -> set[str]:
    """What is wrong with a completion as the language model gave it."""
    raw = record.completion.text.strip()
    faults = _faults(raw, record)
    if not record.completion.finished:
        faults.add("not ended")
    if record.completion.stopped:
        faults.add("went on")
    if not faults and _letters(raw) != _letters(record.text):  # the reader took something away
        faults.add("more")
    return faults


def translation_faults(record: Record) -> set[str]:
    """What is wrong with the translation that the user gets."""
    if not record.translation.ok:
        return {"no answer"}
    unfinished = UNFINISHED in record.translation.notes
    return _faults(record.text, record) | ({"not ended"} if unfinished else set())


def _faults(text: str, record: Record) -> set[str]:
    source, faults = one_line(record.source), set()
    if not text or (not _letters(text) and _letters(source)):
        return {"no answer"}
    if surface(text) == surface(source) != surface(record.reference):
        faults.add("echo")
    if without_loop(text) != text and without_loop(source) == source:
        faults.add("loop")
    if any(mark in text and mark not in source for mark in MARKS):
        faults.add("mark")
    return faults


def _letters(text: str) -> str:
    """The letters and digits of a text: look-alikes of punctuation that the reader turns back are no fault."""
    return "".join(filter(str.isalnum, text))
