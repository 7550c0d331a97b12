"""The translation with the phrases that came from hints."""

from __future__ import annotations

import pytest

from rag_mt.base.types import Hint, Hit, Origin, Sentence, Span
from ui.page.output import output_pane, used_places
from ui.page.shown import ShownHint


def shown(number: int, phrase: str, used: bool | None = True, whole: bool = False) -> ShownHint:
    source = "Der Rat tagt."
    hit = Hit(Sentence(phrase, "en", Origin("a.txt", 1)), Span(0, len(phrase)), 0.5)
    span = Span(0, len(source)) if whole else Span(4, 7)
    return ShownHint(number, span, source, Hint(span, hit), used)


@pytest.mark.parametrize(
    ("text", "hints", "places"),
    [
        ("The council meets.", [shown(1, "council")], [("council", 1)]),
        ("The Council meets.", [shown(1, "council")], [("Council", 1)]),
        ("The councils meet the council.", [shown(1, "council")], [("council", 1)]),
        ("The council meets.", [shown(1, "council", used=False)], []),
        ("The council meets.", [shown(1, "The council meets.", whole=True)], []),
        ("The city council.", [shown(1, "council"), shown(2, "city council")], [("city council", 2)]),
        ("a council, a council", [shown(1, "council"), shown(2, "council")], [("council", 1), ("council", 2)]),
        ("市议会今天开会", [shown(1, "议会")], [("议会", 1)]),
        ("In der STRASSE.", [shown(1, "Straße")], [("STRASSE", 1)]),
        ("a (b) c", [shown(1, "(b)")], [("(b)", 1)]),
    ],
)
def test_where_used_phrases_stand(text: str, hints: list[ShownHint], places: list[tuple[str, int]]) -> None:
    found = sorted(used_places(text, hints), key=lambda place: place[0])
    assert [(span.of(text), hint.number) for span, hint in found] == places


def test_the_pane_is_escaped_and_says_its_language() -> None:
    page = output_pane('<b>"x"</b> council', "ar", [shown(3, "council")])
    assert "<b>" not in page and 'data-copy="&lt;b&gt;&quot;x&quot;&lt;/b&gt; council"' in page
    assert 'lang="ar" dir="auto"' in page and 'data-hint="3"' in page


def test_the_pane_without_a_translation_has_nothing_to_copy() -> None:
    assert "data-copy" not in output_pane("", "en")
    assert 'aria-busy="true"' in output_pane("", "en", busy=True)
