"""Answers that go round in circles are given up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rag_mt.llm.decoding import LOOP_PERIOD, LOOP_ROUNDS, LOOP_TOKENS, Row, loops
from rag_mt.llm.stopping import AnswerText

TOKENS = st.lists(st.integers(0, 5), min_size=1, max_size=LOOP_PERIOD)


@given(st.lists(st.integers(0, 5), max_size=30), TOKENS)
def test_enough_rounds_are_a_loop(before: list[int], part: list[int]) -> None:
    rounds = max(LOOP_ROUNDS, -(-LOOP_TOKENS // len(part)))
    assert loops(before + part * rounds)


@given(TOKENS)
def test_fewer_are_none(part: list[int]) -> None:
    tokens = [9, *part, *part, 9, *part]
    assert not loops(tokens * 2)
    assert not loops([1] * (LOOP_TOKENS - 1))


def test_a_row_is_given_up_when_it_is_stuck() -> None:
    row = Row((1, 2), 500, AnswerText(lambda ids: " ".join(map(str, ids))))
    for _ in range(500):
        row.push(7, frozenset({0}))
        if row.done:
            break
    assert (row.new, row.ended, row.answer.stopped) == (LOOP_TOKENS, False, False)
