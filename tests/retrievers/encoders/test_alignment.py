"""Word alignment: joining two directions, nearest states, and eflomal as a program of its own."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.data import alignments
from eval.data.alignments import EflomalAligner, read_links
from rag_mt.base.errors import UserError
from rag_mt.base.types import Encoder
from rag_mt.text.words import word_spans
from retrievers.encoders.alignment import METHODS, EncoderAligner, Links, Method, symmetrise

Points = set[tuple[int, int]]


def links(text: str) -> Links:
    """Links written as `0-0 1-2`."""
    return np.array(sorted(tuple(map(int, p.split("-"))) for p in text.split()), dtype=np.int32).reshape(-1, 2)


def as_links(made: Points) -> Links:
    return np.array(sorted(made), dtype=np.int32).reshape(-1, 2)


def points(made: Links) -> Points:
    return {(i, j) for i, j in made.tolist()}


@pytest.mark.parametrize(
    ("forward", "backward", "method", "expected"),
    [
        ("0-0 1-1", "0-0 1-1", "grow-diag-final-and", "0-0 1-1"),
        ("0-0 1-1", "0-0 1-2", "intersection", "0-0"),
        ("0-0 1-1", "0-0 1-2", "union", "0-0 1-1 1-2"),
        # beside and across a taken link
        ("0-0 1-1", "0-0 0-1", "grow-diag-final-and", "0-0 0-1 1-1"),
        # both words are linked already
        ("0-0 1-1 0-1", "0-0 1-1", "grow-diag-final-and", "0-0 1-1"),
        # far off: taken at the end, since neither word is linked; its rival has lost a word by then
        ("0-0 5-5", "0-0 5-7", "grow-diag-final-and", "0-0 5-5"),
        # far off, and one word is linked
        ("0-0 0-5", "0-0", "grow-diag-final-and", "0-0"),
        ("", "", "union", ""),
        ("", "3-4", "grow-diag-final-and", "3-4"),
        ("", "3-4", "intersection", ""),
    ],
)
def test_known_symmetrisations(forward: str, backward: str, method: Method, expected: str) -> None:
    assert symmetrise(links(forward), links(backward), method).tolist() == links(expected).tolist()


def scanned(forward: Points, backward: Points) -> Points:
    """Grow-diag-final-and as it is usually written down: scans of the whole matrix until nothing changes."""
    size = 1 + max((n for point in forward | backward for n in point), default=0)
    made = forward & backward
    around = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))

    def linked(i: int, j: int) -> tuple[bool, bool]:
        return any(a == i for a, _ in made), any(b == j for _, b in made)

    changed = True
    while changed:
        changed = False
        for i in range(size):
            for j in range(size):
                if (i, j) not in made:
                    continue
                for di, dj in around:
                    new = i + di, j + dj
                    if new in (forward | backward) - made and not all(linked(*new)):
                        made.add(new)
                        changed = True
    for side in (forward, backward):
        for new in sorted(side):
            if not any(linked(*new)):
                made.add(new)
    return made


some_points = st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=20)


@given(some_points, some_points)
def test_growing_is_the_full_scan(forward: Points, backward: Points) -> None:
    made = symmetrise(as_links(forward), as_links(backward), "grow-diag-final-and")
    assert points(made) == scanned(set(forward), set(backward))
    assert made.tolist() == sorted(made.tolist())


@given(some_points, some_points)
def test_growing_lies_between_intersection_and_union(forward: Points, backward: Points) -> None:
    small, wide, grown = (points(symmetrise(as_links(forward), as_links(backward), m)) for m in METHODS)
    assert small == forward & backward <= grown <= wide == forward | backward


def test_equal_words_are_nearest(fake: Callable[..., Any]) -> None:
    aligner = EncoderAligner(fake(), layer=2)
    pairs = [("one two, three!", "three one two"), ("", "word"), ("word", "..."), ("same", "same")]
    assert [own.tolist() for own in aligner.align(pairs)] == [[[0, 1], [1, 2], [2, 0]], [], [], [[0, 0]]]


def test_too_long_sentences_are_left_out_and_told(fake: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "rag_mt"):
        made = EncoderAligner(fake(), layer=2).align([("word " * 201, "word"), ("word", "word")])
    assert [len(own) for own in made] == [0, 1]
    assert "1 of 2 sentence pairs" in caplog.text


def test_an_unknown_layer_is_the_users_mistake(fake: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match="layer 9 of fake"):
        EncoderAligner(fake(), layer=9)


def test_real_states_align_words(e5: Encoder) -> None:
    made = EncoderAligner(e5).align([("The museum is closed on Mondays.", "Montags ist das Museum geschlossen.")])
    assert {(1, 3), (3, 4), (5, 0)} <= points(made[0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0-0 1-1\n\n2-10\n", [[[0, 0], [1, 1]], [], [[2, 10]]]),
        ("\n\n\n", [[], [], []]),
        ("3-1 1-3 1-2\n0-0\n199-199\n", [[[1, 2], [1, 3], [3, 1]], [[0, 0]], [[199, 199]]]),
    ],
)
def test_known_link_files(tmp_path: Path, text: str, expected: list[list[list[int]]]) -> None:
    (tmp_path / "links").write_text(text)
    assert [own.tolist() for own in read_links(tmp_path / "links", 3)] == expected
    with pytest.raises(ValueError, match="3 lines of links for 4 pairs"):
        read_links(tmp_path / "links", 4)


def test_damaged_links_are_refused(tmp_path: Path) -> None:
    (tmp_path / "links").write_text("0-0 1\n")
    with pytest.raises(ValueError, match="not pairs of numbers"):
        read_links(tmp_path / "links", 1)


def stand_in(folder: Path, body: str) -> str:
    """A program with eflomal's options that runs `body`."""
    path = folder / "eflomal-align"
    path.write_text(f"#!{sys.executable}\nimport sys\no = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n{body}\n")
    path.chmod(0o755)
    return str(path)


