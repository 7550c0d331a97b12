"""Sets of phrase queries from tiny alignments whose phrase pairs can be read off."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from eval.data.alignments import gold_pair, word_links
from eval.data.phrase_pairs import Frequent
from eval.data.phrase_sets import (
    PhraseSet,
    frequent_of,
    gold_set,
    gold_sets,
    phrase_set,
    read_alignments,
    silver_set,
    surface,
    undiacritic,
    written,
)
from eval.data.written import WAYS
from rag_mt.base.errors import UserError
from rag_mt.text.words import word_spans

NONE = Frequent()


def links(*rows: tuple[int, int]) -> np.ndarray:
    return np.array(rows, dtype=np.int32).reshape(-1, 2)


def phrases(found: PhraseSet) -> set[tuple[str, str]]:
    return {(found.sources[n][a:b], found.targets[n][c:d]) for n, a, b, c, d in found.queries.tolist()}


def test_words_take_the_links_of_their_tokens() -> None:
    # Tokens: that 's enough ! -> "'s" holds the word s, "!" none; a token with two words links both.
    pair = gold_pair("ajunge/destul !", "that 's enough !", "1-2 1p3 2-4", first=1)
    assert word_links(pair, pair.possible).tolist() == [[0, 1], [0, 2], [1, 1], [1, 2]]
    with pytest.raises(UserError, match="link 0-9"):
        word_links(pair, frozenset({(0, 9)}))


def test_gold_phrases_of_both_orders() -> None:
    expected = {("rote", "red"), ("Häuser", "houses"), ("rote Häuser", "red houses")}
    german = gold_pair("rote Häuser .", "red houses .", "0-0 1-1 2-2")
    english = gold_pair("red houses .", "rote Häuser .", "0-0 1-1 2-2")
    first = gold_set("x", "de", [german], False, NONE, 100)
    second = gold_set("x", "de", [english], True, NONE, 100)
    assert phrases(first) == phrases(second) == expected
    assert first.sha256 == second.sha256
    assert first.ids == ["1:0-4:0-3", "1:0-11:0-10", "1:5-11:4-10"]
    assert sorted(first.surfaces) == ["houses", "red", "red houses"]


SENTENCES = ["Der Hund, der bellt, beißt nicht ...", "Wer (außer ihm) kommt?", "z. B. 3,5 m: ja!", "İki - üç"]


@pytest.mark.parametrize("way", WAYS)
def test_sentences_written_in_another_way_have_their_phrases(way: str) -> None:
    spans = [[(0, *word, 0, 1) for word in word_spans(text).tolist()] for text in SENTENCES]
    queries = np.array([(n, *row[1:]) for n, own in enumerate(spans) for row in own], dtype=np.int32)
    own = PhraseSet("x", "de", "human", tuple(SENTENCES), ("a",) * 4, (1, 2, 3, 4), queries, len(queries))
    other = written(own, way)
    assert other.name == f"x {way}" and other.surfaces == own.surfaces and other.sources != own.sources
    asked = [[surface(s.sources[n][a:b]) for n, a, b in s.queries[:, :3].tolist()] for s in (own, other)]
    assert asked[0] == asked[1]


def test_ways_to_write_a_sentence() -> None:
    assert [WAYS[way]("Der Weg, 3,5 m: weiß.") for way in WAYS] == [
        "der weg, 3,5 m: weiß.",
        "Der Weg, 3,5 m: weiß.",  # in capital letters it has one letter more
        "Der Weg, 3,5 m: weiß",
        "Der Weg , 3,5 m : weiß .",
    ]
    assert WAYS["capital"]("Eine Brücke.") == "EINE BRÜCKE."


def test_crossing_links_and_filters() -> None:
    rows = [(7, "das rote Haus 2020", "2020 the red house")]
    own = [links((0, 1), (1, 2), (2, 3), (3, 0))]
    found = phrase_set("x", "de", "human", rows, [own], Frequent(frozenset({"das"}), frozenset({"the"})))
    # Not `2020` (no letter), nothing that begins with `das`, nothing across the crossing short of everything.
    assert phrases(found) == {("rote", "red"), ("rote Haus", "red house"), ("Haus", "house")}
    assert found.ids[0].startswith("7:")


def test_only_boxes_of_both_alignments_count() -> None:
    rows = [(1, "a b c", "x y z")]
    one, two = [links((0, 0), (1, 1), (2, 2))], [links((0, 0), (1, 2), (2, 1))]
    assert phrases(phrase_set("x", "de", "", rows, [one, two], NONE)) == {
        ("a", "x"),
        ("b c", "y z"),
        ("a b c", "x y z"),
    }
    assert phrases(phrase_set("x", "de", "", rows, [one, [links()]], NONE)) == set()


def test_samples_are_seeded_and_equal_pairs_are_taken_once() -> None:
    rows = [(n, f"wort{n} haus", f"word{n} house") for n in range(1, 60)]
    rows += [(60, "wort1 haus", "word1 house")]
    own = [links((0, 0), (1, 1))] * 60
    whole = phrase_set("x", "de", "", rows, [own], NONE)
    assert (len(whole.queries), whole.available, len(whole.sources)) == (3 * 59, 3 * 59, 59)
    some, again = (phrase_set("x", "de", "", rows, [own], NONE, limit=20) for _ in range(2))
    assert len(some.queries) == 20
    assert some.available == 3 * 59
    assert some.sha256 == again.sha256
    assert set(some.ids) < set(whole.ids)
    assert phrase_set("y", "de", "", rows, [own], NONE, limit=20).ids != some.ids


@pytest.mark.parametrize(
    ("phrase", "expected"),
    [("The  House", "the house"), ("STRASSE", "strasse"), ("Straße", "strasse"), (" a\u00a0b ", "a b")],
)
def test_surfaces(phrase: str, expected: str) -> None:
    assert surface(phrase) == expected


def test_undiacritic() -> None:
    assert undiacritic("și încă către") == "si inca catre"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two languages of silver data, gold of Romanian, and the folder of phrase pairs in `pairs`."""
    for folder in ("align", "dev", "pairs/ro-en"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "align/roen.src-tgt").write_text("si casa rosie ||| and the red house\n", encoding="utf-8")
    (tmp_path / "align/roen.gold").write_text("1-1 2-4 3-3\n", encoding="utf-8")
    rows = [(f"red house {n}x", f"casă roșie {n}x") for n in range(40)]
    (tmp_path / "dev/ro-en.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    with (tmp_path / "pairs/ro-en.dev.jsonl").open("w", encoding="utf-8") as file:
        for n, (a, b) in enumerate(rows, 1):
            row = {"line": n, "source": b, "target": a, "links": [[0, 1], [1, 0], [2, 2]]}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    (tmp_path / "pairs/ro-en/frequent.json").write_text(json.dumps({"ro": ["și"], "en": ["and"]}), encoding="utf-8")
    return tmp_path


class TwoLinks:
    """An aligner that misses the last word."""

    name, settings = "two", {}

    def directed(self, pairs):
        return self.align(pairs), self.align(pairs)

    def align(self, pairs):
        return [links((0, 1), (1, 0))] * len(pairs)


def test_gold_files(data: Path) -> None:
    (found,) = gold_sets(data, data / "pairs", ["ro", "de"])
    assert phrases(found) == {("casa rosie", "red house"), ("casa", "house"), ("rosie", "red")}
    (counted,) = gold_sets(data, None, ["ro"])  # nothing is frequent in what dev/ has of it but casă, roșie, red, house
    assert phrases(counted) == {("si", "and")}


def test_silver_halves_part_the_development_sentences(data: Path) -> None:
    halves = [silver_set(data, data / "pairs", TwoLinks(), "ro", half) for half in "AB"]
    assert {len(h.sources) for h in halves} != {0, 40}
    assert sorted(n for h in halves for n in h.lines) == list(range(1, 41))
    for half in halves:
        assert phrases(half) == {("casă", "house"), ("roșie", "red"), ("casă roșie", "red house")}
        assert len(half.queries) == 3 * len(half.sources)


def test_alignments_of_other_sentences_are_refused(data: Path) -> None:
    path = data / "pairs/ro-en.dev.jsonl"
    with pytest.raises(UserError, match="line 1 differs"):
        read_alignments(path, [(1, "casă", "house")])
    with pytest.raises(UserError, match=r"finetune\.ccpr\.pairs"):
        read_alignments(data / "none.jsonl", [])
    path.write_text('{"line": 1, "source": "a", "target": "b", "links": [[0, 1]]}\n')
    with pytest.raises(UserError, match="link out of the sentence in line 1"):
        read_alignments(path, [(1, "a", "b")])
    path.write_text('{"line": 1}\n')
    with pytest.raises(UserError, match="is no file of alignments"):
        read_alignments(path, [(1, "a", "b")])


def test_frequent_words_of_the_phrase_pairs(data: Path) -> None:
    assert frequent_of(data / "pairs", "ro") == Frequent(frozenset({"și"}), frozenset({"and"}))
    assert frequent_of(data / "pairs", "de") is None
    assert frequent_of(None, "ro") is None
