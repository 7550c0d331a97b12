"""Hints against human-made alignments: verdicts, coverage, and the command on a tiny model."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from eval.hints.__main__ import main
from eval.hints.conditions import BOTH, INDEX, Joined
from eval.hints.verdicts import (
    PARTLY,
    RIGHT,
    STRICT,
    WRONG,
    Judge,
    Judged,
    by_coverage,
    by_level,
    function_words,
    joined,
    shown,
)
from rag_mt.base.types import Origin, Sentence
from rag_mt.text.words import word_spans
from retrievers.ccpr.confidence import Confidence
from retrievers.ccpr.model import PhraseHeads, PhraseSettings, open_phrase_encoder
from retrievers.ccpr.retriever import CcprUnits
from retrievers.index.opening import open_index
from retrievers.registry import build_for, encoder_for

SOURCE = "Der alte Großvater kaufte gestern zwei Häuser ."
TARGET = "Yesterday the old grandfather bought two houses."
LINKS = np.array([(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (5, 5), (6, 6)], np.int32)
FUNCTION = frozenset({"the", "a", "of", "is", "was"})


@pytest.mark.parametrize(
    ("query", "hint", "verdict"),
    [
        ("alte Großvater", "Old grandfather", STRICT),
        ("zwei Häuser", "two house", RIGHT),
        ("Häuser", "the house", RIGHT),
        ("kaufte", "buy", RIGHT),
        ("Häuser", "grandfather's house", PARTLY),
        ("alte Großvater", "grandfather", PARTLY),
        ("Häuser", "three big houses", WRONG),
        ("Häuser", "the", WRONG),
        ("Der", "The", STRICT),
        ("Der", "a", WRONG),
        ("gestern", "grandfather", WRONG),
        ("Der alte", "the old", STRICT),
    ],
)
def test_verdicts(query: str, hint: str, verdict: int) -> None:
    start = SOURCE.index(query)
    spans = np.array([[start, start + len(query)]], np.int32)
    assert Judge("en", FUNCTION).verdicts(SOURCE, TARGET, LINKS, spans, [hint]).tolist() == [verdict]


def test_a_phrase_without_aligned_words_has_no_right_hint() -> None:
    spans = np.array([[0, 3], [4, 8]], np.int32)
    none = np.zeros((0, 2), np.int32)
    assert Judge("en", FUNCTION).verdicts(SOURCE, TARGET, none, spans, ["the", "old"]).tolist() == [WRONG, WRONG]


def test_aligned_words_that_lie_apart_are_compared_as_a_set() -> None:
    links = np.array([(1, 0), (1, 2)], np.int32)
    spans = np.array([[3, 6]], np.int32)
    assert Judge("en", FUNCTION).verdicts("Er hob es", "picked it up", links, spans, ["up pick"]).tolist() == [RIGHT]


def test_lemmas_of_all_languages() -> None:
    for code, one, other in [
        ("en", "houses", "house"),
        ("de", "Häuser", "Haus"),
        ("cs", "domy", "dům"),
        ("fi", "talossa", "talo"),
        ("ru", "дома", "дом"),
        ("ro", "casele", "casă"),
        ("tr", "evler", "ev"),
    ]:
        judge = Judge(code, frozenset())
        assert judge.lemmas([one]) == judge.lemmas([other])


def test_function_words_are_those_of_many_sentences() -> None:
    texts = [f"the city of number{n}" for n in range(50)] + ["no more cities"]
    assert function_words(texts) == {"the", "city", "of"}


def judged() -> Judged:
    """Two sentences: two hints that overlap and one apart, then one."""
    spans = np.array([[0, 0, 5], [0, 3, 9], [0, 10, 12], [1, 0, 4]], np.int32)
    return Judged(spans, np.array([STRICT, RIGHT, WRONG, PARTLY], np.int8), np.array([1, 2, 1, 1]), 3, 10)


def test_the_more_trusted_of_overlapping_hints_is_shown() -> None:
    trust = np.array([0.5, 0.9, 0.2, 0.7], np.float32)
    assert shown(judged(), trust).tolist() == [1, 3, 2]
    assert shown(judged(), np.array([0.5, 0, 0.2, 0.7], np.float32)).tolist() == [3, 0, 2]


def test_precision_by_confidence_and_by_coverage() -> None:
    trust = np.array([0.5, 0.9, 0.2, 0.7], np.float32)
    whole, two, one, none = by_level(judged(), trust, [0.1, 0.6, 0.8, 0.95])
    assert whole and two and one and none
    assert (whole["hints"], whole["sentences"], whole["content"]) == pytest.approx((1, 2 / 3, 0.4))
    assert (two["strict"], two["right"], two["partly"], two["wrong"]) == (0, 0.5, 0.5, 0)
    assert (one["right"], one["content"]) == (1, 0.2)
    assert (none["hints"], none["right"]) == (0, None)
    first, third, more = by_coverage(judged(), trust, [0.1, 0.3, 0.5])
    assert first == one and third == two and more is None
    both = joined([judged(), judged()])
    assert by_level(both, np.tile(trust, 2), [0.1]) == [whole]
    assert both.spans[:, 0].tolist() == [0, 0, 0, 1, 3, 3, 3, 4]


SYLLABLES = ["ba", "ko", "mi", "tur", "len", "sa", "vop", "ri", "dun", "gel"]
RANDOM = random.Random(1)
TEXTS = [" ".join("".join(RANDOM.choices(SYLLABLES, k=3)) for _ in range(6)) for _ in range(36)]
ELSEWHERE = ["Zebras quietly jump over lazy xylophones", "Seven wizards brew quirky potions", "Oxen vex my fjord"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language whose sentences are their own translations, word by word."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "dev").mkdir()
    (folder / "dev" / "de-en.tsv").write_text("".join(f"{t}\t{t}\n" for t in TEXTS))
    rows = [
        {"line": n, "source": t, "target": t, "links": [(w, w) for w in range(len(word_spans(t)))]}
        for n, t in enumerate(TEXTS, 1)
    ]
    (folder / "de-en.dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: Path) -> Path:
    """A phrase model of random weights, which knows equal text again."""
    folder = tmp_path_factory.mktemp("ccpr") / "model"
    shutil.copytree(tiny_encoder, folder / "encoder")
    torch.manual_seed(4)
    heads = PhraseSettings(str(tiny_encoder), 2, 32, dimension=16, index_threshold=0.0, query_threshold=0.0)
    PhraseHeads(heads).save(folder, torch.float32)
    return folder


def indexed(folder: Path, name: str, encoder: Path, texts: list[str]) -> Path:
    opened = encoder_for(name, str(encoder), "cpu", "float32")
    sentences = [Sentence(t, "en", Origin("x", n)) for n, t in enumerate(texts, 1)]
    build_for(name, folder, sentences, opened, "en", show=False)
    return folder


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    return indexed(tmp_path_factory.mktemp("index") / "i", "ccpr", model, ELSEWHERE)


def command(data: Path, index: Path, model: Path, *more: str) -> int:
    usual = ["--data", str(data), "--pairs", str(data), "--index", str(index), "--model", str(model)]
    return main([*usual, "--languages", "de", "--device", "cpu", "--dtype", "float32", *more])


def rows_of(path: Path, condition: str, by: str) -> dict[float, dict[str, float]]:
    rows = json.loads(path.read_text())["rows"]
    return {r["value"]: r for r in rows if r["condition"] == condition and r["by"] == by}


def test_fit_then_judge(data, index, model, tmp_path, capsys) -> None:
    fitted = tmp_path / "confidence.json"
    assert command(data, index, model, "--fit", str(fitted), "--minimum", "0.4") == 0
    made = Confidence.load(fitted)
    assert made.minimum == 0.4
    assert made.fitted["languages"] == ["de"] and made.fitted["conditions"] == [INDEX, BOTH, "other references"]
    assert "| score |" in capsys.readouterr().out
    (model / "confidence.json").write_bytes(fitted.read_bytes())
    try:
        assert command(data, index, model, "--output", str(tmp_path / "o.json")) == 0
    finally:
        (model / "confidence.json").unlink()
    out = capsys.readouterr()
    assert "half B" in out.out and "fitting one" not in out.err
    both, alone = (rows_of(tmp_path / "o.json", name, "confidence") for name in (BOTH, INDEX))
    assert both[0.5]["right"] > 0.95 and both[0.5]["content"] > 0.9
    assert alone[0.5]["hints"] < 0.2  # nothing of it is in the index: silence


@pytest.mark.parametrize("segmentation", ["learned", "ngrams"])
def test_without_a_stored_model_one_is_fitted_on_the_other_half(data, index, model, capsys, segmentation) -> None:
    more = ["--segmentation", segmentation, "--conditions", INDEX, BOTH]
    assert command(data, index, model, *more) == 0
    out = capsys.readouterr()
    assert "fitting one on half A" in out.err
    assert f"{segmentation} segmentation" in out.out


def test_two_indexes_are_searched_as_one(model, tmp_path) -> None:
    folders = [indexed(tmp_path / str(n), "ccpr", model, texts) for n, texts in enumerate((ELSEWHERE, TEXTS[:4]))]
    whole = open_index(indexed(tmp_path / "all", "ccpr", model, ELSEWHERE + TEXTS[:4]))
    both = Joined(*map(open_index, folders))
    vectors, _ = CcprUnits(open_phrase_encoder(str(model), "cpu", "float32")).units(TEXTS[:2], "query")
    scores, ids = both.search(vectors, 7)
    wanted, other_ids = whole.search(vectors, 7)
    assert scores == pytest.approx(wanted, abs=1e-3)
    assert both.reconstruct(ids[:, 0]) == pytest.approx(whole.reconstruct(other_ids[:, 0]), abs=1e-2)
    for a, b in zip(ids[:, 0].tolist(), other_ids[:, 0].tolist(), strict=True):
        assert both.hit(a, 0.0).text == whole.hit(b, 0.0).text


def test_user_mistakes(data, index, model, capsys) -> None:
    assert command(data, index, model, "--languages", "xx") == 2
    assert "no development data of xx" in capsys.readouterr().err
    assert command(data, index, model, "--languages", "cs") == 2
    assert "dev/cs-en.tsv" in capsys.readouterr().err
