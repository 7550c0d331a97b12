"""Inline codes taken out of segments and put back."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from rag_mt.formats.xml import flatten, has_inner, rebuild

WORDS = st.text("ab ä\n日本.", max_size=12)


@st.composite
def contents(draw: st.DrawFn, depth: int = 2) -> str:
    """Random mixed content: text, paired codes with text, native codes, comments."""
    parts = [draw(WORDS)]
    for n in range(draw(st.integers(0, 3))):
        tag = draw(st.sampled_from(["g", "pc", "mrk", "hi", "x", "ph", "bpt", "protected", "comment"]))
        inner = draw(contents(depth - 1)) if depth else draw(WORDS)
        parts.append(
            {
                "x": f'<x id="{n}"/>',
                "comment": "<!-- note -->",
                "protected": f'<mrk mtype="protected">{inner}</mrk>',
            }.get(tag, f'<{tag} id="{n}">{inner}</{tag}>')
        )
        parts.append(draw(WORDS))
    return "".join(parts)


def element(content: str) -> Any:
    return etree.fromstring(f"<source>{content}</source>")


def filled(content: str, translation: str) -> str:
    source = element(content)
    target = deepcopy(source)
    text, codes = flatten(source)
    rebuild(target, translation, text, codes)
    return etree.tostring(target, encoding="unicode").removeprefix("<source>").removesuffix("</source>")


def events(node: Any) -> list[tuple[str, Any]]:
    """The codes in document order, with what they hold where that is no text."""
    _, codes = flatten(node)
    return [(c.kind, None if c.element is None else (c.element.tag, dict(c.element.attrib), native(c))) for c in codes]


def native(code: Any) -> str:
    if code.kind == "open":
        return ""
    return etree.tostring(code.element, encoding="unicode", with_tail=False)


@given(contents())
def test_an_identity_translation_changes_nothing(content: str) -> None:
    source = element(content)
    text, codes = flatten(source)
    target = deepcopy(source)
    rebuild(target, text, text, codes)
    assert etree.tostring(target) == etree.tostring(source)


@given(contents(), st.text("xyz ü\n語\u0000\ud800", max_size=30))
def test_no_code_is_lost_doubled_or_nested_otherwise(content: str, translation: str) -> None:
    source = element(content)
    target = deepcopy(source)
    text, codes = flatten(source)
    rebuild(target, translation, text, codes)
    found, expected = flatten(target)[0], translation.replace("\u0000", "\ufffd").replace("\ud800", "\ufffd")
    free = sum(code.kind == "empty" and text[code.position - 1 : code.position + 1].isspace() for code in codes)
    assert found.replace(" ", "") == expected.replace(" ", "")
    assert 0 <= len(found) - len(expected) <= free, "only codes with blanks around them get a blank that is missing"
    assert free or found == expected
    assert events(target) == events(source)


@pytest.mark.parametrize(
    ("content", "translation", "result"),
    [
        ("Ein <g>Haus</g>.", "A house.", "A <g>house.</g>"),
        ("<g>Ein Haus</g>", "A house", "<g>A house</g>"),
        ("<x/>Ein Haus<x/>", "A house", "<x/>A house<x/>"),
        ("Das <g>alte</g> Haus", "The old house", "The <g>old</g> house"),
        ("Weiter <x/> hier", "Continue here", "Continue <x/> here"),
        ("Drücken Sie <x/> zwei Mal", "Press twice", "Press <x/> twice"),
        ("Weiter <x/> <x/> hier", "Continue here", "Continue <x/> <x/> here"),
        ("Weiter <x/><x/> hier", "Continue here", "Continue <x/><x/> here"),
        ("Weiter <x/> hier", "Continue  here", "Continue <x/>  here"),
        ("Weiter <x/> hier", "Continue", "Continue <x/>"),
        ("Weiter <x/> hier", "在此繼續", "在此<x/>繼續"),
        ("Das <g>alte</g> Haus", "那個舊房子", "那個<g>舊</g>房子"),
        ("Das <g>alte</g> Haus", "Altbau", "<g>Altbau</g>"),
        ("Klicken Sie auf <x/>, um fortzufahren.", "Click to continue.", "Click to <x/>continue."),
        ("Die Taste<x/> hier drücken", "Press here now", "Press<x/> here now"),
        ("Die Taste<ph>{\\b </ph> drücken", "Press", "Press<ph>{\\b </ph>"),
    ],
)
def test_where_codes_go(content: str, translation: str, result: str) -> None:
    assert filled(content, translation) == result


@pytest.mark.parametrize(
    ("content", "text", "inner"),
    [
        ("<bpt>&lt;b></bpt>fett<ept>&lt;/b></ept>", "fett", False),
        ("a <ph>{1}</ph>b", "a b", True),
        ("<g>a</g> b", "a b", True),
        (" <x/> a b <x/> ", "  a b  ", False),
        ('Nutze <mrk translate="no">RagMT</mrk> nun', "Nutze  nun", True),
        ("nichts", "nichts", False),
    ],
)
def test_plain_text(content: str, text: str, inner: bool) -> None:
    found, codes = flatten(element(content))
    assert found == text
    assert has_inner(found, codes) is inner
