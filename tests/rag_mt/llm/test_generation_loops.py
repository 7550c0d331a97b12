"""Answers that go round in circles are given up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_mt.llm.generation import LOOK_EVERY, LOOP_PERIOD, LOOP_ROUNDS, LOOP_TOKENS, AnswerText, Generation, loop_at_end

TOKENS = st.lists(st.integers(0, 5), min_size=1, max_size=LOOP_PERIOD)


@given(st.lists(st.integers(0, 5), max_size=30), TOKENS)
def test_enough_rounds_are_a_loop(before: list[int], part: list[int]) -> None:
    rounds = max(LOOP_ROUNDS, -(-LOOP_TOKENS // len(part)))
    tokens = before + part * rounds
    found = loop_at_end(tokens)
    assert found is not None
    start, period = found
    assert start <= len(before) and period <= len(part)
    assert tokens[start + period :] == tokens[start:-period]
    assert not start or tokens[start - 1] != tokens[start - 1 + period]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=LOOP_TOKENS // 2 - 1))
def test_a_short_phrase_said_twice_is_none(part: list[int]) -> None:
    assert not loop_at_end([*range(10, 90), *part, *part])


@pytest.mark.parametrize("period", [1, 5, 16, 18, 30, LOOP_PERIOD])
def test_how_long_a_loop_must_be(period: int) -> None:
    tokens, length = [99, *[*range(period)] * 50], max(LOOP_ROUNDS * period, LOOP_TOKENS)
    assert loop_at_end(tokens[: 1 + length]) == (1, period)
    assert loop_at_end(tokens[:length]) is None


def test_a_longer_round_is_none() -> None:
    assert loop_at_end([*range(LOOP_PERIOD + 1)] * 9) is None


def test_a_row_is_given_up_when_it_is_stuck() -> None:
    generation = Generation((1, 2), 500, AnswerText(lambda ids: " ".join(map(str, ids))))
    for _ in range(500):
        generation.append(7, frozenset({0}))
        if generation.done:
            break
    looked = -(-LOOP_TOKENS // LOOK_EVERY) * LOOK_EVERY
    assert len(generation.new_tokens) == looked
    assert generation.looped and not generation.finished
    assert generation.loop_exit() == ([7], 7)


def ended_generation(text: str, prompt: str = "", stop: str = "") -> Generation:
    """A generation that has pushed each character of a text as a token, and then the end of text or a stop string."""
    answer = AnswerText(lambda ids: "".join(map(chr, ids)), (stop,) if stop else ())
    generation = Generation((1,), 500, answer, text=prompt)
    for token in (*map(ord, text), ord(stop) if stop else 0):
        generation.append(token, frozenset({0}))
    assert generation.done
    return generation


@pytest.mark.parametrize("stop", ["", "\n"])
@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("it was a very good day it was a very good day", "it was a very good day"),
        ("we said no, no, no, no, no and went", "we said no,"),
        ("so and so, so and so, so and so today", "so and so,"),
    ],
)
def test_an_answer_that_ends_with_a_loop_in_its_text_is_stuck(text: str, first: str, stop: str) -> None:
    generation = ended_generation(text, stop=stop)
    assert generation.looped and generation.answer.text == text
    assert generation.loop_exit() == ([*map(ord, first)], ord(" "))


@pytest.mark.parametrize(
    "text",
    ["it was good, it was good", "no, no, no", "so and so, so and so", "it was a good old day\nit was a good old day"],
)
def test_a_little_repetition_is_none(text: str) -> None:
    assert not ended_generation(text).looped


def test_what_repeats_itself_in_the_prompt_may_do_so_in_the_answer() -> None:
    assert not ended_generation("no, no, no, no", "German: nein, nein, nein, nein\nEnglish:").looped
    assert ended_generation("no, no, no, no", "German: so sagten wir es dann\nEnglish: so sagten wir es dann").looped


def test_a_loop_in_any_line_is_one() -> None:
    generation = ended_generation("Here it is:\n\nno, no, no, no and no")
    assert generation.loop_exit() == ([*map(ord, "Here it is:\n\nno,")], ord(" "))


@pytest.mark.parametrize("stop", ["", "\n"])
def test_what_ends_an_answer_is_not_barred(stop: str) -> None:
    """Where one token holds several rounds, the next one is no round."""
    pieces = ["Text ", "-" * 48, stop]
    answer = AnswerText(lambda ids: "".join(pieces[i - 1] for i in ids), (stop,) if stop else ())
    generation = Generation((1,), 500, answer)
    for token in (1, 2, 3 if stop else 0):
        generation.append(token, frozenset({0}))
    assert generation.done and not generation.looped and generation.loop_exit() is None


def test_an_answer_at_its_limit_is_not_taken_back() -> None:
    text = "no, no, no, no, no"
    generation = Generation((1,), len(text), AnswerText(lambda ids: "".join(map(chr, ids))))
    for token in map(ord, text):
        generation.append(token, frozenset({0}))
    assert generation.done and not generation.ended and not generation.looped


def test_an_answer_has_one_loop_exit() -> None:
    made = [*map(ord, "no,")]
    generation = Generation((1, *made), 500, AnswerText(lambda ids: "".join(map(chr, ids))), made, ord(" "))
    for token in (*map(ord, " no no no no no"), 0):
        generation.append(token, frozenset({0}))
    assert generation.ended and not generation.looped


def test_the_way_out_is_after_the_first_round() -> None:
    generation = Generation((1, 2), 500, AnswerText(lambda ids: " ".join(map(str, ids))))
    assert generation.loop_exit() is None
    for token in [5, 3, 4, 6, *[3, 4, 6] * 20]:
        generation.append(token, frozenset({0}))
        if generation.done:
            break
    assert generation.looped and generation.loop_exit() == ([5, 3, 4, 6], 3)
    ended = Generation((1,), 3, AnswerText(str))
    ended.append(0, frozenset({0}))
    assert ended.loop_exit() is None
