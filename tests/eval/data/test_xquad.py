"""XQuAD: one split for all languages, and files of another form."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from eval.data.xquad import Question, has_xquad, part_of, read_xquad
from rag_mt.base.errors import UserError


def write(folder: Path, code: str, passages: str, questions: str) -> None:
    (folder / "retrieval").mkdir(exist_ok=True)
    (folder / "retrieval" / f"xquad.passages.{code}.tsv").write_text(passages, encoding="utf-8")
    (folder / "retrieval" / f"xquad.questions.{code}.tsv").write_text(questions, encoding="utf-8")


def test_parts_are_whole_articles():
    parts = [part_of(str(n)) for n in range(240)]
    assert Counter(parts) == {"train": 100, "dev": 40, "test": 100}
    assert all(len(set(parts[n : n + 5])) == 1 for n in range(0, 240, 5))


def test_a_part_is_the_same_in_every_language(tmp_path):
    for code, word in (("en", "stone"), ("de", "Stein")):
        write(
            tmp_path,
            code,
            "".join(f"{n}\t{word} {n}\n" for n in range(240)),
            "".join(f"q{n}\t{n}\t{word} {n}?\t{n}\n" for n in range(240)),
        )
    found = read_xquad(tmp_path, ("en", "de"))
    assert found.questions["de"][3] == Question("q3", "3", "Stein 3?")
    dev = found.part("dev")
    assert dev.passages["en"].keys() == dev.passages["de"].keys()
    assert len(dev.passages["en"]) == 40
    assert {q.passage for q in dev.questions["de"]} == dev.passages["de"].keys()
    assert len(found.part("train", "test").passages["de"]) == 200


def published(passages: int) -> dict[str, Any]:
    """A made-up file in the form that XQuAD is published in, articles of five passages with a question each."""
    made = [
        {"context": f"stone\n {n}", "qas": [{"id": f"q{n}", "question": f"stone {n}?", "answers": []}]}
        for n in range(passages)
    ]
    return {"data": [{"title": "", "paragraphs": made[n : n + 5]} for n in range(0, passages, 5)]}


def test_the_published_form(tmp_path):
    (tmp_path / "retrieval").mkdir()
    file = tmp_path / "retrieval" / "xquad.en.json"
    assert not has_xquad(tmp_path, "en")
    file.write_text(json.dumps(published(240)), encoding="utf-8")
    assert has_xquad(tmp_path, "en")
    found = read_xquad(tmp_path, ("en",))
    assert found.passages["en"]["239"] == "stone 239" and len(found.passages["en"]) == 240
    assert found.questions["en"][7] == Question("q7", "7", "stone 7?")
    file.write_text(json.dumps(published(235)), encoding="utf-8")
    with pytest.raises(UserError, match=r"has 235 passages: expected the 240 of XQuAD"):
        read_xquad(tmp_path, ("en",))
    for text in ("[]", '{"data": [{}]}', "no JSON"):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match=r"xquad.en.json is no file of XQuAD"):
            read_xquad(tmp_path, ("en",))


@pytest.mark.parametrize("row", ["240\ttext", "text", "x\ttext"])
def test_other_files(tmp_path, row):
    write(tmp_path, "en", f"0\tfirst\n{row}\n", "q\t0\twhat?\tthat\n")
    with pytest.raises(UserError, match=r"xquad.passages.en.tsv:2 is no row of XQuAD"):
        read_xquad(tmp_path, ("en",))
    with pytest.raises(UserError, match=r"there is no .*xquad.passages.de.tsv"):
        read_xquad(tmp_path, ("de",))
