"""Encoders: equal to sentence-transformers and to the full model's states, offsets exact."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from tokenizers import normalizers
from transformers import BertConfig, BertModel, XLMRobertaConfig, XLMRobertaModel

from rag_mt.base.errors import UserError
from rag_mt.models.loading import BLANK_AT_MARK, load_encoder, resolve_model
from rag_mt.text.words import token_words, word_spans
from retrievers.encoders.encoder import Family, TransformerEncoder, family_of, open_encoder

TEXTS = [
    "Der Stadtrat hat am Dienstag den Bau einer neuen Brücke beschlossen.",
    "Is it raining?",
    "Kaupunginvaltuusto päätti uuden sillan rakentamisesta.",
    "Городской совет одобрил строительство нового моста через реку, которая разлилась весной.",
    "İstanbul’da yağmur.",
    "",
]


@pytest.fixture(scope="module")
def e5() -> TransformerEncoder:
    return open_encoder("embedded:e5-small", device="cpu", dtype="float32")


def reference(folder: str, modules: Callable[[Any], list[Any]]) -> SentenceTransformer:
    return SentenceTransformer(modules=modules(Transformer(folder)), device="cpu")


def cosines(a: Any, b: Any) -> Any:
    return (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def test_e5_equals_sentence_transformers(e5: TransformerEncoder) -> None:
    model = reference(str(resolve_model("embedded:e5-small")), lambda t: [t, Pooling(384, "mean"), Normalize()])
    for kind in ("query", "passage"):
        expected = model.encode([f"{kind}: {t}" for t in TEXTS])
        assert cosines(e5.encode(TEXTS, kind), expected).min() > 0.99999


def test_bf16_is_near_float32(e5: TransformerEncoder) -> None:
    half = open_encoder("embedded:e5-small", device="cpu", dtype="bfloat16")
    assert cosines(half.encode(TEXTS), e5.encode(TEXTS)).min() > 0.999
    assert half.fingerprint == e5.fingerprint, "an index made in one format serves the other"


def test_vectors_are_normalised_and_in_order(e5: TransformerEncoder) -> None:
    vectors = e5.encode(TEXTS)
    assert vectors.shape == (len(TEXTS), 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(e5.encode(TEXTS[::-1])[::-1], vectors, atol=1e-5)
    assert e5.encode([]).shape == (0, 384)


def test_parallel_sentences_are_nearest(e5: TransformerEncoder) -> None:
    german, english = TEXTS[0], "On Tuesday the city council decided to build a new bridge."
    near, far = e5.encode([english, "Interest rates are falling again."], "passage") @ e5.encode([german])[0]
    assert near > far + 0.05


def test_long_texts_are_cut_with_a_note(e5: TransformerEncoder, caplog: pytest.LogCaptureFixture) -> None:
    long = "Wort " * 600
    assert cosines(e5.encode([long]), e5.encode([long + "Ende"])).min() > 0.9999
    assert "1 of 1 texts are longer than 512 tokens" in caplog.text


def test_states_are_those_of_the_full_model(e5: TransformerEncoder) -> None:
    ids = e5.tokenizer(["query: " + TEXTS[0]], return_tensors="pt")
    with torch.inference_mode():
        full = e5.model(**ids, output_hidden_states=True).hidden_states
    for layer in (0, 7, 12, -1):
        states = next(iter(e5.states([TEXTS[0]], layer)))
        expected = full[layer][0, -1 - len(states.states) : -1].numpy()
        np.testing.assert_allclose(states.states, expected, atol=2e-4)
    with pytest.raises(ValueError, match="layer 13"):
        next(iter(e5.states(TEXTS, 13)))


def test_states_of_many_texts_come_in_order(e5: TransformerEncoder) -> None:
    alone = [next(iter(e5.states([t], 7))) for t in TEXTS]
    together = list(e5.states(TEXTS, 7))
    for a, b in zip(alone, together, strict=True):
        np.testing.assert_array_equal(a.offsets, b.offsets)
        np.testing.assert_allclose(a.states, b.states, atol=1e-3)


WORD_TABLE = [
    ("Der Hund schläft.", ["Der", "Hund", "schläft"]),
    ("  well-known O’Neill's „3,5 %“ z.B.  ", ["well-known", "O’Neill's", "3,5", "z.B"]),
    ("日本語 text", ["日", "本", "語", "text"]),
    ("naïve cafe\u0301!", ["naïve", "cafe\u0301"]),
    ("Москва-река, 2020", ["Москва-река", "2020"]),
    ("... !!", []),
]


@pytest.mark.parametrize(("text", "words"), WORD_TABLE)
def test_word_spans(text: str, words: list[str]) -> None:
    assert [text[a:b] for a, b in word_spans(text)] == words


@settings(max_examples=150, deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
    | st.text("aßİıé \u0301👩‍日ا'-.,\u2581\u00a0\ufb01Ａ", max_size=30)
)
def test_offsets_are_exact(text: str) -> None:
    """Spans lie in the text in order, never touch white space at an end, and every tokenised letter is covered."""
    encoder = open_cached()
    states = next(iter(encoder.states([text], 1)))
    offsets = states.offsets
    assert len(states.states) == len(offsets)
    assert (offsets[:, 0] < offsets[:, 1]).all()
    assert (offsets >= 0).all()
    assert (offsets <= len(text)).all()
    assert (np.diff(offsets[:, 0]) >= 0).all()
    assert (np.diff(offsets[:, 1]) >= 0).all()
    for a, b in offsets:
        assert not text[a].isspace()
        assert not text[b - 1].isspace()
    covered = np.zeros(len(text), dtype=bool)
    for a, b in offsets:
        covered[a:b] = True
    assert all(covered[i] for i, c in enumerate(text) if c.isalpha() and c.isascii())
    words = word_spans(text)
    tokens = token_words(offsets, words)
    for (start, end), (first, last) in zip(words, tokens, strict=True):
        if first >= 0:
            assert offsets[first, 1] > start
            assert offsets[last, 0] < end


MARKED = [
    ("monsieur , le petit mot ( sale ) !", "monsieur, le petit mot (sale)!"),
    ("Vraiment\u202f? Oui\u00a0: voilà ...", "Vraiment? Oui: voilà..."),
    ("Preis : 5 % .", "Preis: 5 %."),
    ("[ да ] , и", "[да], и"),
    (". a", ". a"),
    ("z .NET :-) ( )", "z .NET :-) ()"),
    ("Kapitel\n... weiter", "Kapitel\n... weiter"),
    ("sagte »Ja« und « oui »", "sagte »Ja« und « oui »"),
]


@pytest.mark.parametrize(("spaced", "written"), MARKED)
def test_blanks_at_marks_change_no_vector(spaced: str, written: str) -> None:
    assert normalizers.Replace(BLANK_AT_MARK, "").normalize_str(spaced) == written
    encoder = open_cached()
    np.testing.assert_allclose(encoder.encode([spaced]), encoder.encode([written]), atol=1e-5)
    ours, plain = encoder.states([spaced, written], 7)
    np.testing.assert_allclose(ours.states, plain.states, atol=1e-3)
    for (a, b), (c, d) in zip(ours.offsets.tolist(), plain.offsets.tolist(), strict=True):
        assert "".join(spaced[a:b].split()) == "".join(written[c:d].split())


def test_a_tokenizer_that_was_saved_with_its_blanks_joined_is_read_as_it_is(tmp_path: Path) -> None:
    saved = open_cached()
    saved.model.save_pretrained(tmp_path)
    saved.tokenizer.save_pretrained(tmp_path)
    read = load_encoder(str(tmp_path), "cpu").tokenizer.backend_tokenizer
    assert str(read.normalizer) == str(saved.tokenizer.backend_tokenizer.normalizer)


def open_cached(found: list[TransformerEncoder] = []) -> TransformerEncoder:  # noqa: B006
    if not found:
        found.append(open_encoder("embedded:e5-small", device="cpu", dtype="float32"))
    return found[0]


@pytest.fixture(scope="module")
def tokenizer_files(tiny_encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The files of a small tokenizer that names no limit of a model."""
    folder = tmp_path_factory.mktemp("tokenizer")
    shutil.copy(tiny_encoder / "tokenizer.json", folder)
    settings = json.loads((tiny_encoder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"model_max_length": 512}))
    return list(folder.iterdir())


