"""Sampling, batching and collating of phrase pairs, and positives from other contexts (CPR)."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from finetune.ccpr.batches import Collator, OtherContexts, PhrasePool, batches_of, candidates, joined, surface_hash
from rag_mt.base.errors import UserError
from retrievers.ccpr.model import Tokenised


@pytest.fixture(scope="module")
def pool(pairs):
    return PhrasePool([pairs / "xa-en", pairs / "xb-en"])


@pytest.fixture(scope="module")
def tokenizer(tiny_encoder):
    return AutoTokenizer.from_pretrained(tiny_encoder)


def test_rows_come_from_all_shards(pool):
    assert len(pool) == 120
    rows = pool.rows(range(120))
    assert Counter(row["pair"] for row in rows) == {"xa-en": 60, "xb-en": 60}
    assert pool.facts["xa-en"] == {"aligner": "by hand"}
    assert pool.lengths().tolist() == [max(len(r["source"]), len(r["target"])) for r in rows]


def test_missing_pairs_are_a_sentence(tmp_path):
    with pytest.raises(UserError, match=r"no phrase pairs in .*make them with `python -m finetune.ccpr.pairs`"):
        PhrasePool([tmp_path])


def test_order_is_a_weighted_permutation(pool):
    order = pool.order(1, {}, 1.0)
    assert sorted(order) == list(range(120))
    assert (order == pool.order(1, {}, 1.0)).all()
    assert (order != pool.order(2, {}, 1.0)).any()
    only = pool.order(1, {"ui": 0.0}, 1.0)
    assert {row["domain"] for row in pool.rows(only)} == {"news"}
    assert len(only) == 60
    first = Counter(row["domain"] for seed in range(20) for row in pool.rows(pool.order(seed, {"news": 9.0}, 0.5)[:20]))
    assert first["news"] / first.total() == pytest.approx(0.87, abs=0.06)


def test_batches_hold_every_full_row_once(pool):
    order = pool.order(1, {}, 1.0)
    batches = batches_of(order, pool.lengths(), 16, 1)
    rows = np.concatenate(batches)
    assert [len(b) for b in batches] == [16] * 7
    assert len(set(rows.tolist())) == 112
    spread = [np.ptp(pool.lengths()[b]) for b in batches]
    assert np.mean(spread) < np.ptp(pool.lengths()) / 3


def test_a_batch_holds_what_its_spans_say(pool, tokenizer):
    rows = pool.rows(range(8))
    batch = Collator(tokenizer, "", 64, 6, 5)(rows, np.random.default_rng(1))
    texts = [r["source"] for r in rows] + [r["target"] for r in rows]
    surfaces = {}
    for kind, spans in zip(("source", "target", "source_others", "target_others"), batch.spans, strict=True):
        surfaces[kind] = []
        for row, first, last, hashed in spans.tolist():
            said = tokenizer.decode(batch.input_ids[row, first : last + 1])
            assert surface_hash(said) == hashed
            assert said in texts[row]
            assert (row < 8) == kind.startswith("source")
            surfaces[kind].append((row % 8, said))
    assert len(batch.spans[0]) == len(batch.spans[1]) == 8 * 5
    for (row, ours), (other, theirs) in zip(surfaces["source"], surfaces["target"], strict=True):
        assert row == other
        assert [w[::-1] for w in ours.split()] == theirs.split()
    for kind in ("source_others", "target_others"):
        assert all(len(said.split()) > 2 for _, said in surfaces[kind])
        assert len(set(surfaces[kind])) == len(surfaces[kind]) > 20


def test_a_share_of_the_texts_is_rewritten_each_side_by_itself(pool, tokenizer):
    rows = [row | {"source": row["source"].title(), "target": row["target"].title()} for row in pool.rows(range(32))]
    plain, other = (Collator(tokenizer, "", 64, 6, 50, share)(rows, np.random.default_rng(1)) for share in (0.0, 0.5))
    texts = [[row[mask > 0].tolist() for row, mask in zip(b.input_ids, b.mask, strict=True)] for b in (plain, other)]
    changed = np.array([ours != theirs for ours, theirs in zip(*texts, strict=True)])
    assert 10 < changed.sum() < 54
    assert (changed[:32] != changed[32:]).any()
    for ours, theirs in zip(plain.spans[:2], other.spans[:2], strict=True):
        assert sorted(ours[:, 3].tolist()) == sorted(theirs[:, 3].tolist())


def test_what_is_cut_off_is_left_out(pool, tokenizer):
    rows = pool.rows(range(8))
    batch = Collator(tokenizer, "", 8, 6, 50)(rows, np.random.default_rng(1))
    assert batch.input_ids.shape[1] == 8
    assert 0 < len(batch.spans[0]) < sum(len(r["spans"]) // 4 for r in rows)
    assert int(batch.spans[1][:, 2].max()) < 8


@given(words=st.integers(0, 9), longest=st.integers(1, 7))
def test_candidates_are_all_runs_of_words(words, longest):
    numbers = np.arange(words, dtype=np.int32)
    tokens = Tokenised([], np.stack([2 * numbers, 2 * numbers + 1], 1), np.stack([numbers, numbers], 1))
    wanted = [[i, j] for i in range(words) for j in range(i, min(words, i + longest))]
    places, edges = candidates(tokens, longest)
    assert places.tolist() == wanted
    assert edges.tolist() == [[2 * i, 2 * j + 1] for i, j in wanted]


def test_surfaces_are_compared_without_case_and_spacing():
    assert surface_hash("The  New\nHospital") == surface_hash("the new hospital") != surface_hash("a new hospital")


def test_phrase_pairs_are_shown_in_other_sentences(pool):
    others = OtherContexts(pool, np.arange(120), show=False)
    rows = others.swapped(pool, list(range(40)), np.random.default_rng(3))
    plain = pool.rows(range(40))
    assert rows == others.swapped(pool, list(range(40)), np.random.default_rng(3))
    found = 0
    for row, own in zip(rows, plain, strict=True):
        assert row["source"] == own["source"]
        assert row["target"] != own["target"] or not row["spans"]
        assert row["source_phrases"] == [x for i, x in enumerate(own["spans"]) if i % 4 < 2]
        for a, b, c, d in np.array(row["spans"], int).reshape(-1, 4).tolist():
            assert [w[::-1] for w in row["source"][a:b].split()] == row["target"][c:d].split()
            found += 1
    assert found > 40


def test_a_sentence_that_shares_nothing_has_no_pairs():
    row = {"pair": "xa-en", "source": "a b", "target": "A B", "spans": [0, 1, 0, 1]}
    other = {"pair": "xa-en", "source": "c d", "target": "C D", "spans": [0, 1, 0, 1]}
    made = joined(row, other)
    assert (made["spans"], made["target"], made["source_phrases"]) == ([], "C D", [0, 1])
