"""Confidence: the regression, its features, and a retriever that keeps silent where it should."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rag_mt.base.errors import UserError
from rag_mt.base.types import Origin, Sentence
from rag_mt.text.words import word_spans
from retrievers.calibration import calibrate, calibrate_for, default_index, set_confidence
from retrievers.ccpr.confidence import (
    FEATURES,
    FILE,
    Confidence,
    back_features,
    capitalised,
    confidence_in,
    fit_confidence,
    fit_logistic,
    likeness,
    numbers_of,
    search_features,
    sigmoid,
    string_features,
)
from retrievers.ccpr.model import PhraseHeads, PhraseSettings, open_phrase_encoder
from retrievers.ccpr.retriever import ALL, ALONE, CcprRetriever, CcprUnits, best_hits, candidates
from retrievers.dense import DenseRetriever
from retrievers.index.build import build_index
from retrievers.index.manifest import CONFIDENCE
from retrievers.index.opening import open_index
from retrievers.registry import build_for, confidence_for, encoder_for, open_retriever


def by_score(middle: float, steepness: float = 400.0, minimum: float = 0.5) -> Confidence:
    """A confidence of a half at this score."""
    return Confidence(("score",), (steepness,), -steepness * middle, (0.0,), (1.0,), minimum, {})


def test_one_binary_feature_gives_the_odds_of_each_group() -> None:
    columns = np.repeat([[0.0], [1.0]], [10, 20], axis=0)
    labels = np.array([1] * 3 + [0] * 7 + [1] * 15 + [0] * 5, dtype=bool)
    bias, weight = fit_logistic(columns, labels, penalty=0)
    assert sigmoid(np.array([bias, bias + weight])) == pytest.approx([0.3, 0.75], abs=1e-9)


@pytest.mark.parametrize("penalty", [0.1, 1.0, 50.0])
def test_the_fit_is_where_the_slope_is_zero(penalty: float) -> None:
    rng = np.random.default_rng(1)
    columns = rng.standard_normal((400, 5))
    columns[:, 4] = columns[:, 3]  # collinear
    labels = rng.random(400) < sigmoid(columns @ np.array([2.0, -1, 0, 0.5, 0.5]) - 0.7)
    found = fit_logistic(columns, labels, penalty)
    wrong = sigmoid(found[0] + columns @ found[1:]) - labels
    assert wrong.sum() == pytest.approx(0, abs=1e-5)
    assert columns.T @ wrong + penalty * found[1:] == pytest.approx(np.zeros(5), abs=1e-5)
    assert found[4] == pytest.approx(found[5])


def test_separable_data_stay_finite_and_a_strong_penalty_leaves_the_base_rate() -> None:
    columns = np.linspace(-1, 1, 40)[:, None]
    found = fit_logistic(columns, columns[:, 0] > 0)
    assert np.isfinite(found).all() and found[1] > 1
    bias, weight = fit_logistic(columns, np.arange(40) < 10, penalty=1e9)
    assert sigmoid(np.array([bias]))[0] == pytest.approx(0.25)
    assert abs(weight) < 1e-6


def test_a_model_is_fitted_stored_and_read_again(tmp_path) -> None:
    rng = np.random.default_rng(2)
    score = rng.normal(0.7, 0.1, 3000).astype(np.float32)
    right = rng.random(3000) < sigmoid(30 * (score.astype(np.float64) - 0.7))
    table = {"score": score, "share": np.ones(3000, np.float32)}
    made = fit_confidence(table, right, ("score", "share"), minimum=0.4, fitted={"languages": ["de"]})
    trust = made.of(table, np.zeros(3000, bool))
    for low, high in ((0.1, 0.3), (0.4, 0.6), (0.7, 0.9)):
        inside = (trust > low) & (trust < high)
        assert right[inside].mean() == pytest.approx(trust[inside].mean(), abs=0.06)
    assert made.weights[1] == pytest.approx(0)  # it never varies
    made.save(tmp_path / FILE)
    assert confidence_in(tmp_path) == made
    assert confidence_in(tmp_path / "none") is None
    assert made.of(table, np.ones(3000, bool)).max() == 0
    with pytest.raises(UserError, match=r"wants share, .*--fit"):
        made.of({"score": score}, right)
    with pytest.raises(UserError, match=r"3000 hits of which 3000 are right"):
        fit_confidence(table, np.ones(3000, bool), ("score",))


@pytest.mark.parametrize(
    "change", [{"minimum": 2}, {"weights": [1]}, {"scales": [0.0]}, {"more": 1}, {"weights": ["x"]}, {"minimum": None}]
)
def test_a_file_of_another_make_is_refused(tmp_path, change: dict[str, object]) -> None:
    by_score(0.5).save(tmp_path / FILE)
    contents = json.loads((tmp_path / FILE).read_text()) | change
    if change == {"weights": [1]}:
        contents["weights"] = [1, 2]
    (tmp_path / FILE).write_text(json.dumps(contents))
    with pytest.raises(UserError, match="is no confidence model"):
        confidence_in(tmp_path)


def test_features_of_the_search() -> None:
    scores = np.array([[0.9, 0.8, 0.6, 0.4], [0.9, 0.8, 0.8, 0.7], [0.5, -1, -1, -1]], np.float32)
    surfaces = np.array([[3, 3, 7, 8], [1, 1, 1, 1], [2, -1, -1, -1]])
    made = search_features(scores, surfaces)
    assert made["score"] == pytest.approx([0.9, 0.9, 0.5])
    assert made["margin"] == pytest.approx([0.3, 0.2, 0.0])
    assert made["lead"] == pytest.approx([0.4, 0.2, 0.0])
    assert made["share"] == pytest.approx([0.5, 1, 1])
    assert all(own.shape == (0,) for own in search_features(scores[:0], surfaces[:0]).values())


def test_features_of_the_way_back() -> None:
    # Sentence 0: two words apart and the span of both; sentence 1: one word.
    spans = np.array([[0, 0, 3], [0, 0, 8], [0, 4, 8], [1, 0, 5]], np.int32)
    vectors = np.array([[1, 0, 0], [0.8, 0.6, 0], [0, 0, 1], [0, 1, 0]], np.float32)
    hits = np.array([[1, 0, 0], [0.6, 0, 0.8], [0, 1, 0]], np.float32)
    made = back_features(hits, np.array([0, 0, 3]), vectors, spans)
    assert made["back first"].tolist() == [1, 0, 1]
    assert made["back rival"] == pytest.approx([0.2, 0.12, 1])  # against the span of both words
    assert made["back margin"] == pytest.approx([1, -0.2, 1])  # against the other word


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("20 000 Menschen", "20,000 people"),
        ("20.000", "20000"),
        ("12. Mai 2014", "May 12, 2014"),
        ("2,5 Millionen", "2.5 million"),
        ("٢٠١٩", "2019"),
        ("zwei", "two"),
    ],
)
def test_equal_numbers(one: str, other: str) -> None:
    assert numbers_of(one) == numbers_of(other)


@pytest.mark.parametrize(("one", "other"), [("2014", "2015"), ("5 of 10", "510"), ("1990", "90"), ("20 000", "20")])
def test_different_numbers(one: str, other: str) -> None:
    assert numbers_of(one) != numbers_of(other)


@given(st.text(max_size=30))
def test_numbers_hold_all_digits_of_any_text(text: str) -> None:
    digits = sum(c.isdecimal() for c in text)
    assert sum(map(len, numbers_of(text))) == digits


@given(st.text(max_size=20), st.text(max_size=20))
def test_likeness_is_symmetric_and_within_bounds(one: str, other: str) -> None:
    assert 0 <= likeness(one, other) == likeness(other, one) <= 1


def test_likeness_sees_through_scripts_and_diacritics() -> None:
    for one, other in [("Путин", "Putin"), ("Škoda", "SKODA"), ("Çağla Kubat", "Cagla Kubat"), ("Меркель", "Merkel")]:
        assert likeness(one, other) == 1
    assert likeness("Terrence", "derrick") < 0.3 and likeness("Marissa Mayer", "amy palmer") < 0.3
    assert 0.3 < likeness("Moskau", "Moscow") < 1


def test_names_are_capitals_inside_the_sentence() -> None:
    text = "„Gestern kam Angela Merkel an“, sagte er."
    assert not capitalised(text, 1, 8)
    assert capitalised(text, 13, 26)
    assert capitalised(text, 1, 26)
    assert not capitalised(text, 32, 37)


def test_features_of_the_letters() -> None:
    sources = ["Da kam Terrence an.", "Es waren 25 Leute.", "zwanzig Leute"]
    targets = ["There is a Derrick here.", "There were 52 people.", "There were 20 people."]
    queries = [(sources[0], 7, 15), (sources[1], 9, 17), (sources[2], 0, 13)]
    hits = [(targets[0], 11, 18), (targets[1], 11, 20), (targets[2], 11, 20)]
    made, unlike = string_features(queries, hits)
    assert unlike.tolist() == [False, True, False]
    assert made["names unlike"][0] > 0.7 and made["names unlike"][1:].tolist() == [0, 0]
    assert made["query digits"].tolist() == [0, 1, 0]
    assert made["hit digits alone"].tolist() == [0, 0, 1]
    assert made["words"].tolist() == [1, 2, 2]
    assert made["length ratio"][0] == pytest.approx(np.log(8 / 9))
    assert made["length gap"][0] == pytest.approx(np.log(9 / 8))


ENGLISH = [
    "The new hospital opened in 2019 with great joy",
    "Farmers fear a poor harvest after the dry summer",
    "Our train was late because of heavy snow",
    "A new hospital was planned by the city",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory, tiny_encoder):
    """A phrase model of random weights, which knows equal text again and little else."""
    folder = tmp_path_factory.mktemp("ccpr") / "model"
    torch.manual_seed(4)
    settings = PhraseSettings(
        encoder=str(tiny_encoder), layer=2, hidden=32, dimension=16, index_threshold=0.0, query_threshold=0.0
    )
    shutil.copytree(tiny_encoder, folder / "encoder")
    PhraseHeads(settings).save(folder, torch.float32)
    return folder


@pytest.fixture
def opened(model, tmp_path):
    maker = CcprUnits(open_phrase_encoder(str(model), "cpu", "float32"))
    sentences = [Sentence(t, "en", Origin("en.txt", n)) for n, t in enumerate(ENGLISH, 1)]
    build_index(tmp_path / "i", sentences, maker, retriever="ccpr", language="en", show=False)
    return open_index(tmp_path / "i", maker.settings), maker


def test_hints_where_the_counterpart_is_there_and_silence_where_it_is_not(opened) -> None:
    index, maker = opened
    retriever = CcprRetriever("ccpr", index, maker, by_score(0.999))
    there, missing, none = retriever.retrieve(
        [Sentence(t, "xx") for t in (ENGLISH[1], "Zzyzx qqq wyvern knolls", "...")]
    )
    assert there and not missing and not none
    assert all(hint.phrase == hint.source_span.of(ENGLISH[1]) for hint in there)
    assert all(0.5 <= hint.hit.score <= 1 for hint in there)
    spans = sorted((h.source_span.start, h.source_span.end) for h in there)
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    assert [h.hit.score for h in there] == sorted((h.hit.score for h in there), reverse=True)


def test_left_out_sentences_are_not_found(opened) -> None:
    index, maker = opened
    retriever = CcprRetriever("ccpr", index, maker, by_score(0.999))
    found = retriever.retrieve([Sentence(t, "xx") for t in ENGLISH], list(range(len(ENGLISH))))
    assert not found[1] and not found[2]  # which share no word with the others
    assert all(h.hit.sentence.text != text for text, hints in zip(ENGLISH, found, strict=True) for h in hints)
    assert all(retriever.retrieve([Sentence(t, "xx") for t in ENGLISH]))


def test_other_numbers_are_never_shown(opened) -> None:
    index, maker = opened
    retriever = CcprRetriever("ccpr", index, maker, by_score(-2.0), cut_off=0.0)  # trusts whatever it finds
    (hints,) = retriever.retrieve([Sentence("The new hospital opened in 2018 with great joy", "xx")])
    assert hints
    for hint in hints:
        asked = numbers_of(hint.source_span.of("The new hospital opened in 2018 with great joy"))
        assert not asked or asked == numbers_of(hint.phrase)
    found = best_hits(index, ["in 2018 with"], candidates(maker, ["in 2018 with"]))
    assert found.unlike.any()


def test_equal_surfaces_are_one_hit_with_its_best_context(opened) -> None:
    """`new hospital` stands in two sentences: the better context is shown and the other is no rival of it."""
    index, maker = opened
    asked = candidates(maker, [ENGLISH[3]])
    asked = replace(asked, queries=asked.vectors[asked.asked])  # as in their context alone
    found = best_hits(index, [ENGLISH[3]], asked, k=200)
    row = [ENGLISH[3][a:b] for _, a, b in found.spans.tolist()].index("new hospital")
    assert found.hits[row].sentence.text == ENGLISH[3]
    scores, ids = index.search(asked.queries[row : row + 1], 200)
    others = [s for s, i in zip(scores[0], ids[0].tolist(), strict=True) if index.hit(i, 0).text != "new hospital"]
    assert found.features["margin"][row] == pytest.approx(scores[0, 0] - max(others), abs=1e-5)
    assert found.features["share"][row] == pytest.approx(2 / len(index))
    assert set(FEATURES) == set(found.features)
    assert all(own.shape == (len(found.hits),) and np.isfinite(own).all() for own in found.features.values())


def test_phrases_are_looked_up_by_their_sentence_and_by_themselves(opened) -> None:
    _, maker = opened
    texts = [ENGLISH[1], "hospital", ENGLISH[3], ""]
    asked = candidates(maker, texts)
    spans, own = asked.spans[asked.asked], asked.vectors[asked.asked]
    for (n, a, b), vector, query in zip(spans.tolist(), own, asked.queries, strict=True):
        phrase = texts[n][a:b]
        mixed = vector + ALONE * maker.span_vectors([phrase], np.array([[0, 0, len(phrase)]], np.int32))[0]
        np.testing.assert_allclose(query, mixed / np.linalg.norm(mixed), atol=1e-5)
    (whole,) = np.flatnonzero(spans[:, 0] == 1)
    np.testing.assert_allclose(asked.queries[whole], own[whole], atol=1e-5)
    assert np.abs(asked.queries - own).max() > 0.01
    assert candidates(maker, ["..."]).queries.shape == (0, maker.dimension)


def test_all_spans_of_up_to_four_words_are_looked_up_instead(opened) -> None:
    index, maker = opened
    texts = ["", "One new hospital was opened", "..."]
    asked = candidates(maker, texts, "ngrams")
    words = word_spans(texts[1]).tolist()
    wanted = [[1, words[a][0], words[b][1]] for a in range(5) for b in range(a, min(a + 4, 5))]
    assert asked.spans[asked.asked].tolist() == wanted
    own = maker.scored(texts, ALL)
    np.testing.assert_array_equal(asked.chances, own[2])
    retriever = CcprRetriever("ccpr", index, maker, by_score(-2.0), cut_off=0.0)
    sentence = [Sentence(ENGLISH[3], "xx")]
    learned = retriever.retrieve(sentence)
    retriever.segmentation = "ngrams"
    assert retriever.retrieve(sentence) != learned
    assert all(len(word_spans(hint.source_span.of(ENGLISH[3]))) <= 4 for hint in retriever.retrieve(sentence)[0])


def test_the_registry_opens_it_with_the_minimum_of_the_model_or_of_the_index(model, opened, caplog) -> None:
    index, _ = opened
    encoder = encoder_for("ccpr", str(model), device="cpu", dtype="float32")

    def opening(source: str = "de") -> CcprRetriever | DenseRetriever:
        return open_retriever("ccpr", index.folder, encoder, source_language=source, target_language="en")

    caplog.set_level("INFO", "rag_mt")
    calibrate_for(index.folder, encoder, ENGLISH, "de", 0.5)
    assert isinstance(opening(), DenseRetriever)
    assert sum("no confidence model" in r.message for r in caplog.records) == 1
    by_score(0.9, minimum=0.3).save(model / FILE)
    try:
        assert isinstance(opening(), CcprRetriever) and opening().cut_off == 0.3  # the index's is a score
        set_confidence(index, 0.8, "de")
        assert opening().cut_off == opening("de-AT").cut_off == 0.8 and opening("cs").cut_off == 0.3
        cut = calibrate_for(index.folder, encoder, ENGLISH, "cs", 0.5)
        assert opening("cs").cut_off == pytest.approx(cut) and 0 < cut <= 1
    finally:
        (model / FILE).unlink()
    assert opening().cut_off is None  # confidences are no scores
    manifest = open_index(index.folder).manifest
    assert manifest.cut_off("tr", CONFIDENCE) is None
    assert manifest.cut_offs() == {}
    with pytest.raises(UserError, match="a confidence of 2 is none"):
        set_confidence(index, 2, "de")


def test_calibration_with_a_confidence_model_is_a_quantile_of_confidences(opened) -> None:
    index, maker = opened
    confidence = replace(by_score(0.9, 10.0), minimum=0.0)
    cut = calibrate(index, maker, ENGLISH, "de", 0.25, confidence=confidence)
    retriever = CcprRetriever("ccpr", index, maker, confidence, 0.0)
    found = [h.hit.score for hints in retriever.retrieve([Sentence(t, "de") for t in ENGLISH]) for h in hints]
    assert cut == pytest.approx(np.quantile(found, 0.25))


def test_an_index_of_sentences_by_a_phrase_model_has_a_cut_off_of_scores(model, tmp_path) -> None:
    encoder = encoder_for("sentence", str(model), device="cpu", dtype="float32")
    build_for("sentence", tmp_path / "i", [Sentence(t, "en") for t in ENGLISH], encoder, "en", show=False)
    by_score(0.9).save(model / FILE)
    try:
        cut = calibrate_for(tmp_path / "i", encoder, ENGLISH, "de", 0.5)
        assert open_index(tmp_path / "i").manifest.cut_offs() == {"de": cut}
        retriever = open_retriever("sentence", tmp_path / "i", encoder, source_language="de", target_language="en")
        assert isinstance(retriever, DenseRetriever) and retriever.cut_off == cut
    finally:
        (model / FILE).unlink()


def test_the_sample_index_needs_no_cut_off(model, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("RAG_MT_CACHE", str(tmp_path / "cache"))
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for code in ("en", "de"):
        (corpus / f"{code}.txt").write_text("\n".join(ENGLISH))
    encoder = encoder_for("ccpr", str(model), device="cpu", dtype="float32")
    with_cut_off = default_index("ccpr", "en", encoder, corpus=corpus)
    assert set(open_index(with_cut_off).manifest.thresholds) == {"de"}
    by_score(0.9).save(model / FILE)
    try:
        without = default_index("ccpr", "en", encoder, corpus=corpus)
    finally:
        (model / FILE).unlink()
    assert open_index(without).manifest.thresholds == {}


def test_the_confidence_model_of_an_index_comes_first(model, tmp_path) -> None:
    encoder = encoder_for("ccpr", str(model), device="cpu", dtype="float32")
    folder = tmp_path / "index"
    build_for("ccpr", folder, [Sentence(text, "en") for text in ENGLISH], encoder, "en", show=False)
    assert confidence_for(encoder, folder) is None
    by_score(0.9).save(folder / FILE)
    opened = open_retriever("ccpr", folder, encoder, source_language="de", target_language="en")
    assert isinstance(opened, CcprRetriever)
    assert opened.confidence == by_score(0.9)
    by_score(0.7).save(model / FILE)
    try:
        assert confidence_for(encoder, folder) == by_score(0.9)
        (folder / FILE).unlink()
        assert confidence_for(encoder, folder) == by_score(0.7)
    finally:
        (model / FILE).unlink()
