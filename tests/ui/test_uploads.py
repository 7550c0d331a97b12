"""Names of uploads: what is shown, and what of them may be part of a path."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ui.uploads import MOST_NAME_CHARS, safe_suffix, shown_name, shown_title


@pytest.mark.parametrize(
    ("name", "shown", "suffix"),
    [
        ("report.po", "report.po", ".po"),
        ("../../etc/passwd", "passwd", ""),
        ("C:\\plans\\a.TXT.GZ", "a.TXT.GZ", ".txt.gz"),
        ("a.exe.gz", "a.exe.gz", ".gz"),
        ("a.tar.gz/../x.tmx", "x.tmx", ".tmx"),
        ("evil\u202ega.txt\x00.xliff", "evilga.txt.xliff", ".xliff"),
        ("<script>alert(1)</script>.txt", "script>.txt", ".txt"),
        ("..", "unnamed", ""),
        ("", "unnamed", ""),
    ],
)
def test_names(name: str, shown: str, suffix: str) -> None:
    assert shown_name(name) == shown
    assert safe_suffix(name) == suffix


@given(st.text(max_size=200))
def test_any_name_can_be_shown_and_written(name: str) -> None:
    for shown in (shown_name(name), shown_title(name)):
        assert 0 < len(shown) <= MOST_NAME_CHARS
        assert shown == shown.strip()
        assert all(unicodedata.category(c)[0] != "C" for c in shown)
        assert shown.encode()
    assert "/" not in safe_suffix(name)
