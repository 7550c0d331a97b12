"""Differences of two translations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ui.page.compare import comparison, differences


def differing(left: str, right: str) -> tuple[list[str], list[str]]:
    found = differences(left, right)
    return [p.text for p in found[0] if p.differs], [p.text for p in found[1] if p.differs]


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("The council met.", "The council met.", ([], [])),
        ("The council met.", "The town council met.", ([], [" town"])),
        ("a b c d", "a x y d", (["b c"], ["x y"])),
        ("eine Brücke", "eine Straße", (["Brücke"], ["Straße"])),
        ("市议会开会", "市议会决定", (["开会"], ["决定"])),
        ("", "new", ([], ["new"])),
    ],
)
def test_differences(left: str, right: str, expected: tuple[list[str], list[str]]) -> None:
    assert differing(left, right) == expected


@given(st.text(max_size=60), st.text(max_size=60))
def test_the_runs_are_the_texts(left: str, right: str) -> None:
    runs = differences(left, right)
    assert "".join(p.text for p in runs[0]) == left
    assert "".join(p.text for p in runs[1]) == right
    same = ["".join(p.text for p in side if not p.differs) for side in runs]
    assert left != right or same == [left, right]


def test_a_difference_is_said_and_not_only_coloured() -> None:
    page = comparison("a <b> c", "a <i> c", ("Plain", "With hints"), "en")
    assert "<b>" not in page and "&lt;" in page
    assert page.count('<span class="mt-sr">[differs: </span>') == 2
    assert "1 place differs." in page


def test_equal_translations_say_so() -> None:
    assert comparison("a", "a", ("Plain", "With hints"), "en").count("No difference.") == 2
