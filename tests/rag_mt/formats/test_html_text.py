"""HTML: what is taken for text, and that the rest stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_mt.base.errors import UserError
from rag_mt.formats.html import MOST_DEPTH, HtmlText

TAGS = "<p> </p> <b> </b> <br> <i> </i> <div> </div> <pre> </pre> <code>y</code> <script>a</script> <img> <g> <!--c-->"
PIECES = st.lists(
    st.sampled_from([*TAGS.split(), "wort ", "&amp;", "<", "<b", "<!--", ">", "\n", "\x00", "ü"]), max_size=12
)


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
        ("<b<p>wort</b>", ["wort"], None),  # a name of an attribute that XML has not
        ("<b <p>wort</b> da", ["wort da"], None),
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


@pytest.mark.parametrize("tag", ["div", "b", "p", "section", "span"])
@pytest.mark.parametrize("depth", [300, MOST_DEPTH - 1])
def test_text_inside_many_elements_is_translated(tag: str, depth: int) -> None:
    markup = f"<{tag}>" * depth + "Ein Satz." + f"</{tag}>" * depth
    page = HtmlText(markup)
    assert page.text == "Ein Satz."
    assert page.filled("A sentence.").count("A sentence.") == 1
    assert all(f"wort{n}" in HtmlText("".join(f"<b>wort{n} " for n in range(depth))).text for n in (0, depth - 1))


@pytest.mark.parametrize("depth", [MOST_DEPTH + 1, 1250, 3000, 50_000])
@pytest.mark.parametrize("tag", ["div", "b"])
def test_more_elements_inside_one_another_are_refused_and_no_text_is_lost(tag: str, depth: int) -> None:
    with pytest.raises(UserError, match=r"elements inside one another.*send its parts one by one"):
        HtmlText(f"<{tag}>a" * depth)


@pytest.mark.parametrize("end", ["<!-- offen", "<b", "<b c", '<a href="x>y', "</", "<?php echo 1", "<!doctype"])
def test_markup_that_does_not_end_stays_as_it_is(end: str) -> None:
    page = HtmlText(f"<p>eins</p>{end}")
    assert page.text == "eins"
    made = page.filled("ONE")
    assert made.startswith("<p>ONE</p>") and "body" not in made and "html" not in made
    if ">" not in end:
        assert made == f"<p>ONE</p>{end}"


@pytest.mark.parametrize(
    "markup", ["a <b<i>c</i> d", "<frameset><p>a</p></frameset>b", "<html<b>a", "</body>a</html>b"]
)
def test_strange_markup_is_read(markup: str) -> None:
    page = HtmlText(markup)
    assert page.text
    assert len(page.filled(page.text)) >= len(page.text)


@pytest.mark.parametrize("ends", ["</body></html>", "</html>", "</html ></body>"])
@pytest.mark.parametrize("start", ["", "<html><body>"])
def test_text_after_the_end_of_a_document_is_translated(start: str, ends: str) -> None:
    assert HtmlText(f"{start}<p>vor</p>{ends}nach").text == "vor\nnach"


@given(PIECES.map("".join))
def test_anything_is_read_and_its_own_translation_changes_no_text(markup: str) -> None:
    page = HtmlText(markup)
    again = HtmlText(page.filled(page.text))
    assert [line.split() for line in again.text.split("\n")] == [line.split() for line in page.text.split("\n")]
