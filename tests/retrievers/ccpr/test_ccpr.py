"""CCPR's heads, its spans of whole words and its place among the retrieval systems."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_mt.base.errors import UserError
from rag_mt.text.words import word_spans
from retrievers.ccpr.model import PhraseHeads, PhraseSettings, open_phrase_encoder, tokenise
from retrievers.ccpr.retriever import CcprUnits
from retrievers.encoders.encoder import open_encoder
from retrievers.index.opening import open_index
from retrievers.registry import build_for, encoder_for, open_retriever

TEXTS = [
    "The new hospital will open its doors next spring.",
    "Новая больница откроет свои двери следующей весной.",
    "",
    "— 12 % …",
    "Dr. O'Neill's well-known 3.5-litre engine (2019)",
]


def phrase_model(folder: Path, encoder: Path, **changes: object) -> Path:
    """An untrained phrase model on the tiny encoder that takes about half of all spans for phrases."""
    shutil.copytree(encoder, folder / "encoder")
    torch.manual_seed(4)
    values = {"layer": 2, "hidden": 32, "dimension": 8, "index_threshold": 0.5, "query_threshold": 0.5, **changes}
    heads = PhraseHeads(PhraseSettings(encoder=str(encoder), **values))
    with torch.no_grad():  # chances all over the range, half of them above a half
        for layer in filter(None, (heads.segment, heads.decide)):
            layer.weight *= 9
            layer.bias.zero_()
    heads.save(folder, torch.float32)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_encoder):
    return phrase_model(tmp_path_factory.mktemp("ccpr") / "model", tiny_encoder, segment_width=4)


@pytest.fixture(scope="module")
def units(folder):
    return CcprUnits(open_phrase_encoder(str(folder), "cpu", "float32"))


@pytest.mark.parametrize("width", [0, 4])
@pytest.mark.parametrize("normalised", [True, False])
def test_projecting_tokens_once_is_the_linear_layer_on_the_pair(width, normalised):
    heads = PhraseHeads(
        PhraseSettings("x", 1, hidden=6, dimension=3, segment_width=width, normalised=normalised)
    ).eval()
    first, last = torch.randn(5, 6), torch.randn(5, 6)
    starts, ends = heads.project(first)[0], heads.project(last)[1]
    pair = torch.cat([first, last], dim=1)
    wanted = heads.phrase(pair)
    if normalised:
        wanted = wanted / wanted.norm(dim=1, keepdim=True)
    torch.testing.assert_close(heads.vectors(starts + ends), wanted)
    logits = heads.segment(pair)
    if width:
        logits = heads.decide(torch.relu(logits))
    torch.testing.assert_close(heads.logits(starts + ends), logits[:, 0])


def test_vectors_are_those_of_the_hidden_states(folder, units):
    """Against the encoder's own states and the formula, without any of the batching."""
    encoder = open_encoder(str(folder / "encoder"), device="cpu", dtype="float32")
    text = TEXTS[0]
    (made,) = encoder.states([text], 2)
    span = (4, 16)  # new hospital
    first = next(i for i, (a, _) in enumerate(made.offsets.tolist()) if a == span[0])
    last = next(i for i, (_, b) in enumerate(made.offsets.tolist()) if b == span[1])
    pair = torch.from_numpy(np.concatenate([made.states[first], made.states[last]]))
    wanted = units.encoder.heads.phrase(pair).detach()
    vectors = units.span_vectors(TEXTS, np.array([[0, *span]], np.int32))
    np.testing.assert_allclose(vectors[0], (wanted / wanted.norm()).numpy(), atol=1e-5)


def test_units_are_the_likely_spans_of_whole_words(units):
    vectors, spans, chances = units.scored(TEXTS, 0.5)
    assert len(vectors) == len(spans) == len(chances) > 10
    assert (chances > 0.5).all()
    assert (np.lexsort((spans[:, 2], spans[:, 1], spans[:, 0])) == np.arange(len(spans))).all()
    assert set(spans[:, 0].tolist()) <= {0, 1, 4}
    for text, start, end in spans.tolist():
        words = word_spans(TEXTS[text])
        first = words[:, 0].tolist().index(start)
        last = words[:, 1].tolist().index(end)
        assert 0 <= last - first < 6
        assert any(map(str.isalpha, TEXTS[text][start:end]))
    np.testing.assert_allclose(units.span_vectors(TEXTS, spans), vectors, atol=1e-5)
    every = units.scored(TEXTS, 0.0)[1]
    assert len(every) > len(spans)
    assert {*map(tuple, spans.tolist())} < {*map(tuple, every.tolist())}
    assert units.units(TEXTS, "query")[1].tolist() == spans.tolist()


def test_all_spans_of_a_text_are_candidates(units):
    text = "one two three four five six seven"
    spans = units.scored([text], 0.0)[1]
    assert len(spans) == 7 + 6 + 5 + 4 + 3 + 2
    assert text[slice(*spans[5, 1:])] == "one two three four five six"


