"""Glossaries in CSV and TSV: columns, alternatives, quotes, and rows that cannot be used."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_mt.base.errors import UserError
from rag_mt.base.terms import Term
from rag_mt.base.types import Origin, Skips
from rag_mt.glossary.reading import read_glossary

CELLS = st.text("ab ä\"',\n\t.=漢", max_size=8)


def terms(
    folder: Path, text: str | bytes, name: str = "terms.csv", pair: str = "de-en", skips: Skips | None = None
) -> list[Term]:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    source, target = pair.split("-")
    return list(read_glossary([path], source, target, skips or Skips(shown=0)).terms)


def brief(found: list[Term]) -> list[str]:
    return [f"{t.source}={'|'.join(t.allowed)}" + "".join(f"!{f}" for f in t.forbidden) for t in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("de,en\nHaus,house\n", ["Haus=house"]),
        ("en,de\nhouse,Haus\n", ["Haus=house"]),
        ("\ufeffde;en\r\nHaus;house\r\n", ["Haus=house"]),
        ("German\tEnglish\nHaus\thouse\n", ["Haus=house"]),
        ("Deutsch,English\nHaus,house\n", ["Haus=house"]),
        ("German (Germany),English (US)\nHaus,house\n", ["Haus=house"]),
        ("id,de-DE,en_GB,fr\n1,Haus,house,maison\n", ["Haus=house"]),
        ("de-AT,de,en-US\nHaus A,Haus,house\n", ["Haus=house"]),
        ("Source,Target\nHaus,house\n", ["Haus=house"]),
        ("term;translation\nHaus;house\n", ["Haus=house"]),
        ("translation,term\nhouse,Haus\n", ["Haus=house"]),
        ("sep=;\nde;en\nHaus, alt;house\n", ["Haus, alt=house"]),
        ("Haus,house\nHund,dog,bellt\n", ["Haus=house", "Hund=dog"]),
        ("Haus;house, home\nHund;dog\n", ["Haus=house, home", "Hund=dog"]),
        ("IT,IT\n", ["IT=IT"]),
        ("Deutsch,German\n", ["Deutsch=German"]),
        ("de,en\nHaus,house|home\n", ["Haus=house|home"]),
        ("de,en\nHaus,house; home ;house\n", ["Haus=house|home"]),
        ("de;en\nHaus;house|home\n", ["Haus=house|home"]),
        ("de;en\nHaus;house\nHund;dog\nHaus;home\n", ["Haus=house|home", "Hund=dog"]),
        ("de,en\nHaus|Gebäude,house\n", ["Haus=house", "Gebäude=house"]),
        ('de,en\n"Haus, das","a ""big""\nhouse"\n', ['Haus, das=a "big" house']),
        ("de,en,forbidden\nHaus,house,hose|\n", ["Haus=house!hose"]),
        ("de,en,forbidden\nHaus,,hose\n", ["Haus=!hose"]),
        ("source,target,forbidden\nHaus,house,hose\n", ["Haus=house!hose"]),
        ("en,forbidden,de\nhouse,hose,Haus\n", ["Haus=house!hose"]),
        ("en,de,forbidden\nhouse,Haus,Bude\n", ["Haus=house"]),
        ("en,de,forbidden en\nhouse,Haus,hose\n", ["Haus=house!hose"]),
        ("\n\nde,en\n\nHaus,house\n,\n", ["Haus=house"]),
        ("de,en\n  Haus \u00a0 am See ,house\n", ["Haus am See=house"]),
    ],
)
def test_what_a_table_says(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert brief(terms(tmp_path, text)) == expected


@pytest.mark.parametrize("name", ["terms.tsv", "terms.tab", "TERMS.TSV"])
def test_tabs_separate_in_a_tsv_and_semicolons_alternatives(tmp_path: Path, name: str) -> None:
    assert brief(terms(tmp_path, "de\ten\nHaus, das\thouse;home\n", name)) == ["Haus, das=house|home"]


def test_compressed_tables_are_read(tmp_path: Path) -> None:
    assert brief(terms(tmp_path, gzip.compress(b"de,en\nHaus,house\n"), "terms.csv.gz")) == ["Haus=house"]


def test_a_table_of_three_languages_serves_all_directions(tmp_path: Path) -> None:
    text = "de,en,fr\nHaus,house|home,maison\n"
    assert brief(terms(tmp_path, text, pair="en-fr")) == ["house=maison", "home=maison"]
    assert brief(terms(tmp_path, text, pair="fr-de")) == ["maison=Haus"]
    assert brief(terms(tmp_path, text, pair="German-French")) == ["Haus=maison"]


def test_notes_letter_case_and_origins(tmp_path: Path) -> None:
    text = "de,Case sensitive,en,Note,Comment\nHaus,x,house,ein  Wort,auch\nHund,No,dog,,\nHaus,yes,home,mehr,\n"
    first, second = terms(tmp_path, text)
    assert (first.note, first.case_sensitive, first.allowed) == ("ein Wort; auch; mehr", True, ("house", "home"))
    assert (second.note, second.case_sensitive) == ("", False)
    assert first.origin == Origin(str(tmp_path / "terms.csv"), 2)
    assert (first.source_language, first.target_language) == ("de", "en")
    assert terms(tmp_path, "Haus,house,ein Wort\n")[0].note == "ein Wort"


def test_equal_terms_are_merged_whatever_their_letter_case_but_abbreviations_are_not(tmp_path: Path) -> None:
    text = "en,de\nComputer,Rechner\ncomputer,rechner\ncomputer,Computer\nIT,IT\nit,es\n"
    assert brief(terms(tmp_path, text, pair="en-de")) == ["Computer=Rechner|Computer", "IT=IT", "it=es"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("Hund", "no translation"),
        (",dog", "no term"),
        ("|,dog", "no term"),
        ("Hund,", "no translation"),
        ("Hund,dog,,maybe", "neither yes nor no in the column for letter case"),
        ("Hund,***", "no letter or digit"),
        (f"Hund,{'d' * 201}", "longer than 200 characters"),
        ("Hund,d\x01og", "control character"),
        (b"H\xfcnde,dogs", "not valid UTF-8"),
        ('"Hund,dog', "quote that is not closed"),
        ('"Hund"e,dog', "quotes that do not enclose a cell"),
        ("Hund,dog,Dog,", "translation both allowed and forbidden"),
        ("x," * 60_000, "over-long line"),
    ],
)
def test_a_bad_row_is_a_skip_and_the_rest_goes_on(
    tmp_path: Path, row: str | bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    data = row if isinstance(row, bytes) else row.encode()
    skips = Skips()
    found = terms(tmp_path, b"de,en,forbidden,case\nHaus,house\n" + data + b"\nKatze,cat\n", skips=skips)
    assert brief(found) == ["Haus=house", "Katze=cat"]
    assert skips.counts == {reason: 1}
    assert [record.getMessage() for record in caplog.records] == [f"{tmp_path / 'terms.csv'}:3: {reason}"]


def test_a_row_without_the_source_column_is_a_skip(tmp_path: Path) -> None:
    skips = Skips(shown=0)
    assert brief(terms(tmp_path, "en,de\nhouse,Haus\ndog\n", skips=skips)) == ["Haus=house"]
    assert skips.counts == {"too few cells": 1}


def test_a_translation_that_other_rows_forbid_is_neither_wanted_nor_forbidden(tmp_path: Path) -> None:
    skips = Skips(shown=0)
    text = "de,en,forbidden\nHaus,house|home,\nHaus,,home\nHund,dog,\nHund,,dog\n"
    assert brief(terms(tmp_path, text, skips=skips)) == ["Haus=house"]
    assert skips.counts == {"translation both allowed and forbidden": 2}


def test_forbidden_words_of_another_language_are_told(tmp_path: Path) -> None:
    skips = Skips(shown=0)
    terms(tmp_path, "en,de,forbidden\nhouse,Haus,Bude\n", skips=skips)
    assert skips.remarks == ["its column 3 forbids words that are not en: it is left out"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("de,fr\nHaus,maison\n", r"no columns for German \(`de`\) and English \(`en`\): its first row names de, fr"),
        ("source,de\nHaus,maison\n", "no columns for German"),
        ("note,de,French,forbidden\nx,Haus,maison,y\n", "no columns for German"),
        ("", "has no term in de with a translation into en"),
        ("de,en\n", "has no term in de"),
        ("Haus\nHund\n", "has no term in de"),
        (b"\xff\xfeH\x00", "looks like UTF-16 text"),
        (b"PK\x03\x04abc", "looks like a ZIP archive"),
        (b"de,en\nHaus\x00,house\n", "holds NUL bytes"),
        ("München,Munich\n".encode("latin-1"), "first line of .* cannot be read"),
        (b",".join([b"a"] * 100_000) + b"\nde,en\n", "first line of .* cannot be read"),
        (b"\x1f\x8bxx", "damaged or truncated .gz"),
    ],
)
def test_what_is_no_glossary_is_told_in_a_sentence(tmp_path: Path, text: str | bytes, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        terms(tmp_path, text)
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "terms.csv") in str(caught.value)


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=6), st.sampled_from(",;\t"))
def test_a_written_table_is_read_again(pairs: list[tuple[str, str]], delimiter: str) -> None:
    rows = [(f"A{number}{one}", f"b{other}") for number, (one, other) in enumerate(pairs)]
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows([("source", "target"), *rows])
    with TemporaryDirectory() as folder:
        found = terms(Path(folder), out.getvalue(), "terms.tsv" if delimiter == "\t" else "terms.csv")
    assert [(t.source, *t.allowed) for t in found] == [tuple(" ".join(cell.split()) for cell in row) for row in rows]
