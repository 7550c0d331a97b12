"""Measures against slow references written from their definitions, and TREC files there and back."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.passages.runs import measured, ranked, run_scorer
from eval.passages.sets import Collection, Query, read_qrels, read_run, write_qrels, write_run
from rag_mt.base.errors import UserError
from retrievers.passage import Rankings

PASSAGES = [f"p{n}" for n in range(130)]


def slow(ranking, grades):
    """MRR@100, Recall@20, Recall@100, AP@100, P@20 and nDCG@20 of a list of passages."""
    gains = [grades.get(p, 0) for p in ranking[:100]]
    relevant = [g > 0 for g in gains]
    ranks = [n for n, yes in enumerate(relevant, 1) if yes]
    all_relevant = sum(g > 0 for g in grades.values())
    ideal = sorted((g for g in grades.values() if g > 0), reverse=True)[:20]
    dcg = sum(g / math.log2(n + 1) for n, g in enumerate(gains[:20], 1))
    return {
        "MRR@100": 1 / ranks[0] if ranks else 0.0,
        "Recall@20": sum(relevant[:20]) / all_relevant,
        "Recall@100": len(ranks) / all_relevant,
        "AP@100": sum(k / n for k, n in enumerate(ranks, 1)) / all_relevant,
        "P@20": sum(relevant[:20]) / 20,
        "nDCG@20": dcg / sum(g / math.log2(n + 1) for n, g in enumerate(ideal, 1)),
    }


grades = st.dictionaries(st.sampled_from(PASSAGES), st.integers(0, 3), min_size=1).filter(lambda g: any(g.values()))


@given(st.lists(st.tuples(st.permutations(range(130)), st.integers(0, 130), grades), min_size=1, max_size=3))
def test_measures_are_those_of_their_definitions(rows):
    ids = np.array([[*order[:length], *[-1] * (130 - length)] for order, length, _ in rows])
    queries = [f"q{n}" for n in range(len(rows))]
    qrels = dict(zip(queries, (own for _, _, own in rows), strict=True))
    found = measured(Rankings(np.ones(ids.shape, np.float32), ids), queries, PASSAGES, qrels)
    for n, (order, length, own) in enumerate(rows):
        expected = slow([PASSAGES[i] for i in order[:length]], own)
        assert {name: values[n] for name, values in found.items()} == pytest.approx(expected, abs=2e-6)


def test_a_query_without_a_relevant_passage_counts_nothing():
    ranking = Rankings(np.zeros((2, 3), np.float32), np.array([[0, 3, 1], [0, 1, -1]]))
    found = measured(ranking, ["q1", "q2"], PASSAGES, {"q1": {"p1": 1, "p3": 1}, "q2": {}}, ["AP@100"])
    assert found == {"AP@100": pytest.approx([(1 / 2 + 2 / 3) / 2, 0], abs=1e-6)}


def test_runs_and_judgements_there_and_back(tmp_path):
    rankings = Rankings(np.array([[2.5, 1.0], [0.5, 0.0]], np.float32), np.array([[4, 0], [1, -1]]))
    write_run(tmp_path / "a.run", "ours", rankings, ["q1", "q2"], PASSAGES)
    assert (tmp_path / "a.run").read_text().splitlines()[0] == "q1 Q0 p4 1 2.500000 ours"
    assert read_run(tmp_path / "a.run") == {"q1": {"p4": 2.5, "p0": 1.0}, "q2": {"p1": 0.5}}
    qrels = {"q1": {"p4": 2, "p7": 0}, "q2": {"p1": 1}}
    write_qrels(tmp_path / "qrels", qrels)
    assert read_qrels(tmp_path / "qrels") == qrels


@pytest.mark.parametrize(
    ("text", "words"),
    [("q1 0 p1", "qrels:1 has 3 columns: expected `query 0 passage grade`"), ("q1 0 p1 x", "grade 'x'")],
)
def test_bad_lines_are_named(tmp_path, text, words):
    (tmp_path / "qrels").write_text(text)
    with pytest.raises(UserError, match=words):
        read_qrels(tmp_path / "qrels")


def test_a_run_is_ranked_by_its_scores_and_nothing_else_is(tmp_path):
    queries = [Query(name, "", "en", "") for name in ("q1", "q2")]
    collection = Collection("c", PASSAGES[:4], PASSAGES[:4], ["en"] * 4, queries, {})
    (tmp_path / "run").write_text("q1 Q0 p3 3 -2 x\nq1 Q0 p0 1 1.0 x\nq1 Q0 p1 2 1.0 x\n")
    scores = run_scorer(collection, tmp_path / "run")("en", "")
    assert ranked(scores, np.zeros(scores.shape, bool), depth=4).ids.tolist() == [[0, 1, 3, -1], [-1, -1, -1, -1]]
    (tmp_path / "run").write_text("q1 Q0 x 1 1.0 x\n")
    with pytest.raises(UserError, match="'x'"):
        run_scorer(collection, tmp_path / "run")
