"""What the hints of a run were worth: how many there were, how many are right, and what became of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from eval.hints.verdicts import lemma, words_of
from eval.metrics.formulas import Rows, chrf
from eval.metrics.ngrams import open_chrf
from eval.translation.records import Record
from rag_mt.base.languages import base_code
from rag_mt.base.types import Hint
from rag_mt.text.answers import takes_up


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

    sentences: int
    shown: float
    hints: float
    literal: float | None
    by_lemma: float | None
    used: float | None
    used_right: float | None
    covered: float
    pasted: float
    gain: float | None = None
    gain_without: float | None = None


def hint_statistics(
    records: Sequence[Record], language: str, scores: Rows | None = None, baseline: Rows | None = None
) -> HintStatistics:
    """The statistics of a run into a language; `scores` and those of the `baseline` are sentence chrF."""
    shown = np.array([bool(r.translation.hints) for r in records], dtype=bool)
    hints = [
        (r, hint, used) for r in records for hint, used in zip(r.translation.hints, r.translation.used, strict=True)
    ]
    right = [takes_up(r.reference, hint) for r, hint, _ in hints]
    lemmas = [stands_by_lemma(hint.phrase, r.reference, language) for r, hint, _ in hints]
    used = [used for _, _, used in hints]
    gains = None if scores is None or baseline is None else scores - baseline
    letters = sum(len(r.reference) for r in records)
    return HintStatistics(
        sentences=len(records),
        shown=float(shown.mean()) if len(records) else 0.0,
        hints=len(hints) / max(len(records), 1),
        literal=_share(right),
        by_lemma=None if None in lemmas else _share([bool(found) for found in lemmas]),
        used=_share(used),
        used_right=_share([a and b for a, b in zip(used, right, strict=True)]),
        covered=sum(covered(r.translation.hints, r.reference) for r in records) / max(letters, 1),
        pasted=pasted_chrf(records),
        gain=_mean(gains, shown),
        gain_without=_mean(gains, ~shown),
    )


@dataclass(frozen=True)
class NewHints:
    """What hints told that the baseline's output did not say already. `said` is the share of hints whose phrase stands
    there (None without hints); of the others `right` and `wrong` count those whose phrase stands in the reference and
    those whose does not, `right_used` and `wrong_used` the ones of them that the output took up."""

    said: float | None
    right: int
    right_used: int
    wrong: int
    wrong_used: int


def new_hints(records: Sequence[Record], baseline: Sequence[str]) -> NewHints:
    """The statistics of a run whose sentences the baseline translated as given."""
    said: list[bool] = []
    counts = {(right, used): 0 for right in (True, False) for used in (True, False)}
    for record, before in zip(records, baseline, strict=True):
        for hint, used in zip(record.translation.hints, record.translation.used, strict=True):
            said.append(takes_up(before, hint))
            if not said[-1]:
                counts[takes_up(record.reference, hint), used] += 1
    right, wrong = (counts[kind, True] + counts[kind, False] for kind in (True, False))
    return NewHints(_share(said), right, counts[True, True], wrong, counts[False, True])


def _share(values: Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None


def _mean(values: Rows | None, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> float | None:
    return float(values[rows].mean()) if values is not None and rows.any() else None


def stands_by_lemma(phrase: str, text: str, language: str) -> bool | None:
    """Whether the words of a phrase stand side by side in a text, each in any form; None for a language without word
    lists."""
    wanted, there = _lemmas(phrase, base_code(language)), _lemmas(text, base_code(language))
    if wanted is None or there is None:
        return None
    return bool(wanted) and any(there[n : n + len(wanted)] == wanted for n in range(len(there) - len(wanted) + 1))


@lru_cache(1 << 14)
def _lemmas(text: str, language: str) -> tuple[str, ...] | None:
    try:
        return tuple(lemma(word, language) for word in words_of(text))
    except ValueError:
        return None


def covered(hints: Sequence[Hint], text: str) -> int:
    """The number of characters of a text that lie in a place where the phrase of a hint stands, letter case aside."""
    inside = np.zeros(len(text), dtype=bool)
    for hint in hints:
        if hint.phrase:
            for found in re.finditer(rf"(?<!\w){re.escape(hint.phrase)}(?!\w)", text, re.IGNORECASE):
                inside[found.start() : found.end()] = True
    return int(inside.sum())


def pasted_chrf(records: Sequence[Record]) -> float:
    """The chrF of outputs that are the hints in order and nothing else; sentences without hints count as empty."""
    outputs = [" ".join(hint.phrase for hint in r.translation.hints) for r in records]
    if not any(outputs):
        return 0.0
    statistics = open_chrf().statistics([], outputs, [r.reference for r in records])
    return float(chrf(statistics.sum(axis=0)[None])[0])
