"""BM25 and RM3 against slow references written from their formulas."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.passages.runs import Rm3Settings, expanded
from rag_mt.base.errors import UserError
from retrievers.bm25 import Bm25, Bm25Settings
from retrievers.index.manifest import TERM_FILES

TEXTS = ["a b b c", "a a a", "b c d e f", "e", "c c b"]


def slow_scores(texts, query, k1, b):
    """The formula of the module, word by word."""
    split = [text.split() for text in texts]
    mean = sum(map(len, split)) / len(split)
    scores = []
    for words in split:
        score = 0.0
        for term, weight in query.items():
            having = sum(term in other for other in split)
            if count := words.count(term):
                idf = math.log(1 + (len(split) - having + 0.5) / (having + 0.5))
                score += weight * idf * count / (count + k1 * (1 - b + b * len(words) / mean))
        scores.append(score)
    return scores


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (1.5, 0.75), (0.0, 0.0), (2.0, 1.0)])
def test_scores_are_those_of_the_formula(k1, b):
    index = Bm25.build(TEXTS, "zh", Bm25Settings(k1, b))  # no stemmer
    queries = [{"a": 1.0, "b": 2.0}, {"e": 0.25, "unknown": 1.0}, {}]
    expected = [slow_scores(TEXTS, query, k1, b) for query in queries]
    assert index.scores(queries) == pytest.approx(np.array(expected), abs=1e-5)


words = st.lists(st.sampled_from("abcdefg"), max_size=8).map(" ".join)


@given(st.lists(words, min_size=1, max_size=12).filter(lambda texts: any(texts)), words, st.integers(1, 15))
def test_top_is_the_sorted_scores(texts, query, k):
    index = Bm25.build(texts, "zh")
    asked = index.queries([query, "g"], "zh")
    scores, found = index.top(asked, k)
    for row, own in enumerate(index.scores(asked)):
        best = sorted((-score, n) for n, score in enumerate(own.tolist()) if score > 0)[:k]
        assert found[row].tolist() == [n for _, n in best] + [-1] * (k - len(best))
        assert scores[row, : len(best)].tolist() == [-score for score, _ in best]


def test_texts_that_are_left_out_are_not_found():
    index = Bm25.build(TEXTS, "zh")
    assert index.top([{"e": 1.0}] * 2, 2, [[3], []])[1].tolist() == [[2, -1], [3, 2]]


def test_saved_and_opened_it_is_the_same_and_stays_on_disk(tmp_path):
    index = Bm25.build(["Die neue Brücke", "Der Stadtrat tagt", "neue Häuser"], "de", Bm25Settings(1.2, 0.6))
    index.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(TERM_FILES)
    opened = Bm25.open(tmp_path)
    asked = opened.queries(["neuer Stadtrat"], "de")
    assert opened.scores(asked).tolist() == index.scores(asked).tolist()
    assert (opened.settings, opened.numbers) == (index.settings, index.numbers)
    assert isinstance(opened.tokens, np.memmap)
    assert opened.problem(3) == "" and opened.problem(4) != ""
    assert np.array_equal(opened.counts(0)[1], index.counts(0)[1])


def test_each_text_by_the_rules_of_its_language():
    index = Bm25.build(["Die Häuser der Stadt", "Дома города"], ["de", "ru"])
    assert index.top(index.queries(["Haus"], "de"), 1)[1].tolist() == [[0]]
    assert index.top(index.queries(["дом"], "ru"), 1)[1].tolist() == [[1]]


@pytest.mark.parametrize(("k1", "b"), [(-1, 0.5), (math.nan, 0.5), (1, 1.5)])
def test_settings_that_make_no_sense(k1, b):
    with pytest.raises(UserError, match="expected a number"):
        Bm25Settings(k1, b)


def test_texts_without_words():
    with pytest.raises(UserError, match="none of the 2 texts has a word"):
        Bm25.build(["...", ""], "en")


def slow_rm3(texts, query, settings, k1=0.9, b=0.4):
    """RM1 from its sum over feedback texts, then the mixture."""
    scores = slow_scores(texts, query, k1, b)
    best = sorted((-score, n) for n, score in enumerate(scores) if score > 0)[: settings.texts]
    whole = sum(-score for score, _ in best)
    model = Counter()
    for score, n in best:
        for term, count in Counter(texts[n].split()).items():
            having = sum(term in text.split() for text in texts)
            if having <= settings.common * len(texts):
                model[term] += -score / whole * count / len(texts[n].split())
    kept = dict(sorted(model.items(), key=lambda item: -item[1])[: settings.terms])
    size = sum(query.values())
    return {
        term: settings.weight * query.get(term, 0)
        + (1 - settings.weight) * size * kept.get(term, 0) / sum(kept.values())
        for term in {**query, **kept}
    }


def test_rm3_is_that_of_its_formula():
    settings = Rm3Settings(texts=2, terms=3, weight=0.3, common=0.5)
    query = {"b": 2.0, "d": 1.0}
    (found,) = expanded(Bm25.build(TEXTS, "zh"), [query], settings)
    assert found == pytest.approx(slow_rm3(TEXTS, query, settings), abs=1e-6)
    assert sum(found.values()) == pytest.approx(3)


def test_rm3_leaves_a_query_alone_that_finds_nothing():
    query = {"unknown": 1.0}
    assert expanded(Bm25.build(TEXTS, "zh"), [query], Rm3Settings()) == [query]
