"""Names to loaded models, with tiny random models that the tests write and the embedded ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors import SafetensorError
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BertConfig,
    BertModel,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5Model,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
)

from rag_mt.base.errors import UserError
from rag_mt.models import loading as models
from rag_mt.models.errors import REASONS, model_errors
from rag_mt.models.loading import _says_its_tokens, choose_device, choose_dtype, load_encoder, load_llm, resolve_model

WORDS = ["<pad>", "<s>", "</s>", "<unk>", "<|im_end|>", "the", "cat", "sat", "on", "mat", "dog"]
SIZES: dict[str, Any] = {"vocab_size": len(WORDS), "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
SIZES |= {"intermediate_size": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def save(model: PreTrainedModel, folder: Path, **tokenizer: Any) -> Path:
    """A model folder with a tokenizer of a few words."""
    model.save_pretrained(folder)
    words = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = Whitespace()
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"} | tokenizer
    PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(folder)
    return folder


def llama(**changes: Any) -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES | changes))


def lora(folder: Path, model: PreTrainedModel, base: str) -> Path:
    """An adapter folder for `model` whose weights are not zero."""
    model.name_or_path = base
    settings = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    adapted = get_peft_model(model, settings)
    torch.manual_seed(1)
    for name, weight in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weight)
    adapted.save_pretrained(folder)
    return folder


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.inference_mode():
        result: torch.Tensor = model(input_ids=torch.tensor([[1, 5, 6, 7]])).logits
    return result


@dataclass(frozen=True)
class Folders:
    llama: Path
    bert: Path
    adapter: Path


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    root = tmp_path_factory.mktemp("models")
    return Folders(
        llama=save(llama(), root / "llama"),
        bert=save(BertModel(BertConfig(**SIZES)), root / "bert"),
        adapter=lora(root / "adapter", llama(), "llama"),
    )


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[Path], Path]:
    """Makes a copy of a model folder that the test may damage."""
    return lambda folder: Path(shutil.copytree(folder, tmp_path / "copy" / folder.name))


def test_encoder_is_loaded_bare_and_in_evaluation_mode(folders: Folders) -> None:
    loaded = load_encoder(str(folders.bert), device="cpu", dtype="bfloat16")
    assert loaded.model.dtype == torch.float32 and loaded.dtype == torch.bfloat16
    assert not loaded.model.training and loaded.tokenizer.is_fast
    assert loaded.folder == folders.bert
    assert loaded.model.pooler is not None  # the folder has its weights, as LaBSE does
    assert loaded.model.config._attn_implementation == "sdpa"


def test_pooler_without_weights_is_removed(tmp_path: Path) -> None:
    model = XLMRobertaForMaskedLM(XLMRobertaConfig(**SIZES))
    loaded = load_encoder(str(save(model, tmp_path / "xlmr")), device="cpu")
    assert loaded.model.pooler is None
    states = loaded.model(**loaded.tokenizer(["the cat sat"], return_tensors="pt"))
    assert states.last_hidden_state.shape == (1, 3, 16)


def test_language_model_is_ready_to_generate(folders: Folders) -> None:
    loaded = load_llm(str(folders.llama), device="cpu", dtype="bfloat16")
    assert loaded.model.dtype == loaded.dtype == torch.bfloat16
    batch = loaded.tokenizer(["the cat sat", "the"], return_tensors="pt", padding=True)
    assert batch["input_ids"][1].tolist()[:2] == [0, 0], "short prompts are padded on the left"
    settings = loaded.model.generation_config
    assert (settings.eos_token_id, settings.pad_token_id, settings.bos_token_id) == ([2], 0, 1)
    assert settings.do_sample is False and settings.temperature is None
    assert loaded.model.generate(**batch, max_new_tokens=3).shape[0] == 2


def test_sampling_settings_of_the_folder_are_put_aside(folders: Folders, copy_of: Callable[[Path], Path]) -> None:
    folder = copy_of(folders.llama)
    told = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "eos_token_id": [2, 9]}
    (folder / "generation_config.json").write_text(json.dumps(told))
    settings = load_llm(str(folder), device="cpu").model.generation_config
    assert settings.do_sample is False and settings.top_p is None
    assert settings.eos_token_id == [2, 9]


@pytest.mark.parametrize(("template", "ends"), [(None, [2]), ("{{ messages[0].content }}", [2, 4])])
def test_ends_of_turn_count_only_for_chat_models(tmp_path: Path, template: str | None, ends: list[int]) -> None:
    folder = save(llama(), tmp_path / "chat", chat_template=template)
    assert load_llm(str(folder), device="cpu").model.generation_config.eos_token_id == ends


def test_missing_pad_token_becomes_the_end_of_text(tmp_path: Path) -> None:
    loaded = load_llm(str(save(llama(), tmp_path / "m", pad_token=None)), device="cpu")
    assert loaded.tokenizer.pad_token_id == loaded.model.generation_config.pad_token_id == 2


def test_adapter_is_merged_into_the_weights(folders: Folders) -> None:
    plain = load_llm(str(folders.llama), device="cpu", dtype="float32")
    tuned = load_llm(str(folders.llama), str(folders.adapter), device="cpu", dtype="float32")
    unmerged = PeftModel.from_pretrained(llama(), str(folders.adapter)).eval()
    assert isinstance(tuned.model, LlamaForCausalLM)
    assert torch.allclose(logits(tuned.model), logits(unmerged), atol=1e-5)
    assert not torch.allclose(logits(tuned.model), logits(plain.model), atol=1e-2)
    assert tuned.fingerprint != plain.fingerprint


def test_tokenizer_is_the_one_that_transformers_reads(folders: Folders) -> None:
    """The added tokens of its file are taken from there, without a second look into it."""
    ours = load_llm(str(folders.llama), device="cpu").tokenizer
    theirs = AutoTokenizer.from_pretrained(folders.llama)
    assert _says_its_tokens(folders.llama) and type(ours) is type(theirs)
    assert ours.backend_tokenizer.to_str() == theirs.backend_tokenizer.to_str()
    assert ours.special_tokens_map == theirs.special_tokens_map
    assert ours.added_tokens_decoder == theirs.added_tokens_decoder


def test_tokens_of_older_files_count_too(folders: Folders, copy_of: Callable[[Path], Path]) -> None:
    folder = copy_of(folders.llama)
    change_json(folder / "tokenizer_config.json", eos_token=None)
    (folder / "special_tokens_map.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    assert load_llm(str(folder), device="cpu").tokenizer.eos_token == "<|im_end|>"
    (folder / "special_tokens_map.json").rename(folder / "added_tokens.json")
    (folder / "added_tokens.json").write_text(json.dumps({"<new>": len(WORDS)}))
    assert load_llm(str(folder), device="cpu").tokenizer.convert_tokens_to_ids("<new>") == len(WORDS)


def test_adapter_made_from_a_loaded_model_names_its_base(folders: Folders, tmp_path: Path) -> None:
    loaded = load_llm("embedded:smollm2-135m", device="cpu")
    adapted = get_peft_model(loaded.model, LoraConfig(r=1, target_modules=["q_proj"]))
    adapted.save_pretrained(tmp_path / "a")
    assert json.loads((tmp_path / "a/adapter_config.json").read_text())["base_model_name_or_path"] == loaded.name


def test_other_base_name_is_noted(folders: Folders, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    adapter = lora(tmp_path / "a", llama(), "somewhere/else")
    load_llm(str(folders.llama), str(adapter), device="cpu")
    assert "names somewhere/else as its base" in caplog.text
    caplog.clear()
    load_llm(str(folders.llama), str(folders.adapter), device="cpu")
    assert "as its base" not in caplog.text


def test_fingerprint_tells_settings_and_weights_apart(folders: Folders, copy_of: Callable[[Path], Path]) -> None:
    name = str(folders.llama)
    full, half = (load_llm(name, device="cpu", dtype=dtype).fingerprint for dtype in ("float32", "bfloat16"))
    assert full == load_llm(name, device="cpu", dtype="float32").fingerprint
    folder = copy_of(folders.llama)
    assert load_llm(str(folder), device="cpu", dtype="float32").fingerprint == full, "the place does not matter"
    save(llama(hidden_size=32), folder)
    assert len({full, half, load_llm(str(folder), device="cpu", dtype="float32").fingerprint}) == 3


def test_gemma_is_not_loaded_in_float16_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(save(Gemma3ForCausalLM(Gemma3TextConfig(**SIZES, head_dim=8)), tmp_path / "g"))
    monkeypatch.setattr(models, "choose_dtype", lambda name, device: torch.float16)
    assert load_llm(folder, device="cpu", dtype="auto").model.dtype == torch.float32
    assert load_llm(folder, device="cpu", dtype="float16").model.dtype == torch.float16


def test_embedded_gemma_translates() -> None:
    loaded = load_llm("embedded:gemma-3-270m", device="cpu")
    assert loaded.model.generation_config.eos_token_id == [1]
    pairs = [
        ("Das Wetter ist heute schön.", "The weather is nice today."),
        ("Wo ist der nächste Bahnhof?", "Where is the nearest train station?"),
        ("Die Regierung hat neue Maßnahmen angekündigt.", "The government has announced new measures."),
        ("Er hat gestern ein Buch gekauft.", "He bought a book yesterday."),
        ("Die Kinder spielen im Garten hinter dem Haus.", ""),
    ]
    prompt = "\n\n".join(f"German: {source}\nEnglish: {target}" for source, target in pairs).rstrip()
    batch = loaded.tokenizer(prompt, return_tensors="pt")
    made = loaded.model.generate(**batch, max_new_tokens=14)[0, batch["input_ids"].shape[1] :]
    answer = loaded.tokenizer.decode(made).strip().splitlines()[0]
    assert {"children", "play", "garden", "house"} <= {word.strip(".").lower() for word in answer.split()}, answer


def test_device_and_number_format_names() -> None:
    cpu = torch.device("cpu")
    assert choose_device("cpu") == cpu and choose_device("auto").type in ("cuda", "mps", "cpu")
    assert choose_dtype("float16", cpu) == torch.float16
    assert choose_dtype("auto", cpu) in (torch.bfloat16, torch.float32)
    for name in ("gpu", "cuda:99", "cuda:x", "cpu:0", ""):
        with pytest.raises(UserError, match="choose auto or one of cpu"):
            choose_device(name)
    with pytest.raises(UserError, match="unknown number format 'int4'"):
        choose_dtype("int4", cpu)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("./nowhere", "no model folder './nowhere'"),
        ("/nowhere/model", "no model folder"),
        ("a/b/c", "no model folder"),
        ("", "no model folder ''"),
        ("no such", "neither a model folder nor a hub id"),
        ("nobody/nothing", "HF_HUB_OFFLINE.*embedded:e5-small"),
        ("embedded:none", "embedded:gemma-3-270m"),
        (__file__, "is a file"),
    ],
)
def test_names_that_lead_nowhere(name: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        resolve_model(name)


REFUSED = httpx.Response(403, request=httpx.Request("GET", "https://huggingface.co/x"))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (GatedRepoError("gated", response=REFUSED), "accept its licence at https://huggingface.co/o/m.*hf auth login"),
        (RepositoryNotFoundError("404", response=REFUSED), "no model 'o/m' that you may see"),
        (LocalEntryNotFoundError("offline"), "cannot be reached or HF_HUB_OFFLINE is set"),
        (torch.OutOfMemoryError("CUDA out of memory"), "does not fit.*4bit"),
        (MemoryError(), "does not fit into memory"),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried"), "does not fit into memory"),
        (ImportError("requires the blobfile library"), "package that is not installed .requires the blobfile library"),
        (ValueError("contains custom code which must be executed"), "never run here"),
        (OSError(28, "No space left on device"), "cannot be read .*No space left"),
    ],
)
def test_errors_of_the_hub_and_the_machine(monkeypatch: pytest.MonkeyPatch, error: Exception, said: str) -> None:
    def fail(*_: Any, **__: Any) -> str:
        raise error

    monkeypatch.setattr(models, "snapshot_download", fail)
    with pytest.raises(UserError, match=said) as raised:
        resolve_model("o/m")
    assert raised.value.__cause__ is error


def test_every_reason_is_one_whole_sentence() -> None:
    for _, _, sentence in REASONS:
        text = sentence.format(name="o/m", error="why", path="/cache/o-m", again="save it again")
        assert "o/m" in text and "\n" not in text and not text.endswith(".")


def test_errors_that_nobody_foresaw_keep_their_traceback() -> None:
    with pytest.raises(ZeroDivisionError), model_errors("o/m"):
        raise ZeroDivisionError


def change_json(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def change_config(folder: Path, **changes: Any) -> None:
    change_json(folder / "config.json", **changes)


def without(file: str) -> Callable[[Path], None]:
    return lambda folder: (folder / file).unlink()


def only_pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def cut_weights(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])


def own_code(folder: Path) -> None:
    change_config(folder, model_type="mine", auto_map={"AutoConfig": "mine.C", "AutoModelForCausalLM": "mine.M"})


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (without("config.json"), "lacks config.json"),
        (without("model.safetensors"), "has no weights"),
        (without("tokenizer.json"), "tokenizer of .* cannot be loaded"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "tokenizer of .* cannot be loaded"),
        (lambda folder: (folder / "tokenizer.json").write_text("no JSON"), "tokenizer of .* cannot be loaded"),
        (only_pickle, r"only pickled weights .*save_pretrained"),
        (cut_weights, r"weight file of .* is damaged .*: delete /\S+ and fetch"),
        (lambda folder: (folder / "config.json").write_text("{"), "cannot be read .*config.json"),
        (lambda folder: change_config(folder, model_type="mine"), "cannot load .* for this job"),
        (lambda folder: change_config(folder, hidden_size=32), "other sizes than its config.json"),
        (lambda folder: change_config(folder, num_hidden_layers=3), r"no weights for model.layers.2.*, \.\.\."),
        (own_code, "program code of its own"),
    ],
)
def test_damaged_folders(
    folders: Folders, copy_of: Callable[[Path], Path], damage: Callable[[Path], None], said: str
) -> None:
    folder = copy_of(folders.llama)
    damage(folder)
    with pytest.raises(UserError, match=said) as raised:
        load_llm(str(folder), device="cpu")
    assert str(folder) in str(raised.value)


@pytest.mark.parametrize(
    "error", [SafetensorError("header"), OSError("no config.json"), json.JSONDecodeError("?", "{", 1)]
)
def test_a_damaged_model_of_the_cache_is_made_again_by_clearing_it(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAG_MT_CACHE", str(tmp_path))
    folder = tmp_path / "models" / "e5-small-1"
    with pytest.raises(UserError, match="rag-mt cache clear models") as raised, model_errors("embedded:e5", folder):
        raise error
    assert f"delete {folder}" in str(raised.value)
    with pytest.raises(UserError) as raised, model_errors("mine", tmp_path / "mine"):
        raise error
    assert f"delete {tmp_path / 'mine'} and fetch" in str(raised.value) and "cache clear" not in str(raised.value)


def test_models_for_another_job_are_refused(folders: Folders, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a model for another job"):
        load_llm(str(folders.bert), device="cpu")
    t5 = T5Model(T5Config(vocab_size=11, d_model=16, d_ff=16, num_layers=1, num_heads=2, d_kv=8))
    with pytest.raises(UserError, match="encoder-decoder"):
        load_encoder(str(save(t5, tmp_path / "t5")), device="cpu")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (shutil.rmtree, "there is no adapter folder"),
        (without("adapter_config.json"), "lacks adapter_config.json"),
        (without("adapter_model.safetensors"), "lacks adapter_model.safetensors"),
        (lambda folder: lora(folder, llama(hidden_size=32), "big"), "made for big and does not fit"),
        (lambda folder: lora(folder, llama(num_hidden_layers=3), "deep"), "made for deep and does not fit"),
        (lambda folder: lora(folder, llama(num_hidden_layers=1), "flat"), "made for flat and does not fit"),
    ],
)
def test_adapters_that_do_not_fit(
    folders: Folders, copy_of: Callable[[Path], Path], damage: Callable[[Path], Any], said: str
) -> None:
    adapter = copy_of(folders.adapter)
    damage(adapter)
    with pytest.raises(UserError, match=said):
        load_llm(str(folders.llama), str(adapter), device="cpu")


def test_language_model_adapter_on_an_encoder_is_refused(folders: Folders) -> None:
    with pytest.raises(UserError, match="does not fit"):
        load_encoder(str(folders.bert), device="cpu", adapter=str(folders.adapter))


def test_quantisation_needs_cuda(folders: Folders) -> None:
    with pytest.raises(UserError, match="4bit needs a CUDA device and this is cpu"):
        load_llm(str(folders.llama), device="cpu", quantization="4bit")
    with pytest.raises(UserError, match="unknown quantization '2bit'"):
        load_llm(str(folders.llama), device="cpu", quantization="2bit")  # type: ignore[arg-type]


def test_quantisation_needs_its_package(monkeypatch: pytest.MonkeyPatch, folders: Folders) -> None:
    monkeypatch.setattr(models, "choose_device", lambda name: torch.device("cuda"))
    monkeypatch.setattr(models, "choose_dtype", lambda name, device: torch.bfloat16)
    monkeypatch.setattr(models, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install 'bitsandbytes"):
        load_llm(str(folders.llama), device="cuda", quantization="8bit")


def test_weights_can_be_read_by_transformers_itself(folders: Folders) -> None:
    ours = load_llm(str(folders.llama), device="cpu", dtype="float32").model
    theirs = AutoModelForCausalLM.from_pretrained(folders.llama, dtype=torch.float32).eval()
    assert torch.equal(logits(ours), logits(theirs))


def test_threads_may_load_models_at_once(tmp_path: Path) -> None:
    """Without a lock transformers takes tied weights for missing ones, from then on and in every thread."""
    sizes = SIZES | {"tie_word_embeddings": True, "num_hidden_layers": 8, "head_dim": 8, "num_key_value_heads": 1}
    folder = str(save(Gemma3ForCausalLM(Gemma3TextConfig(**sizes)), tmp_path / "tied"))
    with ThreadPoolExecutor(4) as pool:
        loads = [pool.submit(load_llm, folder, None, "cpu", dtype) for dtype in ("float32", "bfloat16") * 4]
        loaded = [load.result() for load in loads]
    for one in loaded:
        tied: Any = one.model
        assert tied.lm_head.weight is tied.get_input_embeddings().weight
        assert tied.dtype == one.dtype
