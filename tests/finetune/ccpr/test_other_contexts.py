"""Positives from other contexts (CPR)."""

from __future__ import annotations

import numpy as np

from finetune.ccpr.batches import OtherContexts, PhrasePool, joined


def test_phrase_pairs_are_shown_in_other_sentences(pairs):
    pool = PhrasePool([pairs / "xa-en", pairs / "xb-en"])
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
