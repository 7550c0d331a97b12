"""Names to loaded models: hub ids (`xlm-roberta-base`), model folders, and `embedded:NAME`.

Only safetensors weights are read and no model's own code is run.
"""

from __future__ import annotations

import logging
import platform
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from huggingface_hub import snapshot_download
from tokenizers import Regex, normalizers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from rag_mt.base.defaults import DEFAULT_ENCODER, DEFAULT_LLM
from rag_mt.base.errors import UserError
from rag_mt.base.files import folder_fingerprint, read_json, settings_hash
from rag_mt.models.adapter_files import adapter_fingerprint
from rag_mt.models.adapters import merge_adapter
from rag_mt.models.errors import first_line, model_errors
from rag_mt.models.offline.embedded import PREFIX, embedded_folder

log = logging.getLogger("rag_mt")

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
Quantization = Literal["none", "8bit", "4bit"]

HUB_FILES = ["*.safetensors", "*.json", "*.model", "*.txt", "*.jinja"]
HUB_LEFT_OUT = ["onnx/*", "openvino/*", "original/*", "*.bin", "*.h5", "*.msgpack", "*.onnx"]
FINGERPRINTED = (".safetensors", ".json", ".model", ".txt", ".jinja")
"""Files that change a model's outputs: weights, settings, vocabularies (.txt, .model), chat templates."""
ENDS_OF_TURN = ("<end_of_turn>", "<|im_end|>", "<|eot_id|>", "<|end|>")
"""What ends an answer in chat-tuned models beside the end-of-text token."""
GENERAL_TOKENIZERS = ("TokenizersBackend", "PreTrainedTokenizerFast")
"""The class that takes a tokenizer.json as it stands, by its names in transformers 5 and 4."""
TOKENS_APART = ("special_tokens_map.json", "added_tokens.json")
"""Where older releases of transformers wrote special and added tokens."""
BLANK_AT_MARK = Regex(
    r"(?<=[\p{L}\p{M}\p{N})\]»”\"'’%])[^\S\n]+(?=[.,;:!?…]+(?:\s|$)|[)\]](?:\s|$|[.,;:!?…]))"
    r"|(?<=^[(\[]|\s[(\[])[^\S\n]+(?=\S)"
)
"""White space before a mark that ends a clause or sentence, or before `)`, where a letter, digit, `)`, `%` or one of
`» ” ’ " '` stands before it, and behind `(`: tokenised text has it, French before `! ? ; :`, other text has not."""
_LOADING = threading.RLock()
"""One load at a time: transformers sets models up through state of the whole process, and with two loads at once it
takes tied weights for missing ones from then on."""


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model in evaluation mode with its tokenizer. `folder` holds its files, `fingerprint` is a hash of all that
    changes its outputs."""

    name: str
    model: PreTrainedModel = field(repr=False)
    tokenizer: PreTrainedTokenizerBase = field(repr=False)
    device: torch.device
    dtype: torch.dtype
    fingerprint: str
    folder: Path | None


class LoadedEncoder(LoadedModel):
    """A bare transformer.

    The weights are float32. `dtype` is the format to compute in: if it is not float32, run the model under
    `torch.autocast(device.type, dtype)`. `fingerprint` changes with weights, tokenizer and adapter, not with `dtype`:
    vectors in bfloat16 are near enough to those in float32 (cosine > 0.999) that an index made on one machine serves on
    another.
    """


class LoadedLLM(LoadedModel):
    """A causal language model whose tokenizer pads on the left.

    The model's generation settings are greedy with the tokenizer's special tokens. `dtype` is the weights' format
    (the format computed in, if they are quantised).
    """


def resolve_model(name: str) -> Path:
    """The folder with the files of the model `name`: an embedded model's, the folder itself, or a hub snapshot.

    A hub model is downloaded into the hub cache at its first use and read from there without a network.
    Raises UserError if there is no such model or its folder lacks `config.json` or safetensors weights.
    """
    if name.startswith(PREFIX):
        return embedded_folder(name)
    folder = Path(name).expanduser()
    if name and folder.is_dir():
        return _checked_folder(name, folder)
    if folder.is_file():
        raise UserError(f"{name} is a file: give the model's folder, with config.json and *.safetensors in it")
    if name.startswith((".", "/", "~", "\\")) or name.count("/") > 1 or ":" in name or not name:
        raise UserError(f"there is no model folder {name!r}: check the path, or give a hub id or {DEFAULT_ENCODER}")
    with model_errors(name):
        snapshot = snapshot_download(name, allow_patterns=HUB_FILES, ignore_patterns=HUB_LEFT_OUT)
    return _checked_folder(name, Path(snapshot))


def load_encoder(
    name: str = DEFAULT_ENCODER, device: str = "auto", dtype: str = "auto", adapter: str | None = None
) -> LoadedEncoder:
    """Load an encoder, with a PEFT adapter folder merged into it if one is given.

    Weights stay float32 and `dtype` is meant for autocast: measured on a CPU with AVX512-bf16 this has 93 % of the
    speed of bfloat16 weights and a quarter of their error (1 - cosine at layer 7: 2e-5 against 9e-5).
    A pooler that the model's file has no weights for is removed; one that is there (LaBSE) stays.
    The tokenizer reads `Wort , ( so ) !` as `Wort, (so)!`: otherwise vectors differ more by tokenisation than by
    meaning. The fingerprint is not changed by it: vectors of text without such blanks are what they were.
    Raises UserError for whatever the user can mend.
    """
    torch_device = choose_device(device)
    torch_dtype = choose_dtype(dtype, torch_device)
    with _loading(name) as folder:
        if AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False).is_encoder_decoder:
            raise UserError(f"{name} is an encoder-decoder model: choose an encoder such as {DEFAULT_ENCODER}")
        model, missing = _load(AutoModel, name, folder, torch_device, torch.float32)
        tokenizer = _load_tokenizer(name, folder)
        _join_marks(tokenizer)
        if any(key.startswith("pooler.") for key in missing):
            setattr(model, "pooler", None)  # noqa: B010 (typed as a module)
        _check_missing(name, [key for key in missing if not key.startswith("pooler.")])
        model = merge_adapter(model, name, adapter) if adapter else model
    fingerprint = _fingerprint(folder, torch.float32, "none", adapter)  # of the weights: see LoadedEncoder
    return LoadedEncoder(name, model.eval(), tokenizer, torch_device, torch_dtype, fingerprint, folder)


def load_llm(
    name: str = DEFAULT_LLM,
    adapter: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    quantization: Quantization = "none",
) -> LoadedLLM:
    """Load a causal language model, with a PEFT adapter folder if one is given.

    The adapter is merged into unquantised weights (faster); quantised ones keep it beside them.
    `8bit` and `4bit` (NF4 with double quantisation, as in QLoRA: Dettmers et al., 2023) need CUDA and bitsandbytes.
    Raises UserError for whatever the user can mend.
    """
    torch_device = choose_device(device)
    torch_dtype = choose_dtype(dtype, torch_device)
    quantized = _quantization_config(quantization, torch_device, torch_dtype)
    with _loading(name) as folder:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        if dtype == "auto" and torch_dtype == torch.float16 and config.model_type.startswith("gemma"):
            torch_dtype = torch.float32  # Gemma's activations overflow float16
        options = {"quantization_config": quantized}
        model, missing = _load(AutoModelForCausalLM, name, folder, torch_device, torch_dtype, **options)
        _check_missing(name, missing)
        tokenizer = _load_tokenizer(name, folder)
        _set_generation(model, tokenizer)
        model = merge_adapter(model, name, adapter, merge=quantized is None) if adapter else model
    fingerprint = _fingerprint(folder, torch_dtype, quantization, adapter)
    return LoadedLLM(name, model.eval(), tokenizer, torch_device, torch_dtype, fingerprint, folder)


@contextmanager
def _loading(name: str) -> Iterator[Path]:
    """The folder of the model `name`; while it is loaded no other is, and errors become sentences for the user."""
    with _LOADING:
        folder = resolve_model(name)  # may load an embedded model to convert it
        with model_errors(name, folder), quiet_loading():
            yield folder


def _checked_folder(name: str, folder: Path) -> Path:
    if not (folder / "config.json").is_file():
        raise UserError(f"the model folder {name} lacks config.json: give the folder that save_pretrained wrote")
    if not any(folder.glob("*.safetensors")):
        weights = "only pickled weights (*.bin)" if any(folder.glob("*.bin")) else "no weights"
        raise UserError(
            f"{name} has {weights} and only safetensors are read: where you trust the source, load it with "
            "transformers' from_pretrained and write it with save_pretrained, or choose another model"
        )
    return folder


def _load(
    kind: type[AutoModel] | type[AutoModelForCausalLM],
    name: str,
    folder: Path,
    device: torch.device,
    dtype: torch.dtype,
    **options: Any,
) -> tuple[PreTrainedModel, list[str]]:
    """The model and the names of the weights that its files lack (and that are random now)."""
    model_and_report: Any = kind.from_pretrained(
        folder,
        dtype=dtype,
        device_map=None if device.type == "cpu" else {"": device},
        local_files_only=True,
        use_safetensors=True,
        trust_remote_code=False,
        output_loading_info=True,
        **options,
    )
    model, report = model_and_report
    model.name_or_path = model.config.name_or_path = name  # what PEFT writes into adapters: no path of this machine
    return model, sorted(report["missing_keys"])


def _check_missing(name: str, missing: list[str]) -> None:
    if missing:
        shown = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise UserError(
            f"{name} has no weights for {shown}: it is incomplete or a model for another job; choose one that fits"
        )


def _load_tokenizer(name: str, folder: Path) -> PreTrainedTokenizerBase:
    try:
        options: dict[str, Any] = {"added_tokens_decoder": {}} if _says_its_tokens(folder) else {}
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False, **options)
    except (ImportError, OSError, MemoryError):
        raise  # said by model_errors
    except Exception as error:  # a damaged tokenizer.json ends in any class, the bare one included
        raise UserError(
            f"the tokenizer of {name} cannot be loaded ({first_line(error)}): the model needs a whole tokenizer.json; "
            "fetch it again or write it with the tokenizer's save_pretrained"
        ) from error
    if not tokenizer.is_fast:
        raise UserError(
            f"the tokenizer of {name} has no fast version and character offsets need one: add a tokenizer.json or "
            "choose another model"
        )
    return tokenizer


def _join_marks(tokenizer: PreTrainedTokenizerBase) -> None:
    """Leave white space at marks out of what the tokenizer reads. Offsets stay those of the text as it is."""
    backend: Any = tokenizer.backend_tokenizer
    joined, own = normalizers.Replace(BLANK_AT_MARK, ""), backend.normalizer
    if repr(joined) not in repr(own):  # a model that was trained as a whole was saved with it
        backend.normalizer = normalizers.Sequence([joined, own] if own else [joined])


def _says_its_tokens(folder: Path) -> bool:
    """Whether the folder's tokenizer is of the general class, which takes its added tokens from tokenizer.json itself.
    Without any in its settings transformers reads that file once more for them, a second for 262,144 tokens, and the
    files of TOKENS_APART, which count too."""
    settings = folder / "tokenizer_config.json"
    if not (settings.is_file() and (folder / "tokenizer.json").is_file()):
        return False
    if any((folder / name).is_file() for name in TOKENS_APART):
        return False
    stored = read_json(settings)
    return stored.get("tokenizer_class") in GENERAL_TOKENIZERS and "added_tokens_decoder" not in stored


def _set_generation(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Greedy decoding that ends at the model's own ends of text, and padding on the left."""
    settings: Any = model.generation_config
    of_model = settings.eos_token_id
    ends = set(of_model if isinstance(of_model, list) else [of_model]) | {tokenizer.eos_token_id}
    if tokenizer.chat_template:
        ids: Any = tokenizer.convert_tokens_to_ids(list(ENDS_OF_TURN))
        ends |= {i for i in ids if i != tokenizer.unk_token_id}
    settings.eos_token_id = sorted(end for end in ends if end is not None)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    settings.pad_token_id, settings.bos_token_id = tokenizer.pad_token_id, tokenizer.bos_token_id
    settings.do_sample, settings.temperature, settings.top_p, settings.top_k = False, None, None, None
    settings.use_cache = True
    tokenizer.padding_side = "left"


