"""Glossaries of several files, memories as glossaries, files of other kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from rag_mt.base.errors import UserError
from rag_mt.base.terms import Term
from rag_mt.base.types import Skips
from rag_mt.glossary.phrases import word_count
from rag_mt.glossary.reading import read_glossary


def memory(folder: Path, *pairs: tuple[str, str]) -> Path:
    units = "\n".join(
        f'<tu><tuv xml:lang="de-DE"><seg>{a}</seg></tuv><tuv xml:lang="en"><seg>{b}</seg></tuv></tu>' for a, b in pairs
    )
    path = folder / "terms.tmx"
    path.write_text(f'<tmx version="1.4"><header/><body>\n{units}\n</body></tmx>', "utf-8")
    return path


def test_short_units_of_a_memory_are_terms(tmp_path: Path) -> None:
    skips = Skips(shown=0)
    eight, nine = "a b c d e f g h", "a b c d e f g h i"
    pairs = [
        ("<hi>Haus</hi>", "house"),
        ("Haus", "home"),
        (eight, "x"),
        (nine, "x"),
        ("x", nine),
        (" ", "dog"),
        ("–", "x"),
    ]
    glossary = read_glossary([memory(tmp_path, *pairs)], "de", "en", skips)
    assert [(t.source, t.allowed, t.origin.line) for t in glossary.terms] == [
        ("Haus", ("house", "home"), 2),
        (eight, ("x",), 4),
    ]
    assert skips.counts == {"more than 8 words": 2, "no de side": 1, "no letter or digit": 1}


@pytest.mark.parametrize(("text", "words"), [("", 0), ("E-Mail an Eva", 4), ("数据库", 2), ("数据库 SQL", 3), ("-", 0)])
def test_words_of_a_term(text: str, words: int) -> None:
    assert word_count(text) == words


def test_several_files_make_one_glossary(tmp_path: Path) -> None:
    table = tmp_path / "terms.csv"
    table.write_text("de,en,forbidden\nHaus,home,house\nHund,dog,\n")
    skips = Skips(shown=0)
    glossary = read_glossary([memory(tmp_path, ("Haus", "house")), table], "German", "English", skips)
    assert [(t.source, t.allowed, t.forbidden) for t in glossary.terms] == [
        ("Haus", ("home",), ()),
        ("Hund", ("dog",), ()),
    ]
    assert (glossary.source, glossary.target, len(glossary)) == ("de", "en", 2)
    assert skips.counts == {"translation both allowed and forbidden": 1}


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("terms.xlsx", "x", "its suffix is .xlsx, expected one of .csv .tsv .tab .tbx .tmx; save it as"),
        ("terms", "x", "its suffix is missing, expected one of"),
        ("terms.csv.bz2", "x", "its suffix is .bz2"),
        ("terms.tmx", "<tmx><header/><body><tu/></body></tmx>", "has no term in de with a translation into en"),
        ("terms.tmx", "<tbx/>", "root element is <tbx>, expected <tmx>"),
        ("terms.tmx", '<!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/hostname">]><tmx>&x;</tmx>', "could be an attack"),
    ],
)
def test_what_is_no_glossary_is_told_in_a_sentence(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UserError, match=sentence):
        read_glossary([path], "de", "en", Skips(shown=0))


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".tbx", ".tmx"])
def test_a_file_that_is_not_there(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(UserError, match="does not exist: check its name"):
        read_glossary([tmp_path / f"terms{suffix}"], "de", "en", Skips(shown=0))
    (tmp_path / f"folder{suffix}").mkdir()
    with pytest.raises(UserError, match="is a folder"):
        read_glossary([tmp_path / f"folder{suffix}"], "de", "en", Skips(shown=0))


def test_an_unknown_language() -> None:
    with pytest.raises(UserError, match="unknown language"):
        read_glossary([], "klingonisch", "en", Skips(shown=0))


def test_a_term_has_a_translation() -> None:
    with pytest.raises(ValueError, match="'Haus' has no translation"):
        Term("Haus", "de", "en")
