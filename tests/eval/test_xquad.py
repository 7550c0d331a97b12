"""XQuAD: one split for all languages, and files of another form."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from eval.xquad import Question, part_of, read_xquad
from rag_mt.errors import UserError


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


@pytest.mark.parametrize("row", ["240\ttext", "text", "x\ttext"])
def test_other_files(tmp_path, row):
    write(tmp_path, "en", f"0\tfirst\n{row}\n", "q\t0\twhat?\tthat\n")
    with pytest.raises(UserError, match=r"xquad.passages.en.tsv:2 is no row of XQuAD"):
        read_xquad(tmp_path, ("en",))
    with pytest.raises(UserError, match=r"there is no .*xquad.passages.de.tsv"):
        read_xquad(tmp_path, ("de",))
