"""Phrase pairs with example sentences on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_mt.base.errors import UserError
from retrievers.xpr.examples import ExampleSet, Side, open_examples, sentence_table, write_examples


def side(language: str, phrases: list[str], counts: list[int]) -> Side:
    """Phrases with so many sentences each, in which they stand behind a number."""
    texts, examples = [], []
    for number, (phrase, count) in enumerate(zip(phrases, counts, strict=True)):
        for n in range(count):
            examples.append((number, len(texts), len(str(n)) + 1, len(str(n)) + 1 + len(phrase)))
            texts.append(f"{n} {phrase} and more")
    return Side(language, tuple(phrases), sentence_table(texts), np.array(examples, np.int32).reshape(-1, 4))


ROWS = np.array([(0, 0, 0), (1, 1, 1), (2, 2, 2), (3, 3, 2), (2, 3, 3), (0, 4, 3)], np.int32)


@pytest.fixture
def found(tmp_path: Path) -> ExampleSet:
    sides = (
        side("de", ["Haus", "Baum", "Bank", "Ufer", "Rest"], [1, 2, 3, 1, 1]),
        side("en", ["house", "tree", "bank", "shore", "home", "rest"], [4, 1, 2, 2, 1, 1]),
    )
    return write_examples(tmp_path / "de-en", "de-en", sides, ROWS, {"made": "by hand"})


def test_what_was_written_is_read(found: ExampleSet) -> None:
    assert (found.name, found.source.language, found.target.language) == ("de-en", "de", "en")
    assert found.manifest["made"] == "by hand"
    assert found.source.phrases == ("Haus", "Baum", "Bank", "Ufer", "Rest")
    assert found.pairs("test").tolist() == [[2, 2], [3, 3]]
    for own in found.sides:
        for phrase, sentence, start, end in own.examples.tolist():
            assert own.texts([sentence])[0][start:end] == own.phrases[phrase]


def test_phrases_of_no_pair_are_further_candidates(found: ExampleSet) -> None:
    """`home` stands in a known pair only, `rest` in none: both are searched with any split."""
    assert found.unpaired(1).tolist() == [4, 5]
    assert found.unpaired(0).tolist() == [4]


def test_known_translations_are_answers(found: ExampleSet) -> None:
    assert found.answers("test", 1) == [{2, 3}, {3}]
    assert found.answers("test", 0) == [{2}, {2, 3}]
    assert found.answers("train", 1) == [{0, 4}]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.data(), st.integers(1, 6))
def test_first_examples_of_each_phrase(counts: list[int], data: st.DataObject, most: int) -> None:
    own = side("en", [f"p{n}" for n in range(len(counts))], counts)
    wanted = data.draw(st.lists(st.integers(0, len(counts) - 1), max_size=6))
    slow = [
        (place, *row[1:])
        for place, phrase in enumerate(wanted)
        for row in [r for r in own.examples.tolist() if r[0] == phrase][:most]
    ]
    assert [tuple(row) for row in own.examples_of(wanted, most).tolist()] == slow


def test_damage_is_told(found: ExampleSet, tmp_path: Path) -> None:
    folder = tmp_path / "de-en"
    with pytest.raises(UserError, match=r"exists already"):
        write_examples(folder, "de-en", found.sides, ROWS, {})
    pairs = (folder / "pairs.npy").read_bytes()
    (folder / "pairs.npy").write_bytes(pairs[:-1] + bytes([pairs[-1] ^ 1]))
    with pytest.raises(UserError, match=r"damaged \(pairs.npy\)"):
        open_examples(folder)
    (folder / "pairs.npy").write_bytes(b"short")
    with pytest.raises(UserError, match=r"damaged \(pairs.npy\)"):
        open_examples(folder)
    (folder / "manifest.json").write_text('{"format": 99}')
    with pytest.raises(UserError, match=r"of another format than 1"):
        open_examples(folder)
    with pytest.raises(UserError, match=r"no phrase pairs with examples in .*finetune.xpr.data"):
        open_examples(tmp_path / "fr-en")
