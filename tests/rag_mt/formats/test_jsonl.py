"""JSON Lines: which field is read, and records that keep their bytes while they grow."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_mt.base.types import Hint, Hit, Origin, Sentence, Skips, Span, TranslatedText, Translation
from rag_mt.formats.format import Side
from rag_mt.formats.lines import JSONL
from rag_mt.text.splitting import split

DE = Side("de")
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False),
        st.text(st.characters(exclude_categories=["Cs"])),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)


def records(folder: Path, *lines: str) -> Path:
    path = folder / "records.jsonl"
    path.write_bytes("\n".join(lines).encode())
    return path


def filled(path: Path, side: Side, translations: list[TranslatedText]) -> str:
    out = io.BytesIO()
    items = iter(translations)
    JSONL.fill(path, replace(side, target="en"), items, out)
    assert next(items, None) is None, "fill takes one translation per segment"
    return out.getvalue().decode()


@pytest.mark.parametrize(
    ("record", "side", "text"),
    [
        ('{"text": "a", "de": "b"}', DE, "b"),
        ('{"source": "web", "text": "a"}', DE, "a"),
        ('{"src": "a", "sentence": "b"}', DE, "a"),
        ('{"translation": {"de": "a", "en": "b"}, "text": "c"}', DE, "a"),
        ('{"translation": {"de": "a", "en": "b"}}', Side("en"), "b"),
        ('{"de": "a"}', Side("de-AT"), "a"),
        ('{"title": "a", "text": "b"}', Side("de", "title"), "a"),
        ('{"title": {"de": "a"}}', Side("de", "title"), "a"),
        ('{"translation": {"x": "a"}}', Side("de", "x"), "a"),
        ('{"text": "zwei\\nZeilen \\u00e4"}', DE, "zwei\nZeilen ä"),
    ],
)
def test_the_field(tmp_path: Path, record: str, side: Side, text: str) -> None:
    (segment,) = JSONL.segments(records(tmp_path, record), side, Skips())
    assert segment.text == text and segment.origin.line == 1


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"text": ', "not a JSON object"),
        ('["text"]', "not a JSON object"),
        ("[" * 100_000, "not a JSON object"),
        ('{"text": ' + "1" * 5000 + "}", "not a JSON object"),
        ('{"body": "a"}', "no field 'de' or 'text'"),
        ('{"text": 7}', "no field 'de' or 'text'"),
        ('{"text": "bell \\u0007"}', "control character"),
        ('{"text": "\\ud800"}', "noncharacter or unpaired surrogate"),
    ],
)
def test_bad_records_are_skips_and_stay_as_they_are(tmp_path: Path, line: str, reason: str) -> None:
    path, skips = records(tmp_path, line, '{"text": "gut"}', '{"text": " "}', ""), Skips(shown=0)
    assert [s.text for s in JSONL.segments(path, DE, skips)] == ["gut"]
    assert skips.counts == {reason: 1}
    after = filled(path, DE, [TranslatedText("good")]).split("\n")
    assert after[0] == line and json.loads(after[1])["translation"] == "good" and after[2:] == ['{"text": " "}', ""]


def test_hints_say_what_where_and_whether_used(tmp_path: Path) -> None:
    text = "Die EZB. Die Bank sinkt. "
    path = records(tmp_path, json.dumps({"text": text}))
    hit = Hit(Sentence("The central bank acts.", "en", Origin("news.txt", 7)), Span(4, 16), 0.5)
    sentences = [Sentence(span.of(text), "de") for span in split(text, "de")]
    parts = (
        Translation(sentences[0], "The ECB.", notes=("a note",)),
        Translation(sentences[1], "The bank sinks.", (Hint(Span(4, 8), hit),), used=(False,)),
    )
    (line,) = filled(path, DE, [TranslatedText("The ECB. The bank sinks. ", parts)]).split("\n")
    added = json.loads(line)
    assert added == {
        "text": text,
        "translation": "The ECB. The bank sinks. ",
        "hints": [
            {
                "source": "Bank",
                "source_span": [13, 17],
                "phrase": "central bank",
                "context": "The [[central bank]] acts.",
                "score": 0.5,
                "file": "news.txt",
                "line": 7,
                "used": False,
            }
        ],
        "notes": ["a note"],
    }
    assert Span(*added["hints"][0]["source_span"]).of(text) == "Bank"


def test_names_that_are_taken(tmp_path: Path) -> None:
    path = records(tmp_path, '{"translation": {"de": "a"}, "hints": 1, "hints_en": 2}')
    after = json.loads(filled(path, DE, [TranslatedText("ä")]))
    assert after == {
        "translation": {"de": "a"},
        "hints": 1,
        "hints_en": 2,
        "translation_en": "ä",
        "hints_en_2": [],
        "notes": [],
    }


def test_the_record_keeps_its_own_spelling(tmp_path: Path) -> None:
    record = '\ufeff {"a":1.0e5, "text" : "\\u00e4","n":12345678901234567890123, "a": 2 }  \r'
    after = filled(records(tmp_path, record), DE, [TranslatedText("ü\nö")])
    assert after == record[:-4] + ', "translation": "ü\\nö", "hints": [], "notes": []}  \r'


@given(rows=st.lists(st.dictionaries(st.sampled_from(["text", "de", "x", "translation", "notes"]), VALUES)))
def test_everything_else_in_a_record_stays(rows: list[dict[str, object]]) -> None:
    with TemporaryDirectory() as folder:
        path = records(Path(folder), *map(json.dumps, rows))
        segments = list(JSONL.segments(path, DE, Skips(shown=0)))
        lines = filled(path, DE, [TranslatedText(s.text) for s in segments]).split("\n") if rows else []
    found = {segment.origin.line: segment.text for segment in segments}
    for number, (row, line) in enumerate(zip(rows, lines, strict=True), 1):
        after = json.loads(line)
        assert {key: after[key] for key in row} == row
        assert (len(after) - len(row), number in found) in [(0, False), (3, True)]
        assert number not in found or found[number] in after.values()
