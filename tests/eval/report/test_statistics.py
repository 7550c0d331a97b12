"""What hints were worth, counted by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from sacrebleu.metrics.chrf import CHRF

from eval.report.statistics import (
    FAULTS,
    completion_faults,
    covered,
    hint_statistics,
    new_hints,
    pasted_chrf,
    stands_by_lemma,
    translation_faults,
)
from eval.translation.records import Record
from prompts.answers import UNFINISHED
from rag_mt.base.types import Completion, Hint, Hit, Sentence, Span, Translation
from rag_mt.text.answers import takes_up


def hint(phrase: str, start: int = 0) -> Hint:
    return Hint(Span(start, start + 1), Hit(Sentence(phrase, "en"), Span(0, len(phrase)), 0.9))


def record(
    text: str,
    reference: str = "The old bridge is closed",
    hints: tuple[str, ...] = (),
    *,
    source: str = "Die alte Brücke ist gesperrt",
    raw: str | None = None,
    finished: bool = True,
    stopped: bool = False,
    ok: bool = True,
    notes: tuple[str, ...] = (),
) -> Record:
    shown = tuple(hint(phrase, n) for n, phrase in enumerate(hints))
    used = tuple(takes_up(text, own) for own in shown)
    translation = Translation(Sentence(source, "de"), text, shown, "", used, notes, ok)
    return Record(translation, reference, 1, Completion(text if raw is None else raw, 5, finished, stopped))


def test_statistics_are_counted() -> None:
    records = [
        record("The old bridge is shut", hints=("old bridge", "is shut", "bridges")),
        record("Two houses burn", "Two houses burn down", ("house",)),
        record("Hello"),
        record("Nothing"),
    ]
    scores, baseline = np.array([50.0, 60, 10, 20]), np.array([40.0, 56, 14, 20])
    found = hint_statistics(records, "en", scores - baseline)
    assert (found.shown, found.hints) == (0.5, 1)
    assert found.literal == 0.25  # old bridge
    assert found.by_lemma == 0.75  # bridges and house too
    assert found.used == 0.5  # old bridge, is shut
    assert found.used_right == 0.25
    letters = 3 * len("The old bridge is closed") + len("Two houses burn down")
    assert found.covered == pytest.approx(len("old bridge") / letters)
    assert (found.gain, found.gain_without) == (7, -2)
    pasted = ["old bridge is shut bridges", "house", "", ""]
    assert found.pasted == pytest.approx(CHRF().corpus_score(pasted, [[r.reference for r in records]]).score)


def test_without_hints_there_are_no_shares() -> None:
    found = hint_statistics([record("Hello")], "en")
    assert (found.hints, found.literal, found.by_lemma, found.used, found.gain) == (0, None, None, None, None)
    assert found.covered == found.pasted == pasted_chrf([]) == 0


def test_hints_that_are_new_to_the_baseline_are_counted() -> None:
    records = [
        record("The old bridge is shut", hints=("old bridge", "is shut", "closed", "house")),
        record("Two houses burn", "Two houses burn down", ("burn", "down", "fire")),
        record("Hello"),
    ]
    found = new_hints(records, ["An Old Bridge was closed", "Houses", "Hello"])
    assert found == (2 / 7, 2, 1, 3, 1)
    assert new_hints([record("Hello")], [""]) == (None, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("phrase", "text", "language", "expected"),
    [
        ("two house", "He bought two houses.", "en", True),
        ("houses two", "He bought two houses.", "en", False),
        ("bridge", "abridged", "en", False),
        ("alten Häuser", "das alte Haus", "de", True),
        ("...", "anything", "en", False),
        ("词", "词", "zh", None),
    ],
)
def test_lemmas(phrase: str, text: str, language: str, expected: bool | None) -> None:
    assert stands_by_lemma(phrase, text, language) is expected


def test_overlapping_phrases_cover_once() -> None:
    text = "The old bridge, the Old Bridge"
    assert covered([hint("old bridge"), hint("bridge"), hint("bridg")], text) == 20
    assert covered([hint("a.c")], "abc a.c") == 3


def test_clean_outputs_are_counted_before_and_after_the_reader() -> None:
    loop = "the old bridge " * 8
    records = [
        record("The old bridge is closed"),
        record("The old bridge", raw="The old bridge\n\nInput: more"),
        record("the old bridge", raw=loop.strip(), notes=("the answer repeated itself and was cut",)),
        record("The bridge [[is]] closed"),
        record("The old bridge is", finished=False, notes=(UNFINISHED,)),
        record("Die alte Brücke ist gesperrt"),
        record("Die alte Brücke ist gesperrt", raw="...", ok=False),
        record("Berlin", "Berlin", source="Berlin"),
        record("The #1 bridge", raw="The ♯1 bridge"),  # a look-alike that the reader turns back
        record("The old bridge is closed", stopped=True),
    ]
    before, after = [completion_faults(r) for r in records], [translation_faults(r) for r in records]
    assert (before.count(set()), after.count(set())) == (3, 6)
    assert Counter(name for faults in before for name in faults) == dict.fromkeys(FAULTS, 1)
    assert Counter(name for faults in after for name in faults) == dict.fromkeys(
        ("no answer", "echo", "mark", "not ended"), 1
    )