COPY = """
source, target = (open(o[k], encoding="ascii").read().split("\\n")[:-1] for k in ("-s", "-t"))
assert len(source) == len(target)
for k in ("-f", "-r"):
    with open(o[k], "w") as out:
        for a, b in zip(source, target):
            numbers = a.split(" "), b.split(" ")
            assert all(w.isdecimal() for side in numbers for w in side)
            out.write(" ".join(f"{i}-{i}" for i in range(min(map(len, numbers)))) + "\\n")
"""


@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20)), max_size=4))
def test_every_word_has_a_number(pairs: Sequence[tuple[str, str]]) -> None:
    rows = [alignments.number_words(pair)[0] for pair in pairs]
    assert [[len(row) for row in own] for own in rows] == [[len(word_spans(t)) for t in p] for p in pairs]


def test_links_come_back_to_their_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignments, "_program", lambda: stand_in(tmp_path, COPY))
    pairs = [("a b", "c d"), ("", "c"), ("I\u0307 \u2028 x\r\ny ||| z", "ß\u200dß \ud7ff 3-4\tq"), ("w " * 201, "w")]
    made = EflomalAligner().align(pairs)
    assert [own.tolist() for own in made] == [
        [[0, 0], [1, 1]],
        [],
        [[0, 0], [1, 1], [2, 2], [3, 3]][: len(made[2])],
        [],
    ]
    assert len(made[2]) >= 3


def test_a_failing_program_is_told_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignments, "_program", lambda: stand_in(tmp_path, "sys.exit('no memory')"))
    with pytest.raises(UserError, match=r"exit code 1 \(no memory\).*--aligner encoder"):
        EflomalAligner().align([("a", "b")])


def test_a_senseless_length_is_refused() -> None:
    with pytest.raises(UserError, match=r"length -1"):
        EflomalAligner(length=-1)


def test_a_missing_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(UserError, match=r"pip install eflomal.*--aligner encoder"):
        EflomalAligner()


@pytest.mark.skipif(
    not (shutil.which("eflomal-align") or (Path(sys.executable).parent / "eflomal-align").is_file()),
    reason="eflomal is not installed",
)
def test_eflomal_finds_a_cipher() -> None:
    rng = np.random.default_rng(0)
    sentences = [[f"w{n}" for n in rng.integers(0, 60, 8)] for _ in range(300)]
    pairs = [(" ".join(s), ", ".join(re.sub("w", "v", w) for w in s)) for s in sentences]
    right = [points(own) >= {(i, i) for i in range(8)} for own in EflomalAligner().align(pairs)]
    assert np.mean(right) > 0.9
