"""Timing an index: both forms of one, and retrieval as a user sees it."""

from __future__ import annotations

import re

import pytest

from eval.speed import growing
from eval.speed.index import main
from rag_mt.base.files import SAMPLE_CORPUS
from rag_mt.base.types import Sentence
from retrievers.registry import build_for, encoder_for


@pytest.fixture(scope="module")
def place(tmp_path_factory, tiny_encoder):
    """An index of n-grams by a tiny encoder, and a file of queries."""
    folder = tmp_path_factory.mktemp("speed")
    lines = (SAMPLE_CORPUS / "en.txt").read_text(encoding="utf-8").splitlines()[:12]
    encoder = encoder_for("phrases", str(tiny_encoder), "cpu", "float32")
    build_for("phrases", folder / "index", [Sentence(text, "en") for text in lines], encoder, "en", show=False)
    german = (SAMPLE_CORPUS / "de.txt").read_text(encoding="utf-8").splitlines()[:3]
    (folder / "de.txt").write_text("\n".join(["", *german]) + "\n", encoding="utf-8")
    return folder


def test_retrieval_is_timed_as_a_whole(place, capsys):
    arguments = [str(place / "index"), "--queries", str(place / "de.txt"), "--src", "de", "--rounds", "1", "--whole"]
    assert main(arguments) == 0
    told = capsys.readouterr().out
    assert re.search(r"^\d+ units, 3 German sentences of \d+ words: \d+\.\d ms a sentence", told)


def test_both_forms_are_compared(place, capsys):
    assert main([str(place / "index"), "--sentences", "4", "--rounds", "1"]) == 0
    told = capsys.readouterr().out
    found = re.search(r"as built: (\d+) of (\d+) lists, .* recall@1 (\d\.\d+)", told)
    assert found and int(found[1]) <= int(found[2]) and float(found[3]) <= 1


def test_whole_needs_queries(place, capsys):
    assert main([str(place / "index"), "--whole"]) == 2
    assert "give INDEX, --queries FILE and --src LANG" in capsys.readouterr().err


def test_growing_is_compared_with_the_build(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"The tower number {n} is closed in winter.\n" for n in range(20)), encoding="utf-8")
    assert growing.main([str(text), "--lang", "en", "--share", "0.1", "--retriever", "sentence"]) == 0
    line = capsys.readouterr().out
    assert (
        line.startswith("sentence, exact: 18 units of 18 sentences built in") and "2 units of 2 sentences added" in line
    )
    assert growing.main([str(text), "--lang", "en", "--share", "0.01"]) == 2
