"""Nothing that a user or a file wrote becomes a part of the page's code; and two translations are compared."""

from __future__ import annotations

import html
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ui.page.markup import comparison, escaped, tagged


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ('a" onload="x', "a&quot; onload=&quot;x"),
        ("it's", "it&#x27;s"),
        ("&amp;", "&amp;amp;"),
        ("invoice\u202etxt.exe", "invoice\ufffdtxt.exe"),
        ("\x00\x1b[31m", "\ufffd\ufffd[31m"),
        ("\ud800", "\ufffd"),
        ("می\u200cخواهم\n\t.", "می\u200cخواهم\n\t."),
        ("${alert(1)} {{x}} `", "${alert(1)} {{x}} `"),
    ],
)
def test_escaped(text: str, expected: str) -> None:
    assert escaped(text) == expected


@given(st.text())
def test_escaped_text_has_no_tag_and_no_quote(text: str) -> None:
    shown = escaped(text)
    assert not set("<>\"'") & set(shown)
    assert Tags(f'<b title="{shown}">x</b>').tags == ["b"]


@given(st.text(st.characters(exclude_categories=("Cc", "Cf", "Cs", "Co", "Cn"))))
def test_escaped_text_reads_as_it_was(text: str) -> None:
    assert html.unescape(escaped(text)) == text


def test_tagged_says_language_and_direction() -> None:
    assert tagged("<b>", "ar") == '<span lang="ar" dir="auto">&lt;b&gt;</span>'


def test_a_difference_is_said_and_not_only_coloured() -> None:
    page = comparison("a <b> c", "a <i> c", ("Plain", "With hints"), "en")
    assert "<b>" not in page and "&lt;" in page
    assert page.count('<span class="mt-sr">[differs: </span>') == 2
    assert "1 place differs." in page


def test_equal_translations_say_so() -> None:
    assert comparison("a", "a", ("Plain", "With hints"), "en").count("No difference.") == 2
