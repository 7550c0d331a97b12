"""Bitext mining: the margin against its formula, matching against a plain loop, neighbours in blocks, line filters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_mt.base.errors import UserError
from rag_mt.base.files import read_toml
from rag_mt.base.types import Encoder, Floats, Origin, Sentence, Skips
from rag_mt.formats.format import Side
from rag_mt.formats.registry import format_named
from rag_mt.formats.tmx import TMX
from retrievers.index.build import build_index
from retrievers.index.opening import open_index
from retrievers.mining import margin
from retrievers.mining.margin import (
    FILE,
    STRATEGIES,
    UNTUNED,
    Neighbours,
    Pairs,
    Strategy,
    Threshold,
    absolute,
    known_threshold,
    mined,
    nearest,
    one_to_one,
    ratio,
)
from retrievers.mining.output import write_pairs
from retrievers.mining.sides import MinedUnits, check_word_lists, choose, encoded_side, survey


def unit(rows: Any) -> Floats:
    vectors = np.asarray(rows, dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def noisy_pairs(pairs: int, alone: int, noise: float, seed: int = 0) -> tuple[Floats, Floats]:
    """Two sides whose first vectors are pairs; the others have no partner."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal((pairs, 24))
    sides = [
        np.concatenate([shared + noise * rng.standard_normal(shared.shape), rng.standard_normal((alone, 24))])
        for _ in range(2)
    ]
    return unit(sides[0] + 1.0), unit(sides[1] + 1.0)  # in one half of the space, as the vectors of encoders


def slow_scores(source: Floats, target: Floats, k: int) -> dict[tuple[int, int], float]:
    """Equation 5 of the mDPR paper, a pair at a time."""
    ahead = [sorted((float(x @ y) for y in target), reverse=True)[:k] for x in source]
    back = [sorted((float(x @ y) for x in source), reverse=True)[:k] for y in target]
    return {
        (i, j): float(x @ y) / (sum(z / (2 * k) for z in ahead[i]) + sum(z / (2 * k) for z in back[j]))
        for i, x in enumerate(source)
        for j, y in enumerate(target)
    }


def slow_pairs(source: Floats, target: Floats, k: int, strategy: Strategy) -> dict[tuple[int, int], float]:
    """Candidates and greedy matching as loops."""
    scores = slow_scores(source, target, k)
    near = [np.argsort(-(x @ target.T), kind="stable")[:k].tolist() for x in source]
    near_back = [np.argsort(-(y @ source.T), kind="stable")[:k].tolist() for y in target]
    ahead = {(i, max(js, key=lambda j: scores[i, j])) for i, js in enumerate(near)}
    back = {(max(js, key=lambda i: scores[i, j]), j) for j, js in enumerate(near_back)}
    chosen = {"forward": ahead, "backward": back, "intersection": ahead & back, "max": ahead | back}[strategy]
    return slow_matching({pair: scores[pair] for pair in chosen})


def slow_matching(scores: dict[tuple[int, int], float]) -> dict[tuple[int, int], float]:
    taken: dict[tuple[int, int], float] = {}
    for pair in sorted(scores, key=lambda p: (-scores[p], p)):
        if all(pair[0] != i and pair[1] != j for i, j in taken):
            taken[pair] = scores[pair]
    return taken


def both_ways(source: Floats, target: Floats, k: int) -> tuple[Neighbours, Neighbours]:
    return nearest(source, target, k), nearest(target, source, k)


