"""Hints as they are marked in the source text and in the translation, their origins and their table."""

from __future__ import annotations

import re

import pytest

from rag_mt.base.types import Hint, Hit, Origin, Prompt, Sentence, Span, Translation
from rag_mt.translation.translator import Translator
from tests.ui.conftest import RuleLLM, RuleRetriever
from ui.page.hint_markup import (
    ShownHint,
    highlighted,
    hint_table,
    origins,
    output_pane,
    shown_hints,
    used_places,
)
from ui.server.translators import Choice
from ui.server.work import Item, Job, Order

TEXT = "Der Rat tagt. Der Rat <b>zahlt</b>."
FIRST, SECOND = "Der Rat tagt.", "Der Rat <b>zahlt</b>."


def hint(start: int, end: int, phrase: str, score: float = 0.5, before: str = "So ", file: str = "a.txt") -> Hint:
    sentence = Sentence(f"{before}{phrase} it is.", "en", Origin(file, 7))
    return Hint(Span(start, end), Hit(sentence, Span(len(before), len(before) + len(phrase)), score))


def item(text: str, *hints: Hint, used: tuple[bool, ...] = ()) -> Item:
    sentence = Sentence(text, "de")
    translation = Translation(sentence, "x", hints, "prompt", used or (False,) * len(hints))
    translator = Translator("de", "en", retriever=RuleRetriever(), llm=RuleLLM(), wrapper="compact")
    job = Job(Order(Choice("de", "en"), text))
    return Item(translator, sentence, Prompt("prompt", hints=hints), "", None, translation, job=job)


def shown() -> tuple[ShownHint, ...]:
    council, pays = hint(4, 7, "council"), hint(8, 20, "<i>pays</i>")
    sentences = [item(FIRST, council, used=(True,)), item(SECOND, pays)]
    return shown_hints(TEXT, sentences, [ShownHint(1, Span(0, 3), SECOND, hint(4, 7, "board"))])


def test_hints_are_numbered_as_they_stand_in_the_text() -> None:
    hints = shown()
    assert [(s.number, s.span.of(TEXT), s.used, s.off) for s in hints] == [
        (1, "Rat", True, False),
        (2, "Rat", None, True),
        (3, "<b>zahlt</b>", False, False),
    ]
    assert hints[1].span.start == TEXT.rindex("Rat")


def test_a_hint_that_is_shown_again_is_not_counted_twice() -> None:
    council = hint(4, 7, "council")
    hints = shown_hints(TEXT, [item(FIRST, council)], [ShownHint(1, Span(4, 7), FIRST, council)])
    assert [s.off for s in hints] == [False]


def test_the_source_text_is_whole_escaped_and_marked() -> None:
    page = highlighted(TEXT, shown(), "de")
    assert "<b>" not in page
    assert re.findall(r'data-hint="(\d)"', page) == ["1", "2", "3"]
    plain = re.sub(r'<sup.*?</sup>|<span class="mt-sr">.*?</span>|<[^>]*>', "", page)
    assert plain == TEXT.replace("<", "&lt;").replace(">", "&gt;")
    assert "hint 1, used word for word" in page and "hint 2, switched off" in page


def test_of_overlapping_hints_the_first_is_marked_and_all_are_listed() -> None:
    both = [hint(0, 7, "the council"), hint(4, 12, "council meets")]
    hints = shown_hints(FIRST, [item(FIRST, *both)])
    assert highlighted(FIRST, hints, "de").count("data-hint=") == 1
    assert hint_table(FIRST, hints, "en").count("data-hint-row=") == 2


def test_an_origin_tells_phrase_context_score_file_line_and_use() -> None:
    page = origins(TEXT, shown(), "en")
    first = page.split("</section>")[0]
    assert "So <mark>council</mark> it is." in first
    for part in ("0.500", "a.txt", "<dd>7</dd>", "✓ the translation has it word for word", 'aria-checked="true"'):
        assert part in first
    assert "<i>" not in page and "&lt;i&gt;pays&lt;/i&gt;" in page
    assert 'aria-checked="false"' in page.split("</section>")[1]


def test_a_hostile_file_name_is_text() -> None:
    page = origins(TEXT, shown_hints(TEXT, [item(FIRST, hint(4, 7, "x", file='"><img src=x onerror=1>.txt'))]), "en")
    assert "<img" not in page


def test_the_table_says_why_it_is_empty() -> None:
    assert "No hint was trusted" in hint_table(TEXT, (), "en")
    assert "will be marked" in hint_table("", (), "en")


def brought(number: int, phrase: str, used: bool | None = True, whole: bool = False) -> ShownHint:
    source = "Der Rat tagt."
    hit = Hit(Sentence(phrase, "en", Origin("a.txt", 1)), Span(0, len(phrase)), 0.5)
    span = Span(0, len(source)) if whole else Span(4, 7)
    return ShownHint(number, span, source, Hint(span, hit), used)


@pytest.mark.parametrize(
    ("text", "hints", "places"),
    [
        ("The council meets.", [brought(1, "council")], [("council", 1)]),
        ("The Council meets.", [brought(1, "council")], [("Council", 1)]),
        ("The councils meet the council.", [brought(1, "council")], [("council", 1)]),
        ("The council meets.", [brought(1, "council", used=False)], []),
        ("The council meets.", [brought(1, "The council meets.", whole=True)], []),
        ("The city council.", [brought(1, "council"), brought(2, "city council")], [("city council", 2)]),
        ("a council, a council", [brought(1, "council"), brought(2, "council")], [("council", 1), ("council", 2)]),
        ("市议会今天开会", [brought(1, "议会")], [("议会", 1)]),
        ("In der STRASSE.", [brought(1, "Straße")], [("STRASSE", 1)]),
        ("a (b) c", [brought(1, "(b)")], [("(b)", 1)]),
    ],
)
def test_where_used_phrases_stand(text: str, hints: list[ShownHint], places: list[tuple[str, int]]) -> None:
    found = sorted(used_places(text, hints), key=lambda place: place[0])
    assert [(span.of(text), hint.number) for span, hint in found] == places


def test_the_pane_is_escaped_and_says_its_language() -> None:
    page = output_pane('<b>"x"</b> council', "ar", [brought(3, "council")])
    assert "<b>" not in page and 'data-copy="&lt;b&gt;&quot;x&quot;&lt;/b&gt; council"' in page
    assert 'lang="ar" dir="auto"' in page and 'data-hint="3"' in page


def test_the_pane_without_a_translation_has_nothing_to_copy() -> None:
    assert "data-copy" not in output_pane("", "en")
    assert 'aria-busy="true"' in output_pane("", "en", busy=True)
