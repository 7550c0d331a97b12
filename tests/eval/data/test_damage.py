"""Damaged translations are others, and worth less."""

from __future__ import annotations

import numpy as np
import pytest

from eval.data.damage import DAMAGES, damaged
from eval.data.judgements import Judged

ROW = Judged(
    "Der Rat tagt heute im neuen Haus am Fluss.", "The council meets in the new house by the river today.", 90.0
)
OTHER = Judged("Es regnet.", "It rains.", 80.0)


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("seed", range(5))
def test_what_is_damaged_is_worth_less(kind: str, seed: int) -> None:
    made = damaged(ROW, OTHER, kind, np.random.default_rng(seed))
    assert made is not None and made.source == ROW.source and made.target != ROW.target
    assert made.score == made.mean and 0 <= made.score <= 60
    assert made == damaged(ROW, OTHER, kind, np.random.default_rng(seed))


def test_kinds() -> None:
    made = {kind: damaged(ROW, OTHER, kind, np.random.default_rng(1)) for kind in DAMAGES}
    texts = {kind: own.target for kind, own in made.items() if own is not None}
    assert texts["other sentence"] == OTHER.target and texts["copied"] == ROW.source
    assert texts["cut"] in ROW.target and sorted(texts["mixed"].split()) == sorted(ROW.target.split())
    assert texts["repeated"].split()[:2] * 2 == texts["repeated"].split()[:4] or len(texts["repeated"].split()) > 12


@pytest.mark.parametrize("kind", ["cut", "mixed", "repeated"])
def test_few_words_are_left_alone(kind: str) -> None:
    assert damaged(Judged("Ja, gern.", "Yes, please.", 90.0), OTHER, kind, np.random.default_rng(1)) is None


def test_the_same_text_is_no_damage() -> None:
    assert damaged(Judged("Berlin", "Berlin", 90.0), OTHER, "copied", np.random.default_rng(1)) is None
    assert damaged(ROW, ROW, "other sentence", np.random.default_rng(1)) is None
