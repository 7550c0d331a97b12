"""What a retriever reports of itself: all that could change its hints, and nothing that could not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from rag_mt.base.types import Origin, Retriever, Sentence
from retrievers.ccpr.confidence import FILE, Confidence
from retrievers.ccpr.model import PhraseHeads, PhraseSettings
from retrievers.ccpr.retriever import CcprRetriever
from retrievers.registry import RETRIEVERS, build_for, encoder_for, open_retriever

TEXTS = ["The new hospital opened in spring.", "The bank raised interest rates.", "Farmers fear a poor harvest."]
SEARCHING = [name for name, spec in RETRIEVERS.items() if spec.needs_index]


@pytest.fixture(scope="module")
def phrase_model(tmp_path_factory: pytest.TempPathFactory, quick_encoder: Path) -> Path:
    """A phrase model of random weights with a confidence model."""
    folder = tmp_path_factory.mktemp("settings") / "model"
    shutil.copytree(quick_encoder, folder / "encoder")
    torch.manual_seed(4)
    PhraseHeads(PhraseSettings(str(quick_encoder), layer=2, hidden=32, dimension=16, index_threshold=0.0)).save(folder)
    confidence(1.0).save(folder / FILE)
    return folder


def confidence(weight: float) -> Confidence:
    return Confidence(("score",), (weight,), 0.0, (0.0,), (1.0,), 0.3, {})


@pytest.fixture
def opened(tmp_path: Path, quick_encoder: Path, phrase_model: Path) -> Any:
    """Builds an index of some texts and opens a retriever over it."""

    def make(name: str, texts: list[str] = TEXTS, dtype: str = "float32", source: str = "de") -> Retriever:
        models = {"ccpr": str(phrase_model), "bm25": None}
        encoder = encoder_for(name, models.get(name, str(quick_encoder)), "cpu", dtype)
        folder = tmp_path / f"{name}-{len(texts)}"
        if not folder.is_dir():
            sentences = [Sentence(text, "en", Origin("en.txt", n)) for n, text in enumerate(texts, 1)]
            build_for(name, folder, sentences, encoder, "en", show=False)
        return open_retriever(name, folder, encoder, source_language=source, target_language="en")

    return make


def text_of(retriever: Retriever) -> str:
    return json.dumps(retriever.settings, sort_keys=True)


@pytest.mark.parametrize("name", SEARCHING)
def test_equal_settings_for_equal_retrievers_only(opened: Any, name: str) -> None:
    settings = text_of(opened(name))
    assert settings == text_of(opened(name))
    assert settings != text_of(opened(name, TEXTS[:2])), "another index"
    other = opened(name)
    other.cut_off = 0.77
    assert settings != text_of(other), "another cut-off"
    assert RETRIEVERS[name].encoder == "none" or settings != text_of(opened(name, dtype="bfloat16"))


def test_passages_are_ranked_by_terms_of_the_source_language(opened: Any) -> None:
    assert text_of(opened("bm25", source="de")) != text_of(opened("bm25", source="cs"))


def test_ccpr_reports_its_confidence_model_and_segmentation(opened: Any, phrase_model: Path) -> None:
    retriever = opened("ccpr")
    assert isinstance(retriever, CcprRetriever)
    before = text_of(retriever)
    retriever.segmentation = "ngrams"
    assert text_of(retriever) != before
    confidence(2.0).save(phrase_model / FILE)
    try:
        assert text_of(opened("ccpr")) != before
    finally:
        confidence(1.0).save(phrase_model / FILE)


def test_no_retrieval_has_no_settings() -> None:
    retriever = open_retriever("none", None, None, source_language="de", target_language="en")
    assert retriever.settings == {}
