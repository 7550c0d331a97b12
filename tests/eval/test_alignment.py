"""Alignment scores and gold files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from eval.alignment import alignment_scores, main, on_words, phrase_scores, token_links
from eval.data.alignments import GoldPair, gold_pair, read_gold, word_links, word_tokens


def points(text: str) -> frozenset[tuple[int, int]]:
    return frozenset((int(i), int(j)) for i, j in (p.split("-") for p in text.split()))


@pytest.mark.parametrize(
    ("made", "sure", "possible", "expected"),
    [
        ("0-0 1-1", "0-0 1-1", "0-0 1-1", (1, 1, 1, 0)),
        ("0-0 1-2", "0-0 1-1", "0-0 1-1", (0.5, 0.5, 0.5, 0.5)),
        ("0-0 1-1 2-2", "0-0", "0-0 1-1", (2 / 3, 1, 0.8, 0.25)),  # 1 - (1 + 2) / (3 + 1)
        ("", "0-0", "0-0", (0, 0, 0, 1)),
        ("", "", "", (0, 0, 0, 0)),
    ],
)
def test_known_scores(made: str, sure: str, possible: str, expected: tuple[float, ...]) -> None:
    scores = alignment_scores([points(made)], [points(sure)], [points(possible)])
    assert (scores.precision, scores.recall, scores.f1, scores.aer) == pytest.approx(expected)


def test_sentences_are_counted_together() -> None:
    scores = alignment_scores(
        [points("0-0"), points("0-0 1-1 2-2")],
        [points("1-1"), points("0-0 1-1 2-2")],
        [points("1-1"), points("0-0 1-1 2-2")],
    )
    assert scores.precision == pytest.approx(3 / 4)


def test_gold_links_are_read() -> None:
    pair = gold_pair("a  b ", "c d", "1-1 2p2", first=1)
    assert pair == GoldPair("a b", "c d", points("0-0"), points("0-0 1-1"))
    with pytest.raises(ValueError, match="no list of links"):
        gold_pair("a", "b", "0:0")


def test_gold_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "x.src-tgt").write_text("ajunge !   ||| that 's enough !  \n")
    (tmp_path / "x.gold").write_text("2-4 1-3\n")
    assert read_gold(tmp_path / "x.src-tgt") == (
        GoldPair("ajunge !", "that 's enough !", points("0-2 1-3"), points("0-2 1-3")),
    )
    (tmp_path / "y.tsv").write_text("not yet .\tещё нет .\t0-1 1-0 2-2\n", encoding="utf-8")
    (pair,) = read_gold(tmp_path / "y.tsv")
    assert on_words(pair).sure == points("0-1 1-0")  # the full stop is no word


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("that 's enough !", [0, 1, 2]),
        ("( well-known ) 3.5", [1, 3]),
        ("1/2 cup", [0, 0, 1]),
        ("...", []),
        ("", []),
    ],
)
def test_words_know_their_tokens(text: str, expected: list[int]) -> None:
    assert word_tokens(text).tolist() == expected


def test_links_of_words_are_links_of_tokens_and_back() -> None:
    pair = GoldPair("( 1/2 cup )", "eine halbe Tasse .", points("1-0 1-1 2-2"), points("1-0 1-1 2-2"))
    assert word_links(pair, pair.sure).tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [2, 2]]
    assert token_links(pair, word_links(pair, pair.sure)) == pair.sure
    assert token_links(pair, np.array([[2, 1]], np.int32)) == points("2-1")


def test_phrases_of_the_gold_links_score_full() -> None:
    pair = GoldPair("a b c", "x y z", points("0-0 1-1 2-2"), points("0-0 1-1 2-2"))
    assert phrase_scores([pair], [word_links(pair, pair.sure)]).f1 == 1
    assert phrase_scores([pair], [np.array([[0, 0]], np.int32)]).recall == pytest.approx(1 / 6)


def test_the_report_compares_symmetrisations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "align").mkdir()
    rows = "The museum is closed .\tМузей закрыт .\t1-0 3-1 4-2\n"
    (tmp_path / "align" / "xl-wa.en-ru.dev.tsv").write_text(rows, encoding="utf-8")
    assert main(["--data", str(tmp_path), "--aligners", "encoder"]) == 0
    told = capsys.readouterr().out
    assert "1 sentences, 3 gold links, 1 of them with punctuation left out" in told
    assert all(f"encoder {m}" in told for m in ("intersection", "union", "grow-diag-final-and"))


@pytest.mark.parametrize("arguments", [["--aligners", "giza"], []])
def test_mistakes_are_told_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main(["--data", str(tmp_path), *arguments]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