def as_dict(pairs: Pairs) -> dict[tuple[int, int], float]:
    return dict(
        zip(zip(pairs.sources.tolist(), pairs.targets.tolist(), strict=True), pairs.scores.tolist(), strict=True)
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("k", [1, 3, 50])
def test_pairs_are_those_of_the_formula(strategy: Strategy, k: int) -> None:
    source, target = noisy_pairs(20, 15, 0.8)
    target = target[:28]  # sides of different sizes
    found = as_dict(mined(*both_ways(source, target, k), strategy))
    wanted = slow_pairs(source, target, min(k, len(target)), strategy) if k < 28 else None
    if wanted is None:  # more neighbours than a side has sentences: each side's mean is over all of the other
        means = (source @ target.T).mean(axis=1), (target @ source.T).mean(axis=1)
        for (i, j), score in found.items():
            assert score == pytest.approx(float(source[i] @ target[j]) / ((means[0][i] + means[1][j]) / 2), rel=1e-5)
        return
    assert found.keys() == wanted.keys()
    assert all(found[pair] == pytest.approx(wanted[pair], rel=1e-5) for pair in wanted)
    assert list(found.values()) == sorted(found.values(), reverse=True)


def test_pairs_that_were_hidden_are_found_and_stand_above_the_others() -> None:
    source, target = noisy_pairs(40, 160, 0.25)
    found = mined(*both_ways(source, target, 4))
    first = found.where(np.arange(len(found)) < 40)
    assert {(a, b) for a, b in zip(first.sources.tolist(), first.targets.tolist(), strict=True)} == {
        (n, n) for n in range(40)
    }
    assert len(found.at_least(float(found.scores[39]))) == 40


def test_a_hub_is_near_to_all_and_scores_low() -> None:
    """The cosine prefers target 1, which is near to every source, the margin target 0, which is near to one."""
    ahead = Neighbours(np.array([[0.92, 0.90], [0.92, 0.50]], np.float32), np.array([[1, 0], [1, 0]]))
    back = Neighbours(np.array([[0.90, 0.50], [0.92, 0.92]], np.float32), np.array([[0, 1], [0, 1]]))
    assert (0, 1) in as_dict(mined(ahead, back, "forward", absolute))
    found = as_dict(mined(ahead, back, "forward", ratio))
    assert found[0, 0] == pytest.approx(0.90 / ((0.91 + 0.70) / 2))
    assert found[1, 1] == pytest.approx(0.92 / ((0.71 + 0.92) / 2))


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 4)), max_size=30))
def test_matching_in_rounds_is_greedy_matching(rows: list[tuple[int, int, int]]) -> None:
    unique = {(i, j): float(score) for i, j, score in rows}
    columns = list(zip(*((i, j, s) for (i, j), s in unique.items()), strict=True)) or [(), (), ()]
    pairs = Pairs(np.array(columns[0], np.int64), np.array(columns[1], np.int64), np.array(columns[2], np.float32))
    found = as_dict(one_to_one(pairs))
    assert found == slow_matching(unique)
    assert list(found.values()) == sorted(found.values(), reverse=True)


def test_neighbours_in_blocks_are_those_of_one_product(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = noisy_pairs(30, 70, 0.5)
    monkeypatch.setattr(margin, "QUERY_BLOCK", 17)
    monkeypatch.setattr(margin, "BASE_BLOCK", 13)
    done: list[int] = []
    found = nearest(source, target, 20, done.append)
    order = np.argsort(-(source @ target.T), axis=1)[:, :20]
    assert (found.ids == order).all()
    assert np.allclose(found.scores, np.take_along_axis(source @ target.T, order, axis=1), atol=1e-6)
    assert sum(done) == len(source)
    assert (found.first(3).ids == order[:, :3]).all()


def test_neighbours_that_a_search_did_not_find_do_not_count() -> None:
    ahead = Neighbours(np.array([[0.9, 0.6], [0.8, -np.inf]], np.float32), np.array([[0, 1], [1, -1]]))
    back = Neighbours(np.array([[0.9], [-np.inf]], np.float32), np.array([[0], [-1]]))
    found = as_dict(mined(ahead, back))
    assert found[0, 0] == pytest.approx(0.9 / ((0.75 + 0.9) / 2))
    assert found[1, 1] == pytest.approx(0.8 / ((0.8 + 0.0) / 2))


def test_vectors_that_point_away_have_finite_scores() -> None:
    found = mined(*both_ways(unit([[1, 0], [0.9, 0.1]]), unit([[-1, 0.2], [-1, -0.2]]), 2))
    assert np.isfinite(found.scores).all()


def sentences(texts: list[str], language: str = "de") -> list[Sentence]:
    return [Sentence(text, language, Origin("a.txt", n)) for n, text in enumerate(texts, 1)]


def test_lines_that_are_dropped_are_counted() -> None:
    german = sentences(["Guten Morgen!", "guten morgen", "OK", "Das Wetter ist heute schön.", "Guten Abend."])
    english = sentences(["OK.", "Good evening.", "Good evening!", "The weather is nice today."], "en")
    choices = choose(survey(german, "de"), survey(english, "en"))
    assert [s.text for s in choices[0].of(german)] == ["Guten Morgen!", "Das Wetter ist heute schön.", "Guten Abend."]
    assert [s.text for s in choices[1].of(english)] == ["Good evening.", "The weather is nice today."]
    assert choices[0].describe() == "3 of 5 lines (1 on both sides, 1 near-duplicates of others)"
    assert choices[1].count == 2


def test_lines_in_the_other_language_are_dropped_and_do_not_shadow_its_own() -> None:
    line = "The weather is very nice today and we go to the sea."
    german = sentences([line, "Das Wetter ist heute sehr schön und wir fahren ans Meer."])
    english = sentences([line], "en")
    plain = choose(survey(german, "de"), survey(english, "en"))
    assert (plain[0].count, plain[1].count) == (1, 0)
    checked = choose(survey(german, "de", "en"), survey(english, "en", "de"))
    assert (checked[0].count, checked[1].count) == (1, 1)
    assert checked[0].dropped["in the other language"] == 1
    with pytest.raises(UserError, match="no word list of Japanese"):
        check_word_lists(["de", "ja"])


TEXT = st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Cn", "Zl", "Zp", "Zs"), include_characters=" \t<>&\"'"), min_size=1
).filter(lambda text: text.strip() and not text.isspace())


