"""Metrics: sacreBLEU's own numbers, BERTScore by the package, COMET from files."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from eval.metrics import open_metrics
from eval.metrics.bertscore import BertScore, read_baseline
from eval.metrics.comet import Comet
from eval.metrics.formulas import FORMULAS
from eval.translation.records import Scored
from rag_mt.base.errors import UserError
from rag_mt.models.loading import load_encoder

words = st.lists(st.sampled_from(["the", "a", "dog", "cat", "sat", "on", "mat", "3.5", "!", "Haus-Tür"]), max_size=9)
corpora = st.lists(st.tuples(words.map(" ".join), words.filter(bool).map(" ".join)), min_size=1, max_size=8)


def score(name: str, hypotheses: list[str], references: list[str], target: str = "de") -> Scored:
    (metric,) = open_metrics([name], target)
    statistics = metric.statistics([""] * len(hypotheses), hypotheses, references)
    return Scored(metric.name, metric.signature, metric.formula, statistics)


@settings(max_examples=40)
@given(corpora)
def test_scores_are_those_of_sacrebleu(corpus: list[tuple[str, str]]) -> None:
    hypotheses, references = [h for h, _ in corpus], [r for _, r in corpus]
    for name, theirs, single in (
        ("bleu", BLEU(), BLEU(effective_order=True)),
        ("chrf", CHRF(), CHRF()),
        ("chrf++", CHRF(word_order=2), CHRF(word_order=2)),
    ):
        ours = score(name, hypotheses, references)
        assert ours.corpus == pytest.approx(theirs.corpus_score(hypotheses, [references]).score)
        assert ours.sentences == pytest.approx([single.sentence_score(h, [r]).score for h, r in corpus])


CAT = (["The cat sat on the mat.", "A dog barks"], ["The cat sat on a mat.", "The dog barks"])


@pytest.mark.parametrize(
    ("name", "corpus", "expected", "signature"),
    [
        # n-grams of 1 to 4 words that match: 6 + 2 of 7 + 3, 4 + 1 of 6 + 2, 2 of 5 + 1, 1 of 4
        ("bleu", CAT, 100 * (8 / 10 * 5 / 8 * 2 / 6 * 1 / 4) ** 0.25, "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp"),
        ("chrf", (["ab"], ["ac"]), 25, "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no"),  # half of 1-grams, no 2-gram
        ("chrf++", (["a b"], ["a c"]), 25, "nrefs:1|case:mixed|eff:yes|nc:6|nw:2|space:no"),
        ("chrf", (["ab", ""], ["ab", "cd"]), 100 * 5 / (4 / 0.5 + 1), "nrefs:1"),  # all of what is there, half of all
    ],
)
def test_known_values_and_signatures(
    name: str, corpus: tuple[list[str], list[str]], expected: float, signature: str
) -> None:
    found = score(name, *corpus)
    assert found.corpus == pytest.approx(expected)
    assert found.signature.startswith(signature)


def test_chinese_has_its_own_tokenizer() -> None:
    assert "tok:zh" in score("bleu", ["猫"], ["猫"], "zh-Hans").signature


@pytest.mark.skipif(bool(find_spec("MeCab") or find_spec("mecab_ko")), reason="the tokenizers are installed")
@pytest.mark.parametrize(("code", "name"), [("ja", "Japanese"), ("ko", "Korean")])
def test_tokenizers_that_are_not_installed_are_named(code: str, name: str) -> None:
    with pytest.raises(UserError, match=rf"BLEU of {name} .*sacrebleu\[{code}\]") as caught:
        open_metrics(["bleu"], code)
    assert "\n" not in str(caught.value)


def test_a_mean_is_a_mean() -> None:
    rows = np.array([[10.0, 1], [20.0, 1], [60.0, 1]])
    assert FORMULAS["mean"].corpus(rows.sum(0)[None]).tolist() == [30.0]
    assert FORMULAS["mean"].sentences(rows).tolist() == [10, 20, 60]


def test_unknown_metrics_are_named() -> None:
    with pytest.raises(UserError, match="'meteor'"):
        open_metrics(["bleu", "meteor"], "de")


HYPOTHESES = ["The dog sleeps.", "A cat and two mice", "same text", " ", "word " * 90]
REFERENCES = ["The hound is asleep.", "Two mice, a cat", "same text", "blank", "another word"]


def greedy_f1(folder: Path, layer: int) -> list[float]:
    """BERTScore's F1 by its formula, on our own loading of the model: every token's best cosine in the other text,
    averaged without the special tokens, which can be matched."""
    loaded = load_encoder(str(folder), "cpu", "float32")
    made = []
    for pair in zip(HYPOTHESES, REFERENCES, strict=True):
        if not all(text.strip() for text in pair):
            made.append(0.0)
            continue
        vectors = []
        for text in pair:
            limit = loaded.tokenizer.model_max_length
            ids = loaded.tokenizer(text.strip(), return_tensors="pt", truncation=True, max_length=limit)
            with torch.no_grad():
                states = loaded.model(**ids, output_hidden_states=True).hidden_states[layer][0]
            vectors.append(torch.nn.functional.normalize(states, dim=-1))
        cosines = vectors[0] @ vectors[1].T
        precision = cosines[1:-1].max(dim=1).values.mean()
        recall = cosines[:, 1:-1].max(dim=0).values.mean()
        made.append(float(100 * 2 * precision * recall / (precision + recall)))
    return made


def test_bertscore_is_its_formula_on_any_encoder_and_layer(tiny_encoder: Path, tmp_path: Path) -> None:
    pytest.importorskip("bert_score")
    import shutil

    folder = tmp_path / "encoder"
    shutil.copytree(tiny_encoder, folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"model_max_length": 64}))
    for layer in (1, 3):
        metric = BertScore(str(folder), layer, None, "de")
        found = metric.statistics([], HYPOTHESES, REFERENCES)
        assert found[:, 0] == pytest.approx(greedy_f1(folder, layer), abs=1e-3)
        assert found[:, 1].tolist() == [1] * 5
        assert f"|layer:{layer}|" in metric.signature and "rescaled:no" in metric.signature
    (tmp_path / "de.tsv").write_text("LAYER,P,R,F\n0,0,0,0.1\n1,0.2,0.2,0.25\n")
    plain, rescaled = BertScore(str(folder), 1, None, "de"), BertScore(str(folder), 1, tmp_path, "de")
    before, after = (m.statistics([], HYPOTHESES[:3], REFERENCES[:3])[:, 0] for m in (plain, rescaled))
    assert after == pytest.approx((before - 25) / 0.75)
    assert "rescaled:yes, de.tsv 0.2500" in rescaled.signature
    assert "rescaled:no" in BertScore(str(folder), 1, tmp_path, "ru").signature
    with pytest.raises(UserError, match="no layer 7"):
        BertScore(str(folder), 7, None, "de")
    with pytest.raises(UserError, match="--bertscore-layer"):
        BertScore(str(folder), None, None, "de")


def test_baselines(tmp_path: Path) -> None:
    (tmp_path / "de.tsv").write_text("LAYER,P,R,F\n0,0.1,0.2,0.3\n")
    assert read_baseline(tmp_path, "de", 0) == ("de.tsv", 0.3)
    assert read_baseline(tmp_path, "fi", 0) is None
    assert read_baseline(None, "de", 0) is None
    with pytest.raises(UserError, match="layer 4"):
        read_baseline(tmp_path, "de", 4)
    with pytest.raises(UserError, match="no folder"):
        read_baseline(tmp_path / "none", "de", 0)


def test_comet_is_read_from_files(tmp_path: Path) -> None:
    one, two = tmp_path / "a.json", tmp_path / "b.json"
    facts = {"model": "wmt22", "weights": "ab", "references": True, "version": "2.2"}
    row = {"src": "s", "mt": "m", "ref": "r", "COMET": 0.25}
    one.write_text(json.dumps({**facts, "scores": {"runs": [row]}}))
    two.write_text(json.dumps({**facts, "scores": {"runs": [row | {"mt": "n", "COMET": 0.5}]}}))
    metric = Comet([one, two])
    assert metric.statistics(["s", "s"], ["n", "m"], ["r", "r"]).tolist() == [[50, 1], [25, 1]]
    assert metric.signature.startswith("model:wmt22|weights:ab|version:2.2|scores:")
    assert metric.name == "COMET (wmt22)"
    standard = tmp_path / "standard.json"
    standard.write_text(json.dumps({**facts, "model": "Unbabel/wmt22-comet-da", "scores": {"runs": [row]}}))
    assert Comet([standard]).name == "COMET"
    with pytest.raises(UserError, match=r"lack 1 of 1 outputs.*comet.score"):
        metric.statistics(["s"], ["x"], ["r"])
    two.write_text(json.dumps({**facts, "weights": "cd", "scores": {"runs": []}}))
    with pytest.raises(UserError, match=r"several models \(wmt22\|weights:ab.*, wmt22\|weights:cd"):
        Comet([one, two])
    for content in ("no columns\n", json.dumps({"model": "m", "scores": {"runs": []}})):
        two.write_text(content)
        with pytest.raises(UserError, match=r"b\.json holds no COMET scores"):
            Comet([two])
