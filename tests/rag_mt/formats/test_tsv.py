"""Tables: which column is read, and translations in a new last column."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rag_mt.base.errors import UserError
from rag_mt.base.types import Skips, TranslatedText
from rag_mt.formats.format import Side
from rag_mt.formats.lines import HEADS, TSV

CELLS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"]), max_size=8)


def table(folder: Path, text: str) -> Path:
    path = folder / "table.tsv"
    path.write_bytes(text.encode())
    return path


def texts(path: Path, side: Side, skips: Skips | None = None) -> list[str]:
    return [segment.text for segment in TSV.segments(path, side, skips or Skips(shown=0))]


def filled(path: Path, side: Side, translations: list[str]) -> str:
    out = io.BytesIO()
    items = iter([TranslatedText(t) for t in translations])
    TSV.fill(path, replace(side, target="en"), items, out)
    assert next(items, None) is None, "fill takes one translation per segment"
    return out.getvalue().decode()


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [
        ("Hallo\tciao\nWelt\tmondo\n", "", ["Hallo", "Welt"]),
        ("Hallo\tciao\nWelt\tmondo\n", "2", ["ciao", "mondo"]),
        ("it\tDE\nciao\tHallo\n", "", ["Hallo"]),
        ("Italian\tGerman \nciao\tHallo\n", "", ["Hallo"]),
        ("it\tde\nciao\tHallo\n", "2", ["Hallo"]),
        ("it\tde\nciao\tHallo\n", "1", ["ciao"]),
        ("id\tdeutsch\n7\tHallo\n", "2", ["Hallo"]),
        ("id\tdeutsch\nsieben\tHallo\n", "", ["Hallo"]),
        ("id\ttitle\n7\tHallo\n", "Title", ["Hallo"]),
        ("\ufeffde\tit\r\nHallo\tciao\r\n", "", ["Hallo"]),
        ('"Er sagte ""ja""\t"\n', "", ['"Er sagte ""ja""']),
        ("a\u2028b\tc\n", "", ["a\u2028b"]),
        ("", "", []),
    ],
)
def test_the_column(tmp_path: Path, text: str, column: str, expected: list[str]) -> None:
    assert texts(table(tmp_path, text), Side("de", column)) == expected


@pytest.mark.parametrize(("column", "sentence"), [("nope", r"no column 'nope'.*\(it, de\)"), ("0", "counted from 1")])
def test_columns_that_are_not_there(tmp_path: Path, column: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        texts(table(tmp_path, "it\tde\nciao\tHallo\n"), Side("de", column))


def test_fill_appends_a_column_and_leaves_skipped_rows_alone(tmp_path: Path) -> None:
    path, side, skips = (
        table(tmp_path, "it\tde\r\nciao\tHallo\r\n\r\nsolo\nvuoto\t \nfine\tEnde"),
        Side("de"),
        Skips(shown=0),
    )
    assert texts(path, side, skips) == ["Hallo", "Ende"]
    assert skips.counts == {"too few cells": 1}
    assert filled(path, side, ["Hello\tthere\n", "End"]) == (
        "it\tde\ten\r\nciao\tHallo\tHello there \r\n\r\nsolo\nvuoto\t \t\nfine\tEnde\tEnd"
    )


@given(
    rows=st.lists(st.lists(CELLS, min_size=1, max_size=3).map("\t".join)),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    column=st.sampled_from(["1", "2", "3"]),
)
def test_without_the_new_column_the_file_is_as_before(rows: list[str], end: str, column: str) -> None:
    assume(not any(cell.strip().casefold() in HEADS | {"de", "german"} for row in rows for cell in row.split("\t")))
    with TemporaryDirectory() as folder:
        path, side = table(Path(folder), end.join(rows)), Side("de", column)
        cells = texts(path, side)
        after = filled(path, side, cells).split(end)
    index, left, width = int(column) - 1, iter(cells), 0
    for before, row in zip(end.join(rows).split(end), after, strict=True):
        old = before.removeprefix("\ufeff").split("\t")
        width = width or (len(old) if any(old) or len(old) > 1 else 0)  # the first row with something in it
        if not before.removeprefix("\ufeff") or len(old) <= index:
            assert row == before
        else:
            old += [""] * (width - len(old))
            old.insert(width, next(left) if old[index].strip() else "")
            assert row == ("\ufeff" if before.startswith("\ufeff") else "") + "\t".join(old)
    assert next(left, None) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("de\tEN\ttranslation\nTschüss\n", "de\tEN\ttranslation\ttranslation_en\nTschüss\t\t\tBye\n"),
        ("de\tit\n \nTschüss\n", "de\tit\ten\n \t\t\nTschüss\t\tBye\n"),
        (" \tciao\nTschüss\n", " \tciao\t\nTschüss\t\tBye\n"),
    ],
)
def test_short_rows_and_taken_names(tmp_path: Path, before: str, after: str) -> None:
    assert filled(table(tmp_path, before), Side("de"), ["Bye"]) == after


def test_the_new_column_is_one_column(tmp_path: Path) -> None:
    """Rows with missing cells are padded, and a header that is there already is not repeated."""
    file = table(tmp_path, "de\ten\nHallo\tHello\nTschüss\n")
    out = io.BytesIO()
    TSV.fill(file, Side("de", target="en"), iter([TranslatedText("Hi"), TranslatedText("Bye")]), out)
    assert out.getvalue().decode().splitlines()[0].split("\t")[:2] == ["de", "en"]
    assert [line.split("\t")[2] for line in out.getvalue().decode().splitlines()] == ["translation", "Hi", "Bye"]


def test_translations_share_a_column_whatever_the_rows_hold(tmp_path: Path) -> None:
    file = table(tmp_path, "id\tde\n1\tHallo\textra\tmehr\n2\tTschüss\n")
    assert filled(file, Side("de"), ["Hi", "Bye"]) == "id\tde\ten\n1\tHallo\tHi\textra\tmehr\n2\tTschüss\tBye\n"


def test_a_guessed_column_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = table(tmp_path, "id\twording\n7\tHallo\n")
    list(TSV.segments(file, Side("de"), Skips()))
    assert "none of its 2 columns is named de, so column 1 (id) is read: give another with --column" in caplog.text
    caplog.clear()
    list(TSV.segments(file, Side("de", "2"), Skips()))
    list(TSV.segments(file, Side("de"), Skips(shown=0)))
    assert not caplog.text
    file = table(tmp_path, "id\tDeutsch\n7\tHallo\n")
    assert [segment.text for segment in TSV.segments(file, Side("de"), Skips())] == ["Hallo"], "its own name"
    assert not caplog.text
