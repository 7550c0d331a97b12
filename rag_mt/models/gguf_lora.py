"""LoRA adapters of PEFT as the GGUF files that llama.cpp reads, made once and kept in the cache."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize

from rag_mt.base.errors import UserError
from rag_mt.base.files import cache_dir, read_json, settings_hash, whole_file
from rag_mt.models.adapter_files import CONFIG, WEIGHTS, adapter_fingerprint, checked_adapter, plain_lora
from rag_mt.models.gguf_header import GGUFHeader

ARCHITECTURES = ("gemma", "gemma2", "gemma3", "llama", "qwen2", "qwen3")
"""Those whose linear layers stand in GGUF files as in transformers, but for the rows of PERMUTED."""
PERMUTED = {("llama", "attn_q"): "attention.head_count", ("llama", "attn_k"): "attention.head_count_kv"}
"""Architecture and layer whose rows have another order in GGUF files, and the setting with the number of its heads."""
LAYER = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
FORMATS = {"F16": "<f2", "F32": "<f4"}
WRITING = 1
"""Counted up whenever the files that are written change."""

Matrix = NDArray[np.float16] | NDArray[np.float32]


def gguf_adapter(adapter: str, base: GGUFHeader) -> Path:
    """The LoRA adapter folder `adapter` as a GGUF file for the model `base`, in the cache.

    A change W + alpha / r * B A is stored as B (`blk.3.attn_q.weight.lora_b`), A and alpha: float16 weights as they
    are, others in float32. Raises UserError if the adapter is more than LoRA on linear layers or does not fit the model.
    """
    kinds = [base.architecture, {key: base.number(key) for key in PERMUTED.values()}, base.tensors, WRITING]
    path = cache_dir() / "adapters" / f"{adapter_fingerprint(adapter)}-{settings_hash(kinds)[:8]}.gguf"
    if not path.is_file():
        matrices, alpha = _read(adapter, base)
        try:
            with whole_file(path) as part:
                _write(part, base.architecture, matrices, alpha)
        except OSError as error:
            raise UserError(
                f"the adapter {adapter} could not be written to {path.parent} ({error}): make room or set RAG_MT_CACHE "
                "to another folder"
            ) from error
    return path


def _read(adapter: str, base: GGUFHeader) -> tuple[dict[str, Matrix], float]:
    """The adapter's matrices by their names in GGUF files, and its alpha."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map  # loads what an adapter in the cache does not need

    folder, architecture = checked_adapter(adapter), base.architecture
    rank_and_alpha = plain_lora(read_json(folder / CONFIG))
    if rank_and_alpha is None:
        raise _not_for_gguf(f"the adapter {adapter} is more than LoRA of one rank")
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise _not_for_gguf(f"{base.path} is a model of the architecture {architecture!r} and adapters fit {known}")
    rank, alpha = rank_and_alpha
    number = next(number for number, name in MODEL_ARCH_NAMES.items() if name == architecture)
    names = get_tensor_name_map(number, base.number("block_count") or 0)
    misfit = UserError(
        f"the adapter {adapter} was made for other layers than those of {base.path}: name its base model"
    )
    matrices: dict[str, Matrix] = {}
    for key, matrix in sorted(_stored(adapter, folder / WEIGHTS).items()):
        match = LAYER.fullmatch(key)
        if match is None:
            raise _not_for_gguf(f"the adapter {adapter} changes more than linear layers ({key})")
        layer, half = f"{names.get_name(match[1].replace('language_model.', '', 1))}.weight", match[2]
        shape = base.tensors.get(layer, ())
        if len(shape) != 2 or matrix.shape != ((rank, shape[1]) if half == "A" else (shape[0], rank)):
            raise misfit
        matrices[f"{layer}.lora_{half.lower()}"] = _in_order(matrix, layer, base) if half == "B" else matrix
    kinds = {_kind(name) for name in matrices}
    expected = {f"{name}.lora_{half}" for name in base.tensors for half in "ab"}
    if not matrices or {name for name in expected if _kind(name) in kinds} != matrices.keys():
        raise misfit
    return matrices, alpha


def _kind(name: str) -> str:
    """What layers of the same name in all blocks share, both halves of a change included."""
    return re.sub(r"\d+", "", name.rpartition(".lora_")[0])


def _stored(adapter: str, file: Path) -> dict[str, Matrix]:
    """The weights in a safetensors file, bfloat16 ones as float32: numpy has no such format."""
    try:
        tensors = dict(deserialize(file.read_bytes()))
    except SafetensorError as error:
        raise UserError(
            f"the weights of the adapter {adapter} are damaged ({error}): save or fetch it again"
        ) from error
    matrices: dict[str, Matrix] = {}
    for name, tensor in tensors.items():
        kind, data = tensor["dtype"], tensor["data"]
        if kind == "BF16":
            matrix = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
        elif kind in FORMATS:
            matrix = np.frombuffer(data, FORMATS[kind])
        else:
            raise _not_for_gguf(f"the adapter {adapter} has weights in the format {kind}")
        matrices[name] = matrix.reshape(tensor["shape"])
    return matrices


def _in_order(b: Matrix, layer: str, base: GGUFHeader) -> Matrix:
    """The matrix B of a layer with its rows as GGUF files have them.

    Where they are PERMUTED, the two halves of a head, whose numbers i belong together as the two coordinates that
    positions rotate, alternate: 0, n/2, 1, n/2 + 1, ...
    """
    setting = PERMUTED.get((base.architecture, layer.split(".")[-2]))
    if setting is None:
        return b
    heads = base.number(setting) or base.number("attention.head_count")
    if not heads or len(b) % (2 * heads):
        raise UserError(f"{base.path} names no number of heads that fits its layers: fetch the file again")
    return np.ascontiguousarray(b.reshape(heads, 2, -1, b.shape[1]).swapaxes(1, 2).reshape(b.shape))


def _write(path: Path, architecture: str, matrices: dict[str, Matrix], alpha: float) -> None:
    from gguf import GGUFWriter

    writer = GGUFWriter(path, architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    for name, matrix in matrices.items():
        writer.add_tensor(name, matrix)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _not_for_gguf(why: str) -> UserError:
    return UserError(f"{why}, which llama.cpp is not given here: choose --engine transformers")
