"""The baselines of BERTScore."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval.metrics.bertscore import BASELINES, LAYERS, BertScore, read_baseline
from eval.quality.baselines import baseline
from eval.quality.baselines import main as make_baselines


def test_baselines_are_the_package_s_means_over_unrelated_sentences(tiny_encoder: Path, tmp_path: Path) -> None:
    pytest.importorskip("bert_score")
    texts = ["one house", "two small trees", "the river"]
    rows = baseline(str(tiny_encoder), texts)
    assert rows.shape == (4, 3)
    pairs = [(a, b) for a in texts for b in texts if a != b]
    for layer in range(1, 4):
        metric = BertScore(str(tiny_encoder), layer, None, "de")
        theirs = metric.statistics([], [a for a, _ in pairs], [b for _, b in pairs])[:, 0]
        assert 100 * rows[layer, 2] == pytest.approx(theirs.mean(), abs=1e-3)
    (tmp_path / "train").mkdir()
    lines = [f"house {n}\tHaus {n}\tnews\tx\n" for n in range(5)] + ["menu\tMenü\tui\tx\n"]
    (tmp_path / "train" / "de-en.tsv").write_text("".join(lines))
    place = tmp_path / "baselines"
    command = ["--data", str(tmp_path), "--output", str(place), "--model", str(tiny_encoder), "--quiet"]
    assert make_baselines(command) == 0
    for language in ("de", "en"):
        name, value = read_baseline(place, language, 3) or ("", 0.0)
        assert name == f"{language}.tsv" and -1 < value < 1


def test_encoders_with_a_layer_have_baselines() -> None:
    for encoder, layer in LAYERS.items():
        for language in ("en", "de", "cs", "fi", "ru", "ro", "tr"):
            _, value = read_baseline(BASELINES[encoder], language, layer) or ("", 0.0)
            assert 0.5 < value < 1
        assert read_baseline(BASELINES[encoder], "fr", layer) is None
