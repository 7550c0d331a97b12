"""The estimator that comes with rag_mt tells right translations from those of other sentences."""

from __future__ import annotations

import numpy as np

from rag_mt.base.files import SAMPLE_CORPUS
from rag_mt.base.languages import WMT16
from rag_mt.quality.estimator import shared_estimator

COUNT = 20


def lines(code: str) -> list[str]:
    return (SAMPLE_CORPUS / f"{code}.txt").read_text("utf-8").splitlines()[:COUNT]


def test_right_translations_are_better_than_those_of_other_sentences() -> None:
    english = lines("en")
    pairs = [(side, english) for side in map(lines, WMT16)]
    pairs += [(english, side) for side, _ in pairs]
    right = [(one, other) for source, target in pairs for one, other in zip(source, target, strict=True)]
    wrong = [
        (one, other) for source, target in pairs for one, other in zip(source, target[1:] + target[:1], strict=True)
    ]
    scores = np.array([[e.score for e in shared_estimator().estimate(side)] for side in (right, wrong)])
    assert (scores[0] > scores[1]).mean() > 0.8
    assert scores[0].mean() > scores[1].mean() + 10
