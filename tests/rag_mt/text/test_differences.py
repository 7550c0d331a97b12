"""The runs of two texts that are equal or differ."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_mt.text.differences import changes, differences


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("The council met.", "The council met.", []),
        ("The council met.", "The town council met.", [("", "town")]),
        ("The town council met.", "The council met!", [("town", ""), (".", "!")]),
        ("a b c d", "a x y d", [("b c", "x y")]),
        ("eine Brücke", "eine Straße", [("Brücke", "Straße")]),
        ("市议会开会", "市议会决定", [("开会", "决定")]),
        ("", "new", [("", "new")]),
    ],
)
def test_changes(before: str, after: str, expected: list[tuple[str, str]]) -> None:
    assert changes(before, after) == expected


@given(st.text(max_size=60), st.text(max_size=60))
def test_the_runs_are_the_texts_and_equal_and_differing_ones_take_turns(before: str, after: str) -> None:
    runs = differences(before, after)
    assert "".join(run.before for run in runs) == before
    assert "".join(run.after for run in runs) == after
    assert any(run.differs for run in runs) == (before != after)
    assert all(one.differs != other.differs for one, other in pairwise(runs))
