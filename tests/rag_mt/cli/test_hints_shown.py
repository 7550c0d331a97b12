"""The picture of a sentence and its hints: what stands where, and that no text breaks it."""

from __future__ import annotations

import re
from dataclasses import replace
from io import BytesIO, TextIOWrapper
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wcwidth import width

from rag_mt.base.findings import Finding
from rag_mt.base.types import Hint, Hit, Origin, Recalled, Sentence, Span, Translation
from rag_mt.cli.hints_shown import BAR, LEAST, USUAL, Style, bar, finding_lines, picture, score_kind, style_of_stderr
from retrievers.units.passages import windows
from tests.ui.conftest import RuleMemory

GERMAN = "Der Stadtrat hat die neue Brücke genehmigt."
ENGLISH = "All summer the whole town was waiting for the new bridge over the river and for better roads."


def hint(source: str, phrase: str, target: str, hit: str, score: float = 0.83) -> Hint:
    start, at = source.index(phrase), target.index(hit)
    found = Hit(Sentence(target, "en", Origin("news.txt", 12)), Span(at, at + len(hit)), score)
    return Hint(Span(start, start + len(phrase)), found)


def drawn(
    source: str, *hints: Hint, used: bool = True, kind: str = "confidence", style: Style | None = None
) -> list[str]:
    translation = Translation(Sentence(source, "de"), "The answer.", hints, used=(used,) * len(hints))
    return picture(translation, kind, style or Style()).splitlines()


def test_phrases_are_underlined_by_the_numbers_of_their_hints() -> None:
    lines = drawn(GERMAN, hint(GERMAN, "die neue Brücke", ENGLISH, "the new bridge"))
    assert lines[:3] == [GERMAN, "                 └──────1──────┘", "= The answer."]
    assert lines[3] == " 1 ██████▋   0.83 confidence  die neue Brücke → the new bridge  ✓ taken up"
    assert lines[4].strip().endswith("news.txt:12") and "for [the new bridge] over" in lines[4]
    assert len(lines) == 5


def test_of_a_long_origin_the_end_is_shown() -> None:
    of_news = hint(GERMAN, "Brücke", ENGLISH, "bridge")
    origin = Origin("/a/folder/of/many/names" * 9 + "/own.txt", 12)
    far = replace(of_news, hit=replace(of_news.hit, sentence=Sentence(ENGLISH, "en", origin)))
    line = drawn(GERMAN, far)[4]
    assert line.endswith("/own.txt:12") and "…" in line and width(line) <= USUAL


def test_overlapping_phrases_have_lines_of_their_own() -> None:
    hints = [hint(GERMAN, phrase, ENGLISH, "bridge") for phrase in ("neue Brücke", "Brücke", "Der")]
    lines = drawn(GERMAN, *hints, used=False)
    assert lines[1:3] == ["└3┘                  └────1────┘", "                          └─2──┘"]
    assert "taken up" not in "".join(lines)


def test_lines_stand_under_wide_and_combined_characters() -> None:
    source = "市議会は a\u0301e\u0301 新しい橋を承認した"
    lines = drawn(source, hint(source, "新しい橋", ENGLISH, "bridge"))
    before = source[: source.index("新")]
    assert lines[1] == " " * width(before) + "└──1───┘"


def test_what_a_terminal_reorders_is_bracketed_and_set_apart() -> None:
    source = "وافق المجلس على الجسر الجديد"
    lines = drawn(source, hint(source, "الجسر", ENGLISH, "bridge"))
    assert "[1 الجسر]" in lines[0] and lines[0][0] == "\u2068" and lines[0][-1] == "\u2069"
    assert "\u2068الجسر\u2069 → bridge" in lines[2]


def test_without_such_characters_it_is_ascii() -> None:
    source = "The new bridge is open."
    lines = drawn(source, hint(source, "new bridge", ENGLISH, "new bridge", 0.5), style=Style(ascii_only=True))
    assert "".join(lines).isascii()
    assert "####....  0.50 confidence  new bridge -> new bridge  * taken up" in lines[3]


def test_a_bm25_bar_is_full_at_the_highest_score() -> None:
    hints = [hint(GERMAN, GERMAN, ENGLISH, ENGLISH, score) for score in (14.0, 7.0)]
    lines = drawn(GERMAN, *hints, kind="BM25")
    assert lines[1] == "= The answer.", "a hint for the whole sentence underlines nothing"
    assert "█" * BAR in lines[2] and "14.00 BM25" in lines[2] and "█" * 4 + " " in lines[4]
    assert [bar(share, Style()).strip() for share in (float("nan"), -1, 0, 0.125, 2)] == ["", "", "", "█", "█" * BAR]


def test_a_passage_is_shown_by_its_window_and_its_origin() -> None:
    text = "The Town Bank\n" + "The town is old and its streets are narrow. " * 4
    window = windows(text, Span(text.index("The town is"), len(text)))[0]
    shown = Hint(Span(0, 5), Hit(Sentence(text, "en", Origin("bank.txt", 7)), window, 0.9))
    lines = drawn("Frage", shown, style=Style(columns=140))
    assert " ".join(shown.phrase.split())[:60] in lines[2] and "bank.txt:7" in lines[3]
    assert "Town Bank" not in lines[2]


def recalled(shown: bool, text: str = "The town hall.") -> Translation:
    """A translation of `Das Rathaus.` whose draft is `The city hall.`, with a hit in a memory."""
    hit = Hit(Sentence("Town hall", "en", Origin("old.txt", 4)), Span(0, 9), 0.7, "Rathaus")
    own = Recalled((Hint(Span(0, 12), hit),), shown)
    hints, used = (own.hints, (False,)) if shown else ((), ())
    return Translation(Sentence("Das Rathaus.", "de"), text, hints, used=used, draft="The city hall.", recalled=own)


