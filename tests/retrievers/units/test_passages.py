"""Passages: offsets into documents, titles, files, and the windows that prompts quote."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_mt.base.types import Skips, Span
from retrievers.units.passages import PassageUnits, on_one_line, passage_spans, read_passages, titled, windows

TEXT = "First one here. Second has four words. Third. A fourth sentence that is rather long for its passage. End."


def test_passages_are_whole_sentences():
    spans = passage_spans(TEXT, "en", words=8)
    assert [span.of(TEXT) for span in spans] == [
        "First one here. Second has four words. Third.",
        "A fourth sentence that is rather long for its passage.",
        "End.",
    ]


@given(st.text(alphabet="ab .!?\n", max_size=300), st.integers(1, 12))
def test_passages_are_disjoint_and_hold_every_word(text, words):
    spans = passage_spans(text, "en", words)
    assert all(a.end <= b.start for a, b in pairwise(spans))
    inside = " ".join(span.of(text) for span in spans).split()
    assert [w for w in inside if w.isalnum()] == [w for w in text.split() if w.isalnum()]
    assert all(len(s.of(text).split()) <= words or len(passage_spans(s.of(text), "en", words)) == 1 for s in spans)


@given(st.text())
def test_on_one_line_keeps_offsets(text):
    made = on_one_line(text)
    assert len(made) == len(text) and len(made.splitlines()) <= 1
    assert all(a == b or b == " " for a, b in zip(text, made, strict=True))


def written(tmp_path, text, name="doc.txt"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_headings_of_a_text_file_are_titles(tmp_path):
    file = written(
        tmp_path,
        "The Old Bridge\nIt was built in 1870. It is closed now.\nTrams use another one.\n\n"
        "Below a blank line.\nCity Council News\nThe council met on Monday.\n",
    )
    found = list(read_passages([file], "en", skips=Skips(shown=0)))
    assert [(s.text, s.source.line) for s in found] == [
        ("The Old Bridge\nIt was built in 1870. It is closed now. Trams use another one.", 2),
        ("The Old Bridge\nBelow a blank line.", 5),
        ("City Council News\nThe council met on Monday.", 7),
    ]


def test_headings_with_nothing_below_them_are_passages(tmp_path):
    file = written(tmp_path, "Part One\nThe Old Bridge\nIt was built in 1870.\nOpening Hours\n")
    found = list(read_passages([file], "en", skips=Skips(shown=0)))
    assert [(s.text, s.source.line) for s in found] == [
        ("Part One", 1),
        ("The Old Bridge\nIt was built in 1870.", 3),
        ("Opening Hours", 4),
    ]


@given(
    st.lists(st.sampled_from(["", "A Heading", "1 Heading", "Text of a sentence.", "über die Straße", "द्वितीय पंक्ति।"]))
)
def test_no_line_of_a_text_file_is_lost(tmp_path_factory, lines):
    file = written(tmp_path_factory.mktemp("lines"), "\n".join(lines) + "\n")
    found = " ".join(s.text.replace("\n", " ") for s in read_passages([file], "en", skips=Skips(shown=0)))
    assert all(line in found for line in lines)


def test_cells_are_documents_and_unsplit_ones_passages(tmp_path):
    file = written(tmp_path, "1\tOne thing. Another thing.\n2\tA third one.\n", "t.tsv")
    found = list(read_passages([file], "en", column="2", words=2, skips=Skips(shown=0)))
    assert [s.text for s in found] == ["One thing.", "Another thing.", "A third one."]
    whole = list(read_passages([file], "en", column="2", words=2, split=False, skips=Skips(shown=0)))
    assert [s.text for s in whole] == ["One thing. Another thing.", "A third one."]


def test_a_first_line_that_is_a_heading_names_a_field(tmp_path):
    file = written(tmp_path, '{"en": "The Old Bridge\\nIt was built in 1870."}\n', "t.jsonl")
    found = list(read_passages([file], "en", skips=Skips(shown=0)))
    assert [s.text for s in found] == ["The Old Bridge\nIt was built in 1870."]


def test_passages_of_a_record_are_known_by_where_they_begin(tmp_path):
    text = "\n The Old Bridge\nIt was built in 1870. It is closed now.\nTrams use another one."
    file = written(tmp_path, json.dumps({"en": text}) + "\n", "t.jsonl")
    found = list(read_passages([file], "en", words=5, skips=Skips(shown=0)))
    bodies = [s.text.partition("\n")[2] for s in found]
    assert len(found) == 3
    assert [text[s.source.start :].startswith(body) for s, body in zip(found, bodies, strict=True)] == [True] * 3
    assert str(found[1].source) == f"{found[1].source.file}:1+{found[1].source.start}"


def test_the_unit_is_the_text_and_the_vector_knows_the_title(fake):
    encoder = fake()
    texts = [titled("A title", "The text."), "No title."]
    vectors, spans = PassageUnits(encoder).units(texts, "passage")
    assert spans.tolist() == [[0, 8, 17], [1, 0, 9]]
    assert np.array_equal(vectors, encoder.encode(["A title. The text.", "No title."]))
    assert PassageUnits(encoder).units(["a\nb"], "query")[1].tolist() == [[0, 0, 3]]


@given(st.text(alphabet="abc de", min_size=1, max_size=400), st.integers(0, 20), st.integers(8, 60))
def test_windows_fit_hold_whole_words_and_cover_the_passage(text, start, limit):
    span = Span(min(start, len(text)), len(text))
    found = windows(text, span, limit)
    assert all(len(w) <= max(limit - 6, 0) or w == span for w in found)
    assert all(span.start <= w.start <= w.end <= span.end for w in found)
    if len(span) > limit and max(map(len, text.split()), default=0) <= (limit - 6) // 3:
        assert all(w.of(text) == w.of(text).strip() for w in found)
        covered = {n for w in found for n in range(w.start, w.end)}
        assert all(n in covered for n in range(span.start, span.end) if text[n] != " ")


def test_a_passage_that_fits_is_its_own_window():
    assert windows("A short passage.", Span(2, 16), 100) == [Span(2, 16)]


@pytest.mark.parametrize("limit", [7, 10])
def test_a_word_that_does_not_fit_is_cut(limit):
    assert windows("x" * 50, Span(0, 50), limit)[0] == Span(0, limit - 6)
