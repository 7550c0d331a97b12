"""Development scores against plain loops over ranks."""

from __future__ import annotations

import numpy as np
import pytest

from finetune.mdpr.dev import DevSet, dev_scores, read_dev
from finetune.mdpr.relevance import Example, Passage, write_examples


def ranked(query, texts, vectors):
    """Places of the texts, the most similar first."""
    return sorted(range(len(texts)), key=lambda n: -float(query @ vectors[texts[n]]))


def slow_mrr(asked, searched, vectors):
    total = 0.0
    for query, relevant in zip(asked.queries, asked.relevant, strict=True):
        ids, texts = list(searched.passages), list(searched.passages.values())
        for rank, place in enumerate(ranked(vectors[query], texts, vectors)[:100], 1):
            if ids[place] in relevant:
                total += 1 / rank
                break
    return total / len(asked.queries)


def slow_average_precision(asked, sets, vectors):
    total = 0.0
    for query, relevant in zip(asked.queries, asked.relevant, strict=True):
        rows = [(key, text) for s in sets for key, text in s.passages.items()]
        order = ranked(vectors[query], [text for _, text in rows], vectors)
        found, precision = 0, 0.0
        for rank, place in enumerate(order, 1):
            if rows[place][0] in relevant:
                found += 1
                precision += found / rank
        total += precision / found
    return total / len(asked.queries)


@pytest.fixture
def sets() -> list[DevSet]:
    made = []
    for code in ("de", "en", "ru"):
        passages = {str(n): f"{code} passage {n}" for n in range(130)}
        queries = [f"{code} query {n}" for n in range(9)]
        relevant = [frozenset({str(n)} | ({str(n + 50)} if n % 4 == 0 else set())) for n in range(9)]
        made.append(DevSet(code, queries, relevant, passages))
    return made


def test_scores_are_those_of_plain_loops(sets):
    rng = np.random.default_rng(4)
    texts = [t for s in sets for t in (*s.queries, *s.passages.values())]
    vectors = {t: rng.standard_normal(6).astype(np.float32) for t in texts}
    for s in sets:  # so that some are found early
        for query, relevant in zip(s.queries, s.relevant, strict=True):
            vectors[query] = vectors[query] + vectors[s.passages[min(relevant)]]
    found = dev_scores(sets, lambda texts, kind: np.array([vectors[t] for t in texts]))
    mrr = {(a.language, b.language): slow_mrr(a, b, vectors) for a in sets for b in sets}
    same = np.mean([mrr[s.language, s.language] for s in sets])
    cross = np.mean([score for (a, b), score in mrr.items() if a != b])
    mixed = np.mean([slow_average_precision(s, sets, vectors) for s in sets])
    expected = {"same": same, "cross": cross, "mixed": mixed, "average": np.mean([same, cross, mixed])}
    expected |= {s.language: mrr[s.language, s.language] for s in sets}
    assert found == pytest.approx({name: 100 * value for name, value in expected.items()}, abs=0.006)
    assert 10 < found["same"] < 100


def test_one_language_and_none(sets):
    vectors = np.eye(200, dtype=np.float32)
    found = dev_scores(sets[:1], lambda texts, kind: vectors[: len(texts)])
    assert found == {"de": 100.0, "average": 100.0}
    assert dev_scores([], lambda texts, kind: vectors) == {}


def test_sets_on_disk(tmp_path):
    examples = [Example(f"q{n}", f"query {n}", (Passage(str(n), f"text {n}", "A title"),)) for n in range(10)]
    write_examples(tmp_path / "de.jsonl", examples)
    (tmp_path / "de.passages.jsonl").write_text('{"docid": "x", "text": "further"}\n')
    (found,) = read_dev(tmp_path, 5)
    assert found.queries == [f"query {n}" for n in range(0, 10, 2)]
    assert found.relevant[1] == {"2"}
    assert len(found.passages) == 11
    assert found.passages["3"] == "A title text 3"
    assert found.passages["x"] == "further"
