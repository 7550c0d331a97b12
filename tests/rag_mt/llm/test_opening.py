"""Which engine computes a language model."""

from __future__ import annotations

import pytest

from rag_mt.base.errors import UserError
from rag_mt.llm import opening
from rag_mt.llm.opening import chosen_engine, open_llm
from rag_mt.models import loading

GEMMA, FILE, HUB = "embedded:gemma-3-270m", "models/own.gguf", "Qwen/Qwen2.5-0.5B"
LLAMA, TORCH = "llamacpp", "transformers"


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A machine without a GPU, unless the test says otherwise."""
    monkeypatch.setattr(opening, "_has_gpu", lambda: bool(getattr(request, "param", False)))


TABLE = [
    (GEMMA, "auto", "auto", "auto", "none", LLAMA),
    (GEMMA, "auto", "cpu", "auto", "none", LLAMA),
    (GEMMA, "auto", "cuda", "auto", "none", TORCH),
    (GEMMA, "auto", "auto", "float32", "none", TORCH),
    (GEMMA, "auto", "cpu", "bfloat16", "none", TORCH),
    (GEMMA, "auto", "auto", "auto", "4bit", TORCH),
    (GEMMA, TORCH, "auto", "auto", "none", TORCH),
    (GEMMA, TORCH, "cpu", "float32", "8bit", TORCH),
    (GEMMA, LLAMA, "cuda", "auto", "none", LLAMA),
    (FILE, "auto", "auto", "auto", "none", LLAMA),
    (FILE, "auto", "cuda", "auto", "none", LLAMA),
    (FILE, LLAMA, "cpu", "auto", "none", LLAMA),
    (HUB, "auto", "auto", "auto", "none", TORCH),
    (HUB, "auto", "cpu", "float32", "none", TORCH),
    (HUB, TORCH, "auto", "auto", "4bit", TORCH),
    ("models/folder", "auto", "auto", "auto", "none", TORCH),
]


@pytest.mark.parametrize(("name", "engine", "device", "dtype", "quantization", "expected"), TABLE)
def test_the_engine_of_a_model(
    name: str, engine: str, device: str, dtype: str, quantization: str, expected: str
) -> None:
    assert chosen_engine(name, engine, device, dtype, quantization) == expected


@pytest.mark.parametrize("gpu", [True], indirect=True)
def test_a_gpu_that_is_there_is_used(gpu: None) -> None:
    assert chosen_engine(GEMMA, "auto", "auto", "auto", "none") == TORCH
    assert chosen_engine(GEMMA, "auto", "cpu", "auto", "none") == LLAMA
    assert chosen_engine(FILE, "auto", "auto", "auto", "none") == LLAMA


@pytest.mark.parametrize("native", [True, False])
def test_large_batches_are_for_bfloat16(monkeypatch: pytest.MonkeyPatch, native: bool) -> None:
    monkeypatch.setattr(loading, "cpu_has_bfloat16", lambda: native)
    large = TORCH if native else LLAMA
    assert chosen_engine(GEMMA, "auto", "cpu", "auto", "none", 64) == large
    assert chosen_engine(GEMMA, "auto", "cpu", "auto", "none", 63) == LLAMA
    assert chosen_engine(GEMMA, LLAMA, "cpu", "auto", "none", 64) == LLAMA
    assert chosen_engine(FILE, "auto", "cpu", "auto", "none", 64) == LLAMA


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        (GEMMA, {"engine": "vllm"}, r"unknown engine 'vllm': choose one of auto, llamacpp, transformers"),
        (FILE, {"engine": TORCH}, r"own\.gguf is a GGUF file, which transformers does not .*: use the engine llamacpp"),
        (HUB, {"engine": LLAMA}, r"Qwen2\.5-0\.5B is no GGUF file: the engine llamacpp needs one, such as embedded:"),
        (FILE, {"dtype": "bfloat16"}, r"number format of its file: leave out bfloat16$"),
        (FILE, {"quantization": "4bit"}, r"number format of its file: leave out 4bit$"),
        (GEMMA, {"engine": LLAMA, "dtype": "float32"}, r"leave out float32, or use the engine transformers"),
        (GEMMA, {"engine": LLAMA, "quantization": "8bit"}, r"leave out 8bit, or use the engine transformers"),
    ],
)
def test_what_does_not_go_together(name: str, settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        open_llm(name, **settings)  # type: ignore[arg-type]