@settings(max_examples=25)
@given(st.lists(st.tuples(TEXT, TEXT, st.floats(0, 5)), min_size=1, max_size=5))
def test_pairs_can_be_read_again(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, float]]) -> None:
    folder = tmp_path_factory.mktemp("pairs")
    pairs = [
        (score, Sentence(a, "de", Origin("a.txt", n)), Sentence(b, "en", Origin("b.txt", 2 * n)))
        for n, (a, b, score) in enumerate(rows, 1)
    ]
    for name in ("p.tsv", "p.tmx.gz"):
        write_pairs(folder / name, pairs, "de", "en")
    skips = Skips()
    tsv = format_named("tsv")
    for code, side in (("de", 1), ("en", 2)):
        found = [segment.text for segment in tsv.segments(folder / "p.tsv", Side(code), skips)]
        assert found == [pair[side].text.replace("\t", " ") for pair in pairs]
    memory = list(TMX.pairs(folder / "p.tmx.gz", "de", "en", skips))
    assert [(a.text, b.text) for a, b in memory] == [(a.text, b.text) for _, a, b in pairs]
    assert not skips.counts


def test_a_tsv_row_says_where_its_texts_stand(tmp_path: Path) -> None:
    pair = 1.23456, Sentence("a\tb", "de", Origin("a.txt", 3)), Sentence("c\nd", "en", Origin("b.txt", 7))
    write_pairs(tmp_path / "pairs.tsv", [pair], "de", "en")
    head, row = (tmp_path / "pairs.tsv").read_text(encoding="utf-8").splitlines()
    assert head.split("\t") == ["score", "de", "en", "de_file", "de_line", "en_file", "en_line"]
    assert row.split("\t") == ["1.2346", "a b", "c d", "a.txt", "3", "b.txt", "7"]


def test_an_unknown_output_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"neither \.tsv nor \.tmx"):
        write_pairs(tmp_path / "pairs.csv", [], "de", "en")
    assert not list(tmp_path.iterdir())


def test_an_index_serves_as_a_side(tmp_path: Path, fake: Callable[..., Encoder]) -> None:
    encoder = fake()
    texts = [f"sentence number {n}" for n in range(40)]
    side = encoded_side(tmp_path / "side", sentences(texts), MinedUnits(encoder), "de", total=40, show=False)
    vectors = encoder.encode(texts)
    assert np.allclose(side.reconstruct(np.arange(3, 9)), vectors[3:9], atol=1e-2)
    exact = nearest(vectors, side.reconstruct(np.arange(40)), 5)
    found = nearest(side, side, 5)
    assert (found.ids[:, 0] == np.arange(40)).all()
    assert (found.ids[:, 0] == exact.ids[:, 0]).all()
    again = encoded_side(tmp_path / "side", iter(()), MinedUnits(encoder), "de", total=40, show=False)
    assert len(again) == 40, "a finished side is not read again"


def test_an_index_with_lists_serves_as_a_side(tmp_path: Path, fake: Callable[..., Encoder]) -> None:
    texts = [f"sentence number {n}" for n in range(3000)]
    units = MinedUnits(fake())
    build_index(tmp_path / "side", sentences(texts), units, retriever="sentence", language="de", form="ivf", show=False)
    side = open_index(tmp_path / "side")
    assert side.manifest.ivf is not None
    done: list[int] = []
    found = nearest(side, side, 2, done.append)
    assert (found.ids[:, 0] == np.arange(3000)).mean() > 0.95
    assert sum(done) == 3000


def test_a_text_that_has_become_shorter_is_told() -> None:
    german = sentences(["Guten Morgen!", "Guten Abend."])
    choice, _ = choose(survey(german, "de"), survey([], "en"))
    with pytest.raises(UserError, match="has become shorter"):
        list(choice.of(german[:1]))


def test_thresholds_belong_to_an_encoder_and_a_language(tmp_path: Path) -> None:
    assert known_threshold("some/model", "de", "en") == UNTUNED
    table = tmp_path / "thresholds.toml"
    table.write_text(
        '["some/model"]\nneighbours = 8\norigin = "a run"\nscores = { de = 1.05, ru = 1.07 }\n', encoding="utf-8"
    )
    assert known_threshold("some/model", "de-AT", "en", table) == Threshold(1.05, 8, "tuned on de-en: a run")
    assert known_threshold("some/model", "en", "ru", table).score == 1.07
    assert known_threshold("some/model", "tr", "en", table).score == 1.07, "the strictest for another language"
    assert known_threshold("some/model", "de", "cs", table).score == 1.07
    assert known_threshold("other/model", "de", "en", table) == UNTUNED


def test_the_table_of_thresholds_can_be_read() -> None:
    for own in read_toml(FILE, "table of thresholds", FILE.name).values():
        assert own.keys() == {"neighbours", "origin", "scores"}
        assert all(1 < score < 2 for score in own["scores"].values())
