"""The weights that ship: all in one place, all in one table, none changed without its row."""

from __future__ import annotations

from pathlib import Path

import pytest

from rag_mt.base.files import file_sha256
from rag_mt.models.weights import FOLDER, shipped_models, shipped_with

ROOT = Path(__file__).parents[3]
PACKAGES = ("rag_mt", "retrievers", "prompts", "finetune", "eval", "ui")
WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".onnx", ".npz", ".npy", ".h5"}


@pytest.mark.parametrize("name", shipped_models())
def test_the_files_of_a_model_are_those_of_the_table(name: str) -> None:
    folder = FOLDER / name
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    assert {file: file_sha256(path) for file, path in files.items()} == dict(shipped_models()[name].sha256)


def test_every_row_says_what_the_model_is_and_may() -> None:
    for name, model in shipped_models().items():
        assert model.job and model.base.startswith("embedded:") and model.trained_on
        numbers = any(file.endswith(".safetensors") for file in model.sha256) and "training.json" in model.sha256
        assert numbers or "similarity.json" in model.sha256  # whose few numbers stand beside what they were fitted on
        gemma = model.base.startswith("embedded:gemma")
        assert model.licence.startswith("Gemma Terms of Use" if gemma else "Apache-2.0"), name
        assert ("LICENCE.md" if gemma else "README.md") in model.sha256, "the terms lie beside the weights"


def test_no_weights_stand_anywhere_else() -> None:
    listed = {FOLDER / name / file for name, model in shipped_models().items() for file in model.sha256}
    weights = {p for package in PACKAGES for p in (ROOT / package).rglob("*") if p.suffix in WEIGHTS}
    assert weights and weights <= listed


def test_a_kind_of_model_is_told_by_its_settings_file() -> None:
    assert shipped_with("ccpr.json") == ["ccpr-e5-small"]
    assert shipped_with("mdpr.json") == ["mdpr-e5-small"]
    assert shipped_with("xpr.json") == ["xpr-e5-small"]
    assert shipped_with("similarity.json") == ["memory-e5-small"]