def tiny(folder: Path, kind: str, tokenizer_files: list[Path]) -> Path:
    """A random model of an architecture with the tokenizer of these files."""
    torch.manual_seed(0)
    size = {
        "vocab_size": 4000, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 32, "max_position_embeddings": 66, "pad_token_id": 1,
    }  # fmt: skip
    model = (
        BertModel(BertConfig(**size))
        if kind == "bert"
        else XLMRobertaModel(XLMRobertaConfig(**size, type_vocab_size=1))
    )
    model.save_pretrained(folder)
    for file in tokenizer_files:
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.mark.parametrize("kind", ["bert", "xlm-roberta"])
def test_bare_models_use_the_mean_of_their_tokens(tmp_path: Path, kind: str, tokenizer_files: list[Path]) -> None:
    folder = tiny(tmp_path / f"{kind}-base", kind, tokenizer_files)
    model = reference(str(folder), lambda t: [t, Pooling(16, "mean")])
    encoder = open_encoder(str(folder), device="cpu", dtype="float32")
    assert encoder.max_tokens == (66 if kind == "bert" else 64)
    assert cosines(encoder.encode(TEXTS), model.encode(TEXTS)).min() > 0.99999
    assert len(list(encoder.states(["x " * 100], 2))) == 1


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_sentence_transformers_folders_are_followed(tmp_path: Path, pooling: str, tokenizer_files: list[Path]) -> None:
    base = tiny(tmp_path / "bert", "bert", tokenizer_files)
    modules = [
        Transformer(str(base)),
        Pooling(16, pooling),
        Dense(16, 8, activation_function=torch.nn.Tanh()),
        Normalize(),
    ]
    model = SentenceTransformer(modules=modules, device="cpu", prompts={"query": "ask: ", "passage": "told: "})
    model.save_pretrained(str(tmp_path / "labse-like"))
    encoder = open_encoder(str(tmp_path / "labse-like"), device="cpu", dtype="float32")
    assert encoder.dimension == 8
    assert cosines(encoder.encode(TEXTS, "query"), model.encode([f"ask: {t}" for t in TEXTS])).min() > 0.99999
    assert cosines(encoder.encode(TEXTS, "passage"), model.encode([f"told: {t}" for t in TEXTS])).min() > 0.99999
    dense = next((tmp_path / "labse-like").glob("*Dense/model.safetensors"))
    before = encoder.fingerprint
    save_file({k: v * 2 for k, v in load_file(dense).items()}, dense)
    assert open_encoder(str(tmp_path / "labse-like"), device="cpu", dtype="float32").fingerprint != before


