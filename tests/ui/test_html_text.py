"""HTML: what is taken for text, and that the rest stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ui.html_text import HtmlText

TAGS = "<p> </p> <b> </b> <br> <i> </i> <div> </div> <pre> </pre> <code>y</code> <script>a</script> <img> <g> <!--c-->"
PIECES = st.lists(st.sampled_from([*TAGS.split(), "wort ", "&amp;", "<", ">", "\n", "\x00", "ü"]), max_size=12)


@pytest.mark.parametrize(
    ("markup", "lines", "upper"),
    [
        ("Hallo", ["Hallo"], "HALLO"),
        ("", [], ""),
        ("<!-- nur -->", [], "<!-- nur -->"),
        ("<!doctype html>", [], "<!doctype html>"),
        ("1 &lt; 2", [], "1 &lt; 2"),
        ("a &lt; b", ["a < b"], "A &lt; B"),
        ('<p class="x">Das <b>Haus</b> ist.</p>', ["Das Haus ist."], '<p class="x">DAS <b>HAUS</b> IST.</p>'),
        ("<ul><li>Eins<li>Zwei</ul>", ["Eins", "Zwei"], "<ul><li>EINS</li><li>ZWEI</li></ul>"),
        ("eins\n  zwei<br>drei", ["eins zwei", "drei"], "EINS ZWEI<br>DREI"),
        ("<pre>eins\n zwei</pre>", ["eins\n zwei"], "<pre>EINS\n ZWEI</pre>"),
        ("vor <p>in</p> nach", ["vor ", "in", " nach"], "VOR <p>IN</p> NACH"),
        ('<a href="/ü"><div>Text</div></a>', ["Text"], '<a href="/%C3%BC"><div>TEXT</div></a>'),
        ('<p translate="no">So</p><p class="a notranslate">So</p>', [], None),
        ("<script>var a = 'wort';</script>da", ["da"], "<script>var a = 'wort';</script>DA"),
        ('Ein <img src="x"> Bild', ["Ein  Bild"], None),
        (
            "<!DOCTYPE html>\n<html><head><title>Titel</title></head><body><h1>Kopf</h1></body></html>",
            ["Titel", "Kopf"],
            "<!DOCTYPE html>\n<html><head><title>TITEL</title></head><body><h1>KOPF</h1></body></html>",
        ),
    ],
)
def test_text_and_markup(markup: str, lines: list[str], upper: str | None) -> None:
    page = HtmlText(markup)
    assert page.text == "\n".join(lines)
    made = page.filled(page.text.upper())
    if upper is not None:
        assert made == upper
    assert made.count("<img") == markup.count("<img")


def test_translations_are_escaped() -> None:
    assert HtmlText("<p>eins</p>").filled("<script>alert(1)</script> & so") == (
        "<p>&lt;script&gt;alert(1)&lt;/script&gt; &amp; so</p>"
    )


@given(PIECES.map("".join))
def test_anything_is_read_and_its_own_translation_changes_no_text(markup: str) -> None:
    page = HtmlText(markup)
    again = HtmlText(page.filled(page.text))
    assert [line.split() for line in again.text.split("\n")] == [line.split() for line in page.text.split("\n")]
