"""XPR models and their retriever."""

from __future__ import annotations

import copy
import json
import logging
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from peft import LoraConfig, get_peft_model

from rag_mt.base.defaults import DEFAULT_XPR_MODEL
from rag_mt.base.errors import UserError
from rag_mt.base.types import Floats, Sentence
from rag_mt.models.loading import LoadedEncoder, load_encoder
from rag_mt.text.words import surface
from retrievers.encoders.encoder import Family, TransformerEncoder
from retrievers.registry import build_for, encoder_for, maker_for, open_retriever
from retrievers.xpr.examples import Side, sentence_table
from retrievers.xpr.model import (
    BEST_LAYERS,
    HeadOn,
    XprEncoder,
    XprHead,
    XprSettings,
    is_xpr_model,
    open_xpr,
    untrained_xpr,
)
from retrievers.xpr.units import XprUnits
from tests.finetune.xpr_sets import loader_of

TEXTS = [
    "The central bank raised interest rates.",
    "A bank and a central bank: interest rates fall.",
    "Nothing of this kind stands here.",
    "Interest rates, said the Bank, rise.",
]


@pytest.fixture(scope="module")
def loaded(tiny_encoder: Path) -> LoadedEncoder:
    return load_encoder(str(tiny_encoder), "cpu", "float32")