def test_a_bare_labse_uses_its_pooler(tmp_path: Path, tokenizer_files: list[Path]) -> None:
    encoder = open_encoder(str(tiny(tmp_path / "my-LaBSE", "bert", tokenizer_files)), device="cpu", dtype="float32")
    ids = encoder.tokenizer([TEXTS[0]], return_tensors="pt")
    with torch.inference_mode():
        expected = encoder.model(**ids).pooler_output.numpy()
    assert cosines(encoder.encode([TEXTS[0]]), expected).min() > 0.99999


def folder_with_pooling(folder: Path, config: dict[str, Any]) -> Path:
    """A folder with the settings of a sentence-transformers model, without weights."""
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))
    (folder / "modules.json").write_text(
        '[{"type": "x.Transformer", "path": ""}, {"type": "x.Pooling", "path": "1_Pooling"}]'
    )
    return folder


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        ({"pooling_mode": "max"}, "max"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False, "include_prompt": True}, "mean"),
        ({"pooling_mode_cls_token": True, "word_embedding_dimension": 16}, "cls"),
    ],
)
def test_pooling_is_that_of_the_folder(tmp_path: Path, config: dict[str, Any], pooling: str) -> None:
    assert family_of("LaBSE", folder_with_pooling(tmp_path, config)).pooling == pooling


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"pooling_mode": "lasttoken"},
        {"pooling_mode": ["mean", "max"]},
        {"pooling_mode_mean_sqrt_len_tokens": True},
        {"pooling_mode_mean_tokens": True, "pooling_mode_mean_sqrt_len_tokens": True},
        {"pooling_mode": "mean", "include_prompt": False},
    ],
)
def test_other_pooling_is_refused(tmp_path: Path, config: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="m pools its tokens in a way that is not supported: expected mean, cls or max"):
        family_of("m", folder_with_pooling(tmp_path, config))


def test_an_unknown_sentence_module_is_refused(tmp_path: Path, tokenizer_files: list[Path]) -> None:
    folder = tiny(tmp_path / "bert", "bert", tokenizer_files)
    (folder / "modules.json").write_text('[{"idx": 0, "type": "x.CNN", "path": ""}]')
    with pytest.raises(UserError, match="'CNN'"):
        open_encoder(str(folder), device="cpu")


def test_a_model_without_a_limit_has_that_of_its_family(tmp_path: Path, tokenizer_files: list[Path]) -> None:
    loaded = load_encoder(str(tiny(tmp_path / "bert", "bert", tokenizer_files)), device="cpu", dtype="float32")
    config = SimpleNamespace(hidden_size=16, num_hidden_layers=2, model_type="relative")
    model = SimpleNamespace(config=config)
    assert TransformerEncoder(replace(loaded, model=cast(Any, model)), Family(max_tokens=17)).max_tokens == 17
    config.max_position_embeddings = -1
    assert TransformerEncoder(replace(loaded, model=cast(Any, model)), Family(max_tokens=18)).max_tokens == 18


def test_threads_may_share_an_encoder(tmp_path: Path, tokenizer_files: list[Path]) -> None:
    folder = tiny(tmp_path / "bert", "bert", tokenizer_files)
    encoder = open_encoder(str(folder), device="cpu", dtype="float32")
    vectors, states = encoder.encode(TEXTS), [next(iter(encoder.states(TEXTS, n))).states for n in (1, 2)]

    def job(number: int) -> bool:
        if number % 3 == 2:
            return np.allclose(encoder.encode(TEXTS), vectors, atol=1e-5)
        made = next(iter(encoder.states(TEXTS, number % 3 + 1))).states
        return np.allclose(made, states[number % 3], atol=1e-5)

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(job, range(90)))