def _quantization_config(
    quantization: Quantization, device: torch.device, dtype: torch.dtype
) -> BitsAndBytesConfig | None:
    if quantization == "none":
        return None
    if quantization not in ("8bit", "4bit"):
        raise UserError(f"unknown quantization {quantization!r}: choose none, 8bit or 4bit")
    if device.type != "cuda":
        raise UserError(f"quantization {quantization} needs a CUDA device and this is {device}: use quantization none")
    if find_spec("bitsandbytes") is None:
        raise UserError(f"quantization {quantization} needs bitsandbytes: pip install 'bitsandbytes>=0.46'")
    if quantization == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )


def _fingerprint(folder: Path, dtype: torch.dtype, quantization: str, adapter: str | None) -> str:
    base = folder_fingerprint(folder, FINGERPRINTED)
    return settings_hash([base, str(dtype), quantization, adapter_fingerprint(adapter) if adapter else None])


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Without transformers' bars, its report of missing weights, which `_check_missing` turns into an error, and the
    warnings that the model libraries have for each other."""
    logging_ = transformers.utils.logging
    level, bars = logging_.get_verbosity(), logging_.is_progress_bar_enabled()
    logging_.set_verbosity_error()
    logging_.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        logging_.set_verbosity(level)
        if bars:
            logging_.enable_progress_bar()


def choose_device(name: str) -> torch.device:
    """The device `name` (`auto`, `cpu`, `cuda`, `cuda:1`, `mps`); `auto` takes the first of cuda, mps, cpu.

    Raises UserError if the name is no device or the machine has no such device.
    """
    present = _present_devices()
    if name == "auto":
        return torch.device(next(kind for kind in ("cuda", "mps", "cpu") if kind in present))
    if name not in present:
        raise UserError(f"there is no device {name!r} here: choose auto or one of {', '.join(present)}")
    return torch.device(name)


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """The number format `name` (`auto`, `float32`, `bfloat16`, `float16`) for work on `device`.

    `auto` is bfloat16 where the hardware computes in it, else float16 on older CUDA cards and float32 elsewhere.
    """
    if name in DTYPES:
        return DTYPES[name]
    if name != "auto":
        raise UserError(f"unknown number format {name!r}: choose auto, {', '.join(DTYPES)}")
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    native = torch.backends.mps.is_macos_or_newer(14, 0) if device.type == "mps" else cpu_has_bfloat16()
    return torch.bfloat16 if native else torch.float32


def _present_devices() -> list[str]:
    cards = [f"cuda:{number}" for number in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    return ["cpu", *(["cuda", *cards] if cards else []), *(["mps"] if torch.backends.mps.is_available() else [])]


def cpu_has_bfloat16() -> bool:
    """Whether the processor multiplies bfloat16 itself; where it must be emulated, float32 is faster."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
