"""chrF and Dice of many pairs at once, against sacreBLEU and counted by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.chrf import CHRF

from retrievers.memory.overlap import SURPLUS, by_support, overlaps

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
@given(
    st.lists(TEXT, min_size=1, max_size=5),
    st.lists(st.tuples(TEXT, st.floats(0, 1)), max_size=3),
    st.sampled_from([SURPLUS, 1.0]),
)
def test_support_is_chrf_with_the_others_both_ways_and_with_the_hits(
    texts: list[str], hits: list[tuple[str, float]], surplus: float
) -> None:
    def chrf(one: str, other: str) -> float:
        return CHRF().sentence_score(one, [other]).score / 100

    scores = [
        sum(chrf(one, other) + chrf(other, one) for other in texts) / 2 / len(texts)
        + max((min(chrf(one, hit), similarity + surplus) * similarity for hit, similarity in hits), default=0)
        for one in texts
    ]
    order = by_support(texts, hits, surplus)
    assert sorted(order) == list(range(len(texts)))
    assert [scores[n] for n in order] == pytest.approx(sorted(scores, reverse=True), abs=1e-4)


def test_a_copy_of_a_hit_that_is_little_like_the_translation_is_not_chosen() -> None:
    """As a model does that was not tuned for hints."""
    texts = ["You cannot delete a title page.", "You cannot delete the Default scheme.", "A title page stays."]
    assert by_support(texts, [("You cannot delete the Default scheme.", 0.45)], SURPLUS)[0] == 0
    assert by_support(texts, [("You cannot delete the Default scheme.", 0.9)], SURPLUS)[0] == 1
    assert by_support(texts, [("You cannot delete the Default scheme.", 0.45)])[0] == 1


def test_the_odd_one_is_chosen_only_where_a_hit_says_so() -> None:
    texts = ["A dog ran.", "The cat sat down.", "The cat sat."]
    assert by_support(texts, [])[2] == 0
    assert by_support(texts, [("A dog ran away.", 0.2), ("Nothing", 0.9)])[2] == 0
    assert by_support(texts, [("Nothing", 0.3), ("A dog ran away.", 0.9)])[0] == 0
    assert by_support(["same", "same"], []) == [0, 1]


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