@settings(max_examples=30)
@given(st.lists(st.text("ab1 .ßИя-’…一\u0301", max_size=25), max_size=4))
def test_any_text_has_units_inside_it(units, texts):
    vectors, spans, _ = units.scored(texts, 0.0)
    assert np.isfinite(vectors).all()
    for text, start, end in spans.tolist():
        words = word_spans(texts[text])
        assert start in words[:, 0]
        assert end in words[:, 1]
        assert texts[text][start:end].strip() == texts[text][start:end] != ""


def test_words_that_are_cut_off_have_no_units(units):
    text = "word " * 100
    _, spans, _ = units.scored([text], 0.0)
    assert 0 < spans[:, 2].max() < 340
    cut = np.array([[0, 0, 4], [0, 495, 499]], np.int32)
    vectors = units.span_vectors([text], cut)
    assert np.linalg.norm(vectors, axis=1).round(3).tolist() == [1, 0]


def test_tokens_of_words(units):
    (made,) = tokenise(units.encoder.tokenizer, ["Zwei Ärzte"], "query: ")
    assert made.words.tolist() == [[0, 4], [5, 10]]
    pieces = units.encoder.tokenizer.convert_ids_to_tokens(made.ids)
    for (first, last), word in zip(made.bounds.tolist(), ("Zwei", "Ärzte"), strict=True):
        assert "".join(pieces[first : last + 1]).replace("▁", "") == word
    assert made.first_token(np.array([0, 1, 5], np.int32)).tolist() == [made.bounds[0, 0], -1, made.bounds[1, 0]]
    assert made.last_token(np.array([4, 9, 10], np.int32)).tolist() == [made.bounds[0, 1], -1, made.bounds[1, 1]]


def test_an_index_of_phrases_finds_them_again(tmp_path, folder, tiny_encoder, parallel):
    encoder = encoder_for("ccpr", str(folder), "cpu", "float32")
    build_for("ccpr", tmp_path / "i", parallel["en"], encoder, "en", show=False)
    manifest = open_index(tmp_path / "i").manifest
    assert manifest.settings["units"] == "ccpr"
    assert (manifest.settings["index_threshold"], manifest.settings["query_threshold"]) == (0.5, 0.5)
    retriever = open_retriever("ccpr", tmp_path / "i", encoder, source_language="de", target_language="en")
    for sentence, hints in zip(parallel["en"], retriever.retrieve(parallel["en"]), strict=True):
        assert hints
        for hint in hints:
            assert hint.phrase.casefold() == hint.source_span.of(sentence.text).casefold()
    other = phrase_model(tmp_path / "other", tiny_encoder, segment_width=4, dimension=16)
    with pytest.raises(UserError, match="fingerprint"):
        open_retriever(
            "ccpr", tmp_path / "i", encoder_for("ccpr", str(other), "cpu"), source_language="de", target_language="en"
        )


def test_thresholds_change_no_vector(tmp_path, folder, tiny_encoder):
    strict = phrase_model(tmp_path / "strict", tiny_encoder, segment_width=4, index_threshold=0.9)
    first, second = (open_phrase_encoder(str(f), "cpu") for f in (folder, strict))
    assert first.fingerprint == second.fingerprint
    assert len(CcprUnits(second).units(TEXTS, "passage")[0]) < len(CcprUnits(first).units(TEXTS, "passage")[0])


def test_the_query_threshold_may_change_after_the_index_was_built(tmp_path, folder, tiny_encoder, parallel):
    languages = {"source_language": "de", "target_language": "en"}
    build_for("ccpr", tmp_path / "i", parallel["en"], encoder_for("ccpr", str(folder), "cpu"), "en", show=False)
    eager = phrase_model(tmp_path / "eager", tiny_encoder, segment_width=4, query_threshold=0.1)
    open_retriever("ccpr", tmp_path / "i", encoder_for("ccpr", str(eager), "cpu"), **languages)
    greedy = phrase_model(tmp_path / "greedy", tiny_encoder, segment_width=4, index_threshold=0.1)
    with pytest.raises(UserError, match=r"index_threshold: 0\.5, now 0\.1"):
        open_retriever("ccpr", tmp_path / "i", encoder_for("ccpr", str(greedy), "cpu"), **languages)


def test_an_encoder_without_heads_is_refused(tiny_encoder, fake):
    with pytest.raises(UserError, match="has no phrase heads: give a phrase model such as ccpr-e5-small"):
        CcprUnits(fake())
    with pytest.raises(UserError, match=r"is no phrase model: give ccpr-e5-small or a folder with ccpr.json"):
        encoder_for("ccpr", str(tiny_encoder))


def test_damaged_models_are_refused(tmp_path, folder):
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    (broken / "heads.safetensors").unlink()
    with pytest.raises(UserError, match=r"lacks heads.safetensors"):
        open_phrase_encoder(str(broken), "cpu")
    PhraseHeads(PhraseSettings("x", 1, hidden=6, dimension=3)).save(tmp_path)
    (broken / "heads.safetensors").write_bytes((tmp_path / "heads.safetensors").read_bytes())
    with pytest.raises(UserError, match=r"does not fit ccpr.json beside it"):
        open_phrase_encoder(str(broken), "cpu")
    (broken / "ccpr.json").write_text('{"encoder": "x", "colour": 1}')
    with pytest.raises(UserError, match=r"does not fit this version of rag_mt .*colour"):
        open_phrase_encoder(str(broken), "cpu")
