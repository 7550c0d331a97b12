"""Text that repeats itself is found, and cut at its second round."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rag_mt.text.loops import loop_in, without_loop

WORDS = st.lists(st.sampled_from(["we", "go", "home", "now", "and", "then"]), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("no no no no", (2, "")),
        ("no no no", None),
        ("No, no! NO no. And then", (3, " And then")),
        ("we go home we go home we go home", (10, "")),
        ("we go home we go home", None),
        ("so we all go home so we all go home", None),
        ("so we all now go home so we all now go home", (21, "")),
        ("so we all now go home so we all", None),
        ("-" * 40, (1, "")),
        ("-" * 39, None),
        ("ha" * 20 + "!", (2, "!")),
        ("ha" * 20 + "h", (2, "")),
        ("", None),
        ("   ", None),
    ],
)
def test_what_is_a_loop(text: str, found: tuple[int, str] | None) -> None:
    assert loop_in(text) == found


@given(WORDS, WORDS, WORDS)
def test_what_is_cut_is_a_beginning_and_the_rest(before: list[str], part: list[str], after: list[str]) -> None:
    text = " ".join([*before, *part * 5, *after])
    found = loop_in(text)
    assert found is not None
    end, rest = found
    assert 0 < end < len(text) and text.endswith(rest) and len(rest) < len(text) - end
    assert without_loop(text) == text[:end] + rest


@given(st.text(max_size=60))
def test_without_a_loop_a_text_stays_as_it_is(text: str) -> None:
    assume(loop_in(text) is None)
    assert without_loop(text) == text
