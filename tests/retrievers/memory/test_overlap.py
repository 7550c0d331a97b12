"""chrF and Dice of many pairs at once, against sacreBLEU and counted by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.chrf import CHRF

from retrievers.memory.overlap import most_alike, overlaps

PAIRS = [
    ("The museum is closed.", "The museum is closed on Mondays."),
    ("дом", "дома"),
    ("aaa aaa", "aa"),
    ("", "abc"),
    ("abc", ""),
    ("ab", "cd"),
    ("Grüße 😀", "Gruesse 😀"),
]
TEXT = st.text(alphabet="abä 😀.", max_size=30)


@pytest.mark.parametrize("pair", PAIRS)
def test_chrf_is_that_of_sacrebleu(pair: tuple[str, str]) -> None:
    expected = CHRF().sentence_score(pair[0], [pair[1]]).score / 100
    assert overlaps([pair[0]], [pair[1]]).chrf()[0] == pytest.approx(expected, abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6))
def test_a_pair_does_not_depend_on_the_others(pairs: list[tuple[str, str]]) -> None:
    alike = overlaps(*zip(*pairs, strict=True)).chrf()
    for score, (one, other) in zip(alike.tolist(), pairs, strict=True):
        assert score == pytest.approx(CHRF().sentence_score(one, [other]).score / 100, abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=5))
def test_what_is_most_alike_has_the_greatest_chrf_both_ways(texts: list[str]) -> None:
    chrf = CHRF()
    scores = [
        sum(chrf.sentence_score(*pair).score for x in texts for pair in ((one, [x]), (x, [one]))) for one in texts
    ]
    assert scores[most_alike(texts)] == pytest.approx(max(scores), abs=1e-3)


def test_the_odd_one_is_not_chosen() -> None:
    assert most_alike(["A dog ran.", "The cat sat down.", "The cat sat."]) in (1, 2)
    assert most_alike(["same", "same"]) == 0


@pytest.mark.parametrize(
    ("one", "other", "dice"),
    [
        ("abcd", "abcd", 1.0),
        ("abcd e", "abcde", 1.0),
        ("abcde", "abcdx", 0.5),
        ("aaaaa", "aaaa", 2 / 3),
        ("ab", "ab", 0),
    ],
)
def test_dice_of_four_characters(one: str, other: str, dice: float) -> None:
    assert overlaps([one], [other]).dice()[0] == pytest.approx(dice)
    assert overlaps([other], [one]).dice()[0] == pytest.approx(dice)