@pytest.fixture(autouse=True)
def _read_once(loaded: LoadedEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("retrievers.xpr.model", "rag_mt.models.trained"):
        monkeypatch.setattr(f"{module}.load_encoder", loader_of(loaded))


@pytest.fixture(scope="module")
def tiny(loaded: LoadedEncoder) -> XprEncoder:
    return XprEncoder(loaded.name, loaded, XprHead(XprSettings(loaded.name, 2, 32, head=False)).eval())


def places(phrase: str) -> NDArray[np.int32]:
    """Text number, start and end of every place of a phrase."""
    rows = [
        (n, start, start + len(phrase))
        for n, text in enumerate(TEXTS)
        for start in range(len(text))
        if text.lower().startswith(phrase, start)
    ]
    return np.array(rows, np.int32)


def slow_mean(encoder: XprEncoder, text: str, start: int, end: int, layer: int) -> NDArray[np.float32]:
    """The mean over all tokens that touch the span."""
    (made,) = encoder.states([text], layer)
    inside = [n for n, (a, b) in enumerate(made.offsets.tolist()) if a < end and b > start]
    return np.mean(made.states[inside], axis=0)


def test_states_are_means_over_the_phrases_tokens(tiny: XprEncoder) -> None:
    spans = np.concatenate([places("interest rates"), places("bank")])[::-1]
    for layer in (0, 2, 3):
        found = tiny.example_states(TEXTS, spans, layer)
        assert found.shape == (len(spans), 32)
        for row, (number, start, end) in enumerate(spans.tolist()):
            wanted = slow_mean(tiny, TEXTS[number], start, end, layer)
            np.testing.assert_allclose(found[row], wanted, atol=1e-5)


def side() -> Side:
    rows = [(p, *row) for p, phrase in enumerate(("interest rates", "bank")) for row in places(phrase).tolist()]
    return Side("en", ("interest rates", "bank"), sentence_table(TEXTS), np.array(rows, np.int32))


@pytest.mark.parametrize("most", [1, 2, 32])
def test_a_phrase_is_the_mean_over_its_first_examples(tiny: XprEncoder, most: int) -> None:
    found = tiny.side_states(side(), np.array([1, 0]), most, 2)
    for at, phrase in enumerate(("bank", "interest rates")):
        wanted = np.mean(tiny.example_states(TEXTS, places(phrase)[:most], 2), axis=0)
        np.testing.assert_allclose(found[at], wanted, atol=1e-5)


def test_a_phrase_alone_is_its_own_sentence(tiny: XprEncoder) -> None:
    found = tiny.side_states(side(), np.array([1, 0]), 0, 2)
    for at, phrase in enumerate(("bank", "interest rates")):
        np.testing.assert_allclose(found[at], slow_mean(tiny, phrase, 0, len(phrase), 2), atol=1e-5)


def test_each_sentence_is_encoded_once(tiny: XprEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Phrases that share sentences, in blocks of one or two sentences."""
    wanted = tiny.side_states(side(), np.array([1, 0]), 32, 2)
    encoded, states_of = list[str](), tiny.example_states

    def counting(texts, spans, layer):
        encoded.extend(texts)
        return states_of(texts, spans, layer)

    monkeypatch.setattr("retrievers.xpr.model.BLOCK", 3)
    monkeypatch.setattr(tiny, "example_states", counting)
    np.testing.assert_allclose(tiny.side_states(side(), np.array([1, 0]), 32, 2), wanted, atol=1e-6)
    assert sorted(encoded) == sorted(text for text in TEXTS if "bank" in text.lower() or "interest" in text.lower())


def test_examples_beyond_the_longest_text_do_not_count(tiny: XprEncoder) -> None:
    far = "word " * 200 + "bank"
    texts = [TEXTS[0], far]
    rows = np.array([(0, 0, 12, 16), (0, 1, len(far) - 4, len(far)), (1, 1, len(far) - 4, len(far))], np.int32)
    own = Side("en", ("bank", "other bank"), sentence_table(texts), rows)
    found = tiny.side_states(own, np.array([0, 1]), 9, 2)
    np.testing.assert_allclose(found[0], tiny.example_states(texts, rows[:1, 1:], 2)[0], atol=1e-6)
    assert not found[1].any()


def test_vectors_have_length_one(tiny: XprEncoder) -> None:
    vectors = tiny.project(tiny.side_states(side(), np.array([0, 1]), 32, 2))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_head_is_the_papers_and_begins_as_asked() -> None:
    torch.manual_seed(0)
    head = XprHead(XprSettings("x", 3, 6))
    shapes = {name: tuple(p.shape) for name, p in head.named_parameters()}
    assert shapes == {
        "layers.0.weight": (24, 6),
        "layers.0.bias": (24,),
        "layers.2.weight": (6, 24),
        "layers.2.bias": (6,),
    }
    states = torch.randn(5, 6)
    first, last = head.layers[0], head.layers[2]
    wanted = torch.relu(states @ first.weight.T + first.bias) @ last.weight.T + last.bias
    torch.testing.assert_close(head(states), wanted / wanted.norm(dim=1, keepdim=True))
    head.begin_as_identity()
    torch.testing.assert_close(head(states), states / states.norm(dim=1, keepdim=True))


def with_head(loaded: LoadedEncoder, head_on: HeadOn, linear: bool = False) -> XprEncoder:
    """A model with a random head, on the mean or on each token; without its ReLU it is linear."""
    torch.manual_seed(1)
    head = XprHead(XprSettings(loaded.name, 2, 32, head_on=head_on)).eval()
    if linear:
        head.layers[1] = torch.nn.Identity()
    return XprEncoder(loaded.name, loaded, head)


def slow_vector(encoder: XprEncoder, phrase: str) -> NDArray[np.float32]:
    """The head on every token, the mean over the tokens of each place, the mean over places, length 1."""
    means = []
    for number, start, end in places(phrase).tolist():
        (made,) = encoder.states([TEXTS[number]], 2)
        inside = [n for n, (a, b) in enumerate(made.offsets.tolist()) if a < end and b > start]
        tokens = [encoder.head.layers(torch.from_numpy(made.states[n])).detach().numpy() for n in inside]
        means.append(np.mean(tokens, axis=0))
    vector = np.mean(means, axis=0)
    return vector / np.linalg.norm(vector)


def vectors_of(encoder: XprEncoder) -> Floats:
    return encoder.project(encoder.side_states(side(), np.array([0, 1]), 32, 2))


def test_a_head_on_tokens_is_applied_before_the_mean(loaded: LoadedEncoder) -> None:
    on_tokens = with_head(loaded, "tokens")
    wanted = [slow_vector(on_tokens, phrase) for phrase in ("interest rates", "bank")]
    np.testing.assert_allclose(vectors_of(on_tokens), wanted, atol=1e-5)
    on_mean = with_head(loaded, "mean")
    assert np.abs(vectors_of(on_mean) - vectors_of(on_tokens)).max() > 1e-3
    assert on_mean.fingerprint != on_tokens.fingerprint
    units = [XprUnits(encoder).units(TEXTS, "query")[0] for encoder in (on_mean, on_tokens)]
    assert np.abs(units[0] - units[1]).max() > 1e-3
    linear = [vectors_of(with_head(loaded, head_on, linear=True)) for head_on in ("mean", "tokens")]
    np.testing.assert_allclose(*linear, atol=1e-5)


def test_models_saved_before_heads_were_on_tokens_stay_what_they_are(tmp_path: Path, loaded: LoadedEncoder) -> None:
    """Their settings do not say where the head is; an index that was built with one knows it by its fingerprint."""
    new, old = (saved_model(tmp_path / name, loaded) for name in ("new", "old"))
    settings = json.loads((new / "xpr.json").read_text())
    assert settings.pop("head_on") == "mean"
    (old / "xpr.json").write_text(json.dumps(settings))
    models = [open_xpr(str(folder), "cpu", "float32") for folder in (new, old)]
    assert models[0].fingerprint == models[1].fingerprint and models[0].settings.for_vectors() == settings
    np.testing.assert_array_equal(*map(vectors_of, models))
    assert open_xpr(DEFAULT_XPR_MODEL, "cpu", "float32").settings.head_on == "mean"
    on_tokens = open_xpr(str(saved_model(tmp_path / "tokens", loaded, "tokens")), "cpu", "float32")
    assert on_tokens.settings.head_on == "tokens" and on_tokens.fingerprint != models[0].fingerprint


def saved_model(folder: Path, loaded: LoadedEncoder, head_on: HeadOn = "mean") -> Path:
    """A trained-looking model: an adapter that changes nothing yet, with a random head."""
    torch.manual_seed(1)
    folder.mkdir()
    XprHead(XprSettings(loaded.name, 2, 32, head_on=head_on)).save(folder)
    model = copy.deepcopy(loaded.model)
    get_peft_model(model, LoraConfig(r=2, target_modules=["query"])).save_pretrained(folder)
    return folder


def test_saved_models_open(tmp_path: Path, loaded: LoadedEncoder, tiny: XprEncoder) -> None:
    folder = saved_model(tmp_path / "model", loaded)
    assert is_xpr_model(str(folder)) and not is_xpr_model(loaded.name)
    model = open_xpr(str(folder), "cpu", "float32")
    states, own = (m.side_states(side(), np.array([0, 1]), 4, 2) for m in (tiny, model))
    np.testing.assert_allclose(model.project(own), model.project(states), atol=1e-5)
    assert model.fingerprint != tiny.fingerprint
    whole = (folder / "head.safetensors").read_bytes()
    for damaged in (b"", whole[:100], whole[:-8]):
        (folder / "head.safetensors").write_bytes(damaged)
        with pytest.raises(UserError, match=r"head.safetensors does not fit xpr.json beside it: copy the whole"):
            open_xpr(str(folder))
    (folder / "head.safetensors").unlink()
    with pytest.raises(UserError, match=r"lacks head.safetensors"):
        open_xpr(str(folder))
    settings = json.loads((folder / "xpr.json").read_text())
    (folder / "xpr.json").write_text(json.dumps({**settings, "more": 1}))
    with pytest.raises(UserError, match=r"does not fit this version of rag_mt \(more\)"):
        open_xpr(str(folder))
    with pytest.raises(UserError, match=r"'nowhere' is no XPR model"):
        open_xpr("nowhere")
    with pytest.raises(UserError, match=r"layer 9 of .*: it has layers 0 to 3"):
        untrained_xpr(loaded.name, 9)


def test_index_units_are_phrases_with_all_their_sentences(tiny: XprEncoder) -> None:
    maker = XprUnits(tiny)
    vectors, spans = maker.units(TEXTS, "passage")
    assert sorted(map(tuple, spans.tolist())) == [tuple(row) for row in spans.tolist()]
    said = [surface(TEXTS[n][a:b]) for n, a, b in spans.tolist()]
    assert len(said) == len(set(said))  # each once
    assert {"central bank", "interest rates", "bank"} <= set(said)
    for phrase in ("interest rates", "bank", "nothing of this kind"):
        row = said.index(phrase)
        own = places(phrase)
        assert spans[row].tolist() == own[0].tolist()
        wanted = tiny.project(np.mean(tiny.example_states(TEXTS, own, 2), axis=0, keepdims=True))[0]
        np.testing.assert_allclose(vectors[row], wanted, atol=1e-5)


def test_phrases_of_an_index_are_put_together_from_many_blocks(
    tmp_path: Path, tiny: XprEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = XprUnits(tiny)
    vectors, spans = maker.units(TEXTS, "passage")
    monkeypatch.setattr("retrievers.xpr.model.BLOCK", 1)
    again, places = maker.units(TEXTS, "passage")
    np.testing.assert_array_equal(places, spans)
    np.testing.assert_allclose(again, vectors, atol=1e-5)
    sentences = [Sentence(text, "en") for text in TEXTS]
    whole = build_for("xpr", tmp_path / "whole", sentences, tiny, "en", show=False)
    assert whole.units == len(spans)
    monkeypatch.setattr(XprUnits, "pooled", 2)
    assert build_for("xpr", tmp_path / "halves", sentences, tiny, "en", show=False).units > len(spans)


def test_frequent_words_do_not_begin_or_end_phrases_of_an_index(tiny: XprEncoder) -> None:
    texts = [f"the stone{n} of the river{n}" for n in range(12)]
    _, spans = XprUnits(tiny).units(texts, "passage")
    said = {texts[n][a:b] for n, a, b in spans.tolist()}
    assert "stone3 of the river3" in said and "stone3" in said
    assert not any(phrase.split()[0] in ("the", "of") or phrase.split()[-1] in ("the", "of") for phrase in said)
    _, spans = XprUnits(tiny).units(texts[:1], "query")
    assert {texts[0][a:b] for _, a, b in spans.tolist()} >= {"the", "of the", "the stone0"}


def test_queries_are_encoded_in_their_context(tiny: XprEncoder) -> None:
    maker = XprUnits(tiny)
    vectors, spans = maker.units(TEXTS, "query")
    np.testing.assert_allclose(tiny.project(tiny.example_states(TEXTS, spans, 2)), vectors, atol=1e-6)
    rows = {tuple(row): n for n, row in enumerate(spans.tolist())}
    one, other = (rows[tuple(row)] for row in places("interest rates")[:2].tolist())
    assert np.abs(vectors[one] - vectors[other]).max() > 1e-4  # the same words among others
    empty, none = maker.units(["...", ""], "query")
    assert empty.shape == (0, 32) and none.shape == (0, 3)


def test_other_encoders_are_told(loaded: LoadedEncoder) -> None:
    with pytest.raises(UserError, match=r"not opened for XPR"):
        maker_for("xpr", TransformerEncoder(loaded, Family()))
    alone = XprHead(XprSettings(loaded.name, 2, 32, sentences=0))
    with pytest.raises(UserError, match=r"m was trained on phrases without sentences"):
        maker_for("xpr", XprEncoder("m", loaded, alone))


def test_a_long_word_takes_no_room_for_others(tiny: XprEncoder) -> None:
    texts = [" ".join(f"stone{n}" for n in range(400)), "x" * 200_000]
    tracemalloc.start()
    maker = XprUnits(tiny, max_words=1)
    maker.units(texts, "passage")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6, "400 words, each at the length of the longest, would take 320 MB"


def test_retriever_from_index_to_hints(tmp_path: Path, loaded: LoadedEncoder, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="rag_mt")
    encoder = encoder_for("xpr", str(saved_model(tmp_path / "model", loaded)), "cpu", "float32")
    assert "not trained for XPR" not in caplog.text
    sentences = [Sentence(text, "en") for text in TEXTS]
    manifest = build_for("xpr", tmp_path / "index", sentences, encoder, "en", show=False)
    assert manifest.unit == "phrase" and manifest.units > 10
    found = open_retriever("xpr", tmp_path / "index", encoder, source_language="de", target_language="en")
    (hints,) = found.retrieve([Sentence("Nothing of this kind stands here.", "de")])
    assert hints and hints[0].hit.score == pytest.approx(1, abs=1e-3)
    assert hints[0].phrase == hints[0].source_span.of("Nothing of this kind stands here.")
    with pytest.raises(UserError, match=r"built for it"):
        open_retriever("phrases", tmp_path / "index", encoder, source_language="de", target_language="en")


def test_untrained_encoders_are_used_with_a_note(
    loaded: LoadedEncoder, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, logger="rag_mt")
    encoder = encoder_for("xpr", loaded.name, "cpu", "float32")
    assert isinstance(encoder, XprEncoder) and encoder.settings.layer == 2
    assert "was not trained for XPR" in caplog.text
    monkeypatch.setitem(BEST_LAYERS, loaded.name, 3)
    measured = encoder_for("xpr", loaded.name, "cpu", "float32")
    assert isinstance(measured, XprEncoder) and measured.settings.layer == 3


def test_embedded_encoder_finds_translations() -> None:
    """Untrained e5 puts a phrase nearer to its translation than to others, from one sentence each."""
    model = untrained_xpr("embedded:e5-small")
    german = "Die Zentralbank hat die Zinsen zum dritten Mal in diesem Jahr erhöht."
    english = ["The new hospital opens next spring.", "Interest rates were raised by the central bank."]
    query = model.example_states([german], np.array([[0, 4, 15]], np.int32), 7)
    wanted = np.array([[0, 8, 16], [1, 0, 14], [1, 34, 46]], np.int32)
    scores = model.project(query) @ model.project(model.example_states(english, wanted, 7)).T
    assert scores.argmax() == 2


def test_the_shipped_model_finds_translations_in_other_sentences() -> None:
    """Nine words, each in two sentences of either language that do not translate each other."""
    pairs = {
        "Brücke": "bridge",
        "Krankenhaus": "hospital",
        "Haushalt": "budget",
        "Bürgermeister": "mayor",
        "Fluss": "river",
        "Zinsen": "interest rates",
        "Wahlen": "elections",
        "Lehrer": "teacher",
        "Flughafen": "airport",
    }
    frames = (
        ("Gestern sprach man dort über {}.", "Das Wort {} stand in der Zeitung."),
        ("We saw {} on that day.", "For {} there is no time."),
    )
    model = open_xpr(DEFAULT_XPR_MODEL, "cpu", "float32")
    assert encoder_for("xpr", dtype="float32").fingerprint == model.fingerprint
    vectors = []
    for words, own in zip((pairs.keys(), pairs.values()), frames, strict=True):
        texts = [frame.format(word) for word in words for frame in own]
        places = [
            (n, t.index(w), t.index(w) + len(w))
            for n, (t, w) in enumerate(zip(texts, np.repeat(list(words), 2), strict=True))
        ]
        states = model.example_states(texts, np.array(places, np.int32), model.settings.layer)
        vectors.append(model.project(states.reshape(len(words), 2, -1).mean(1)))
    assert (vectors[0] @ vectors[1].T).argmax(1).tolist() == list(range(len(pairs)))
