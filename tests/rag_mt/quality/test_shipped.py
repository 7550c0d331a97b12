"""The estimator that comes with rag_mt tells right translations from wrong ones."""

from __future__ import annotations

import numpy as np
import pytest

from rag_mt.base.files import SAMPLE_CORPUS
from rag_mt.base.languages import WMT16
from rag_mt.quality.estimator import Estimator, shared_estimator

COUNT = 20


@pytest.fixture(scope="module")
def estimator() -> Estimator:
    return shared_estimator()


def lines(code: str) -> list[str]:
    return (SAMPLE_CORPUS / f"{code}.txt").read_text("utf-8").splitlines()[:COUNT]


@pytest.mark.parametrize("code", WMT16)
@pytest.mark.parametrize("into_english", [True, False])
def test_right_translations_are_better_than_those_of_other_sentences(
    estimator: Estimator, code: str, into_english: bool
) -> None:
    sources, targets = (lines(code), lines("en")) if into_english else (lines("en"), lines(code))
    right = np.array([e.score for e in estimator.estimate(list(zip(sources, targets, strict=True)))])
    wrong = np.array([e.score for e in estimator.estimate(list(zip(sources, targets[1:] + targets[:1], strict=True)))])
    assert (right > wrong).mean() >= 0.9 and right.mean() > wrong.mean() + 15
