"""The estimator: its scores and grades, and that neither order nor company changes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rag_mt.base.errors import UserError
from rag_mt.base.quality import Estimate, Said
from rag_mt.models.loading import load_encoder
from rag_mt.quality.estimator import Estimator, open_estimator
from rag_mt.quality.model import EstimatorHead, EstimatorSettings, tokenise_pairs

PAIRS = [("stone river", "river stone"), ("a", ""), ("", "b"), ("winter " * 30, "summer " * 40), ("x \ud800 y", "z")]


@pytest.fixture(scope="module")
def estimator(tiny_encoder: Path) -> Estimator:
    torch.manual_seed(1)
    loaded = load_encoder(str(tiny_encoder), "cpu", "float32")
    hidden = int(loaded.model.config.hidden_size)
    settings = EstimatorSettings(str(tiny_encoder), hidden, 16, (0.0, 50.0, 100.0), (20.0, 50.0, 95.0))
    return Estimator(settings, loaded, EstimatorHead(hidden), "")


def test_a_translation_is_judged_alike_in_any_company(estimator: Estimator) -> None:
    together = estimator.measured(PAIRS)
    alone = np.concatenate([estimator.measured([pair]) for pair in PAIRS])
    assert together == pytest.approx(alone, abs=1e-3)
    assert estimator.measured(PAIRS[::-1]) == pytest.approx(together[::-1], abs=1e-3)
    assert estimator.estimate([]) == []


def test_scores_are_calibrated(estimator: Estimator) -> None:
    expected = np.interp(estimator.measured(PAIRS), [0, 50, 100], [20, 50, 95])
    assert [estimate.score for estimate in estimator.estimate(PAIRS)] == pytest.approx(expected.round(1).tolist())


def test_what_the_model_says_counts_if_it_was_fitted(estimator: Estimator) -> None:
    said = Said("ours", "de-en", [0.0] * len(PAIRS))
    alone = [estimate.score for estimate in estimator.estimate(PAIRS)]
    assert [estimate.score for estimate in estimator.estimate(PAIRS, said)] == alone
    added = {"llm": "ours", "per_probability": 10.0, "per_score": 0.0, "means": {"de-en": [50.0, 0.5]}}
    settings = replace(estimator.settings, probability=added)
    other = Estimator(settings, estimator._loaded, estimator._head, "")
    assert other.fingerprint != estimator.fingerprint
    scores = [estimate.score for estimate in other.estimate(PAIRS, said)]
    assert scores == pytest.approx([score + 5 for score in alone], abs=0.11)


@pytest.mark.parametrize(
    ("score", "grade"), [(100, "good"), (70, "good"), (69.9, "fair"), (50, "fair"), (49.9, "poor"), (0, "poor")]
)
def test_grades(score: float, grade: str) -> None:
    assert Estimate(score).grade == grade


def test_the_longer_side_is_cut(tiny_encoder: Path) -> None:
    tokenizer = load_encoder(str(tiny_encoder), "cpu", "float32").tokenizer
    long, whole = tokenise_pairs(tokenizer, [("a", "stone river " * 30), ("a", "stone")], 16)
    assert len(long) == 16
    assert whole == tokenise_pairs(tokenizer, [("a", "stone")], 99)[0]


def test_a_folder_without_its_files_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is no quality estimator: give .*quality\.json"):
        open_estimator(str(tmp_path))
