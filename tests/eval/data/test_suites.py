"""Suites: the sentences of every direction, and samples that are parts of each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.data.suites import QUICK, Cell, file_rows, open_suite, sample
from rag_mt.base.errors import UserError
from rag_mt.base.languages import DIRECTIONS, direction_group
from rag_mt.base.types import Origin, Skips
from rag_mt.formats.format import Segment, Side

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@settings(max_examples=50)
@given(st.lists(st.tuples(texts, texts), max_size=30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 5))
def test_a_smaller_limit_is_part_of_a_larger_one(
    pairs: list[tuple[str, str]], first: int, second: int, seed: int
) -> None:
    rows = [(n, *pair) for n, pair in enumerate(pairs, 1)]
    small, large = (sample(rows, limit, seed) for limit in sorted((first, second)))
    assert len(small) == min(first, second, len(rows))
    assert set(small) <= set(large)
    assert small == sorted(small)
    turned = sample([(n, b, a) for n, a, b in rows], min(first, second), seed)
    assert [row[0] for row in turned] == [row[0] for row in small]
    assert sample(rows, None) == rows


def test_seeds_draw_other_samples() -> None:
    rows = [(n, f"a{n}", f"b{n}") for n in range(200)]
    assert sample(rows, 20, 1) != sample(rows, 20, 2)
    later = set(sample(rows, 20)) & set(rows[50:])
    assert later and later <= set(sample(rows[50:], 20)), "a pair's luck does not depend on the others"


def test_the_sample_corpus_has_all_directions_and_says_what_it_is() -> None:
    suite = open_suite("sample")
    assert suite.quick and suite.label == QUICK
    assert tuple(cell[:2] for cell in suite.cells) == DIRECTIONS
    there, back = suite.part("de", "en", 5), suite.part("en", "de", 5)
    assert there.sources == back.references and there.references == back.sources
    assert there.sha256 != back.sha256 and len(there.sources) == 5 < there.available
    assert suite.part("de", "en", 3).sha256 != there.sha256


def test_wmt16_is_read_from_a_folder(tmp_path: Path) -> None:
    for name, split in (("wmt16", "test"), ("dev", "dev")):
        (tmp_path / split).mkdir()
        (tmp_path / split / "fi-en.tsv").write_text("A dog.\tKoira.\n\tvain suomeksi\nA cat.\tKissa.\textra\n")
        suite = open_suite(name, tmp_path)
        assert suite.part("fi", "en").sources == ("Koira.", "Kissa.")
        part = suite.part("en", "fi")
        assert (part.sources, part.references, part.lines) == (("A dog.", "A cat."), ("Koira.", "Kissa."), (1, 3))
        with pytest.raises(UserError, match=r"de-en.tsv.*--data DIR"):
            suite.part("de", "en")


def test_the_hub_cannot_be_reached_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    with pytest.raises(UserError, match=r"hf:wmt16/de-en@test: give --data DIR with test/de-en.tsv") as caught:
        open_suite("wmt16").part("de", "en")
    assert "\n" not in str(caught.value)


def test_the_hub_has_other_translations_behind_the_finnish_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(name: str, side: Side, skips: Skips) -> Iterator[Segment]:
        assert name == "hf:wmt16/fi-en@test"
        yield from (Segment(f"{side.language} {n}", Origin(name, n)) for n in range(1, 6001))

    monkeypatch.setattr("eval.data.suites.hub_segments", rows)
    part = open_suite("wmt16").part("fi", "en")
    assert (part.available, part.lines[-1], part.references[-1]) == (3000, 3000, "en 3000")


def test_directions_are_chosen_by_name() -> None:
    suite = open_suite("sample")
    assert suite.chosen("en-ru,de-en,en-ru") == (Cell("en", "ru"), Cell("de", "en"))
    with pytest.raises(UserError, match="'de-fr'"):
        suite.chosen("de-fr")
    assert [direction_group(*d) for d in (("de", "en"), ("en-GB", "de"), ("de", "fr"))] == ["to_en", "from_en", "other"]


def test_a_table_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "my.tsv"
    path.write_text("id\tGerman\ten\n1\tHund\tdog\n2\t\tcat\n3\tMaus\tmouse\n", encoding="utf-8")
    assert file_rows(path, "de", "en") == [(2, "Hund", "dog"), (4, "Maus", "mouse")]
    assert file_rows(path, "en", "de") == [(2, "dog", "Hund"), (4, "mouse", "Maus")]
    assert file_rows(path, "de", "en", "2,3")[0] == (2, "Hund", "dog")
    path.write_text("Hund\tdog\nKatze\tcat\n", encoding="utf-8")
    assert file_rows(path, "de", "en") == [(1, "Hund", "dog"), (2, "Katze", "cat")]
    for heads in ("source\ttarget", "Src\tRef", "de\ttranslation"):
        path.write_text(f"{heads}\nHund\tdog\n", encoding="utf-8")
        assert file_rows(path, "de", "en") == [(2, "Hund", "dog")]
    path.write_text("Hund\tdog\nKatze\tcat\n", encoding="utf-8")
    suite = open_suite(str(path), source="German", target="en")
    assert suite.cells == (Cell("de", "en"),) and suite.name == "my.tsv"
    for columns in ("1", "1,2,3"):
        with pytest.raises(UserError, match="two columns"):
            file_rows(path, "de", "en", columns)
    with pytest.raises(UserError, match="--src LANG"):
        open_suite(str(path))
    other = tmp_path / "my.txt"
    other.write_text("Hund\n")
    with pytest.raises(UserError, match=r"give a TSV \(.tsv\) or TMX"):
        file_rows(other, "de", "en")


def test_headers_and_half_rows_of_columns_by_number(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "my.tsv"
    path.write_text("source\ttarget\nHund\tdog\n\tcat\nMaus\n", encoding="utf-8")
    with caplog.at_level("WARNING", "rag_mt"):
        assert file_rows(path, "de", "en", "1,2") == [(2, "Hund", "dog")]
    assert "my.tsv:3: text on one side only" in caplog.text and "skipped" in caplog.text
    path.write_text("source\tof light\nHund\tdog\n", encoding="utf-8")
    assert len(file_rows(path, "de", "en", "1,2")) == 2, "a header names both columns"


def test_a_translation_memory_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "memory.tmx"
    unit = '<tu><tuv xml:lang="{}"><seg>{}</seg></tuv><tuv xml:lang="en-US"><seg>{}</seg></tuv></tu>'
    units = unit.format("de", "Hund", "dog") + unit.format("fi", "koira", "dog") + unit.format("de-AT", "Maus", "mouse")
    path.write_text(f'<?xml version="1.0"?><tmx version="1.4"><header/><body>{units}</body></tmx>', encoding="utf-8")
    assert [row[1:] for row in file_rows(path, "de", "en")] == [("Hund", "dog"), ("Maus", "mouse")]
    assert [row[1:] for row in file_rows(path, "en", "fi")] == [("dog", "koira")]
    with pytest.raises(UserError, match="no columns"):
        file_rows(path, "de", "en", "1,2")


def test_unknown_suites_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'nothing'"):
        open_suite("nothing")
    with pytest.raises(UserError, match="--directions"):
        open_suite("wmt16", tmp_path, "de", "en")
