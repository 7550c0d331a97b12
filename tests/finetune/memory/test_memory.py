"""Fitting similarity on a memory of invented sentences, by a random encoder."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics.chrf import CHRF

from finetune.memory.__main__ import SHIPPED, main
from finetune.memory.cells import FOLDS, read_cells
from finetune.memory.similarity import examples_of
from rag_mt.base.types import Sentence, TranslatedSentence
from retrievers.memory.similarity import KINDS, Similarity
from retrievers.registry import build_for, encoder_for
from tests.finetune.conftest import WORDS as ALL_WORDS

WORDS = ALL_WORDS[:14]


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory, quick_encoder: Path) -> tuple[Path, Path]:
    """An index of sentence pairs, and a file of sentences with references and drafts of various quality."""
    folder, rng = tmp_path_factory.mktemp("memory"), random.Random(3)

    def sentence() -> list[str]:
        return rng.sample(WORDS, rng.randint(3, 6))

    stored = [sentence() for _ in range(80)]
    pairs = [TranslatedSentence(" ".join(s), "en", original=" ".join(word[::-1] for word in s)) for s in stored]
    build_for("memory", folder / "en", pairs, encoder_for("memory", str(quick_encoder), "cpu"), "en", show=False)
    rows: list[dict[str, Any]] = []
    for number in range(20):
        target = [*rng.choice(stored)[:3], *rng.sample(WORDS, 2)]
        draft = " ".join(target[: 2 + number % 4])
        texts = {"source": " ".join(word[::-1] for word in target), "target": " ".join(target), "draft": draft}
        rows.append({"source_language": "de", "target_language": "en", **texts})
    file = folder / "de-en.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    return file, folder / "en"


def test_labels_are_the_chrf_of_candidates(memory: tuple[Path, Path], quick_encoder: Path) -> None:
    (cell,) = read_cells([[str(path) for path in memory]])
    encoder = encoder_for("memory", str(quick_encoder), "cpu")
    examples = examples_of([cell], encoder, True, show=False)
    assert np.unique(examples.folds).tolist() == list(range(FOLDS)) and cell.group == "to-en"
    found = cell.retriever(encoder, Similarity({}, {})).candidates(cell.sentences, cell.drafts)
    for row in (0, 17, len(found.rows) - 1):
        reference = cell.references[found.rows[row]]
        expected = CHRF().sentence_score(found.texts[row], [reference]).score / 100
        assert examples.labels[row] == pytest.approx(expected, abs=1e-6)


def test_similarity_is_fitted_and_tells_what_on(memory: tuple[Path, Path], tmp_path: Path) -> None:
    cell = ["--cell", *map(str, memory)]
    similarity = tmp_path / "similarity.json"
    assert main([*cell, "--output", str(similarity), "--device", "cpu", "--quiet"]) == 0
    model = Similarity.load(similarity)
    assert tuple(model.models) == KINDS
    report = model.fitted["held out"]["draft and original"]
    assert report["correlation"] > 0.5, "drafts and originals tell what the reference is like"
    assert report["to-en"]["chrf"] >= report["to-en"]["by cosine"], "a random encoder tells nothing"
    assert "/" not in model.fitted["command"].replace("python -m finetune.memory", "")
    assert model.fitted["cells"][0]["sentences"] == 20


def test_mistakes_are_told(memory: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, index = memory
    damaged, other = tmp_path / "damaged.jsonl", tmp_path / "turned.jsonl"
    damaged.write_text('{"source": "x"}\n')
    other.write_text(file.read_text().replace('"target_language": "en"', '"target_language": "cs"'))
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_text(file.read_text() + other.read_text())
    for path, message in (
        (tmp_path / "none.jsonl", "there is no file"),
        (damaged, "has no sentences with drafts"),
        (other, "needs a memory of cs"),
        (mixed, "sentences of 2 directions"),
    ):
        assert main(["--cell", str(path), str(index), "--output", str(tmp_path / "x.json")]) == 2
        assert message in capsys.readouterr().err


def test_one_language_tells_nothing_of_originals(
    tmp_path: Path, quick_encoder: Path, memory: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    encoder = encoder_for("memory", str(quick_encoder), "cpu")
    texts = [Sentence(" ".join(WORDS[n : n + 4]), "en") for n in range(10)]
    build_for("memory", tmp_path / "en", texts, encoder, "en", show=False)
    cell = ["--cell", str(memory[0]), str(tmp_path / "en")]
    assert main([*cell, "--output", str(tmp_path / "s.json"), "--device", "cpu", "--quiet"]) == 0
    assert "kept as they ship" in capsys.readouterr().err
    new, shipped = Similarity.load(tmp_path / "s.json").models, Similarity.load(SHIPPED).models
    assert {kind for kind in KINDS if new[kind] == shipped[kind]} == {"source and original", "draft and original"}
