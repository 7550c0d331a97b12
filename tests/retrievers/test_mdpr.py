"""The dual encoder: any encoder is one, and trained ones open by their folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import BertModel

from rag_mt.base.defaults import DEFAULT_PASSAGE_MODEL
from rag_mt.base.errors import UserError
from rag_mt.base.files import SAMPLE_CORPUS
from retrievers.encoders.encoder import Family, open_encoder
from retrievers.mdpr import MdprSettings, is_passage_model, open_mdpr, passage_model_folder
from retrievers.registry import RETRIEVERS

TEXTS = ["Who opened the bridge?", "The mayor opened the new bridge on Tuesday."]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, quick_encoder: Path) -> Path:
    """A passage model with a random adapter for queries and another one for passages."""
    folder = tmp_path_factory.mktemp("mdpr")
    for number, kind in enumerate(("query", "passage")):
        torch.manual_seed(number)
        lora = LoraConfig(r=4, target_modules=r"encoder\.layer\..*(query|value)", init_lora_weights=False)
        get_peft_model(BertModel.from_pretrained(quick_encoder), lora).save_pretrained(folder / kind)
    MdprSettings(str(quick_encoder), shared=False, query_prefix="q: ", passage_prefix="p: ").save(folder)
    return folder


def test_a_plain_encoder_is_an_untrained_model(quick_encoder: Path) -> None:
    plain = open_encoder(str(quick_encoder), "cpu", "float32")
    model = open_mdpr(str(quick_encoder), "cpu", "float32")
    assert model.shared
    assert model.fingerprint == plain.fingerprint
    assert (model.dimension, model.layers) == (plain.dimension, plain.layers)
    for kind in ("query", "passage"):
        np.testing.assert_array_equal(model.encode(TEXTS, kind), plain.encode(TEXTS, kind))
    (states,) = model.states(TEXTS[:1], 1)
    np.testing.assert_array_equal(states.states, next(plain.states(TEXTS[:1], 1)).states)


def test_each_kind_has_its_own_encoder_and_prefix(trained: Path, quick_encoder: Path) -> None:
    model = open_mdpr(str(trained), "cpu", "float32")
    asked, passages = model.encode(TEXTS, "query"), model.encode(TEXTS, "passage")
    assert asked.dtype == passages.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(np.concatenate([asked, passages]), axis=1), 1, atol=1e-5)
    assert np.abs(asked - passages).max() > 0.01
    for kind, prefix, vectors in (("query", "q: ", asked), ("passage", "p: ", passages)):
        alone = open_encoder(str(quick_encoder), "cpu", "float32", adapter=str(trained / kind))
        alone.family = Family("mean", {"query": prefix})
        np.testing.assert_allclose(alone.encode(TEXTS), vectors, atol=1e-6)
    assert model.fingerprint != open_mdpr(str(quick_encoder), "cpu", "float32").fingerprint


def test_the_shipped_model_finds_passages_in_another_language() -> None:
    model = open_mdpr(dtype="float32")
    assert model.id == DEFAULT_PASSAGE_MODEL == RETRIEVERS["passage"].encoder
    lines = [(SAMPLE_CORPUS / f"{code}.txt").read_text(encoding="utf-8").splitlines() for code in ("de", "en")]
    asked, passages = lines[0][:30], lines[1][:90]
    best = (model.encode(asked, "query") @ model.encode(passages, "passage").T).argmax(axis=1)
    assert (best == np.arange(30)).mean() > 0.9


def test_names(trained: Path, quick_encoder: Path) -> None:
    assert is_passage_model(str(trained)) and not is_passage_model(str(quick_encoder))
    assert passage_model_folder(str(trained)) == trained
    with pytest.raises(UserError, match=r"'nothing' is no passage model: give .* or a folder with mdpr.json"):
        passage_model_folder("nothing")


def test_a_model_that_is_not_whole(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "mdpr.json").write_text((trained / "mdpr.json").read_text())
    with pytest.raises(UserError, match="lacks the folder 'query': copy the whole folder again"):
        open_mdpr(str(tmp_path), "cpu")
    settings = json.loads((trained / "mdpr.json").read_text())
    (tmp_path / "mdpr.json").write_text(json.dumps({**settings, "hidden": 3}))
    with pytest.raises(UserError, match=r"does not fit this version of rag_mt \(hidden\): train the model again"):
        open_mdpr(str(tmp_path), "cpu")