def test_a_memory_tells_what_changed() -> None:
    lines = picture(recalled(True), "similarity", Style()).splitlines()
    assert lines[1:4] == [
        "= The town hall.",
        "- The [-city-]{+town+} hall.",
        "memory: 1 hit, shown to the model",
    ]
    assert lines[4] == " 1 █████▋    0.70 similarity  Rathaus → Town hall" and lines[5].strip() == "old.txt:4"
    same = picture(recalled(True, "The city hall."), "similarity", Style()).splitlines()
    assert same[2] == "memory: 1 hit, shown to the model; the draft is unchanged"
    chosen = replace(recalled(True, "The city hall."), alternatives=("The town hall.", "Town hall"))
    assert picture(chosen, "similarity", Style()).splitlines()[2:5] == [
        "  or: The town hall.",
        "  or: Town hall",
        "memory: 1 hit, shown to the model; the draft is the best supported translation",
    ]


def test_a_memory_tells_what_it_did_not_show() -> None:
    lines = picture(recalled(False, "The city hall."), "similarity", Style()).splitlines()
    assert lines[1:3] == [
        "= The city hall.",
        "memory: 1 hit, not shown: the draft is the translation",
    ]
    assert "Rathaus → Town hall" in lines[3]
    nothing = replace(recalled(False), recalled=Recalled())
    assert picture(nothing, "similarity", Style()).splitlines()[2:] == [
        "memory: no hits, not shown: the draft is the translation"
    ]


def test_scores_are_named_for_what_they_are() -> None:
    assert score_kind(RuleMemory()) == "similarity"
    kinds = [("ccpr", {"confidence": "1"}), ("bm25", {}), ("sentence", {}), ("hybrid", {"alpha": 0.5})]
    retrievers = [SimpleNamespace(name=name, settings=settings) for name, settings in kinds]
    assert [score_kind(r) for r in retrievers] == ["confidence", "BM25", "cosine", "hybrid"]  # type: ignore[arg-type]


@pytest.mark.parametrize(("encoding", "ascii_only"), [("utf-8", False), ("ascii", True), ("latin-1", True)])
def test_the_style_is_what_standard_error_can_show(
    encoding: str, ascii_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = TextIOWrapper(BytesIO(), encoding=encoding)
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.delenv("COLUMNS", raising=False)
    assert style_of_stderr() == Style(USUAL, ascii_only, colour=False)
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "64")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert style_of_stderr() == Style(64, ascii_only, colour=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not style_of_stderr().colour


def test_colours_change_no_character() -> None:
    one = hint(GERMAN, "die neue Brücke", ENGLISH, "the new bridge")
    coloured = drawn(GERMAN, one, style=Style(colour=True))
    assert "\x1b[" in coloured[1]
    assert [re.sub(r"\x1b\[[0-9]*m", "", line) for line in coloured] == drawn(GERMAN, one)


TEXT = st.text(
    st.one_of(
        st.sampled_from("ab 。橋新あ\u0301\u0308עברالجسر\u200d👩🏽🇩🇪\x1b\t\n\u202e\u2028\ud800\u0e33"), st.characters()
    ),
    min_size=1,
    max_size=150,
)


@st.composite
def hints_of(draw: st.DrawFn, source: str) -> Hint:
    target = draw(TEXT)
    spans = []
    for text in (source, target):
        start = draw(st.integers(0, len(text) - 1))
        spans.append(Span(start, draw(st.integers(start + 1, len(text)))))
    return Hint(spans[0], Hit(Sentence(target, "en", Origin(draw(TEXT), 3)), spans[1], draw(st.floats())))


@settings(max_examples=150, deadline=None)
@given(st.data(), TEXT, st.integers(LEAST, 120), st.booleans(), st.sampled_from(["confidence", "cosine", "BM25"]))
def test_no_text_breaks_the_picture(data: st.DataObject, source: str, columns: int, plain: bool, kind: str) -> None:
    hints = tuple(data.draw(st.lists(hints_of(source), max_size=4)))
    translation = Translation(Sentence(source, "xx"), data.draw(TEXT), hints, used=(True,) * len(hints))
    if data.draw(st.booleans()):
        own = Recalled(hints, data.draw(st.booleans()))
        translation = replace(translation, draft=data.draw(TEXT), recalled=own)
    style = Style(columns, plain)
    lines = picture(translation, kind, style).split("\n")
    assert max(map(width, lines)) <= columns
    assert all(len(line.splitlines()) <= 1 and "\x1b" not in line for line in lines)
    heads = [n for n, line in enumerate(lines) if re.match(r" \d [█▏▎▍▌▋▊▉#. ]{8} ", line)]
    assert len(heads) >= len(hints), "a line for each hint, whatever the text"
    without = picture(replace(translation, hints=(), used=(), recalled=None), kind, style).split("\n")
    assert len(lines) >= len(without) + 2 * len(hints)


def test_findings_are_lines_without_controls() -> None:
    findings = [
        Finding("placeholders", "error", "placeholder lost: <a\x1b[31m>"),
        Finding("ends", "warning", "x " * 80),
    ]
    first, *others = finding_lines(findings, Style())
    assert first.startswith("  check: error: placeholder lost: <a") and first.endswith("[placeholders]")
    assert "\x1b" not in first and len(others) > 1 and all(width(line) <= USUAL for line in others)
