"""GGUF files of tiny random models, and the log-probabilities that llama.cpp gives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import xllamacpp
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

SPECIAL = ("<unk>", "<s>", "</s>")
WORDS = tuple(f"\u2581w{number}" for number in range(69))
BYTES = tuple(f"<0x{number:02X}>" for number in range(128))  # of more the server waits for whole characters
TOKENS = (*SPECIAL, *BYTES, *WORDS)
KINDS = (2, 3, 3, *(6 for _ in BYTES), *(1 for _ in WORDS))
HEADS, KEY_HEADS, LAYERS, WIDTH, INNER = 4, 2, 2, 64, 96
SIZES: dict[str, Any] = {
    "vocab_size": len(TOKENS),
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEY_HEADS,
    "head_dim": WIDTH // HEADS,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6,
    "initializer_range": 0.2,
    "tie_word_embeddings": True,
    **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}


def tiny_model(architecture: str) -> PreTrainedModel:
    """A random model of the architecture `gemma3`, `llama` or `qwen2`, the same at each call."""
    torch.manual_seed(0)
    if architecture == "gemma3":
        sizes = SIZES | {"query_pre_attn_scalar": WIDTH // HEADS, "sliding_window": 64}
        return Gemma3ForCausalLM(Gemma3TextConfig(**sizes)).eval()
    if architecture == "qwen2":
        return Qwen2ForCausalLM(Qwen2Config(**SIZES)).eval()
    return LlamaForCausalLM(LlamaConfig(**SIZES)).eval()


def write_gguf(model: PreTrainedModel, architecture: str, path: Path) -> Path:
    """The tiny model as a float32 GGUF file, in the way of llama.cpp's converter."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_key_length(WIDTH // HEADS)
    writer.add_value_length(WIDTH // HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6 if architecture == "gemma3" else 1e4)
    writer.add_vocab_size(len(TOKENS))
    if architecture == "gemma3":
        writer.add_sliding_window(64)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(TOKENS)
    writer.add_token_scores([-float(number) for number in range(len(TOKENS))])
    writer.add_token_types(KINDS)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    numbers = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(numbers[architecture], LAYERS)
    for key, weight in model.state_dict().items():
        if key == "lm_head.weight":  # tied
            continue
        array = weight.float().numpy()
        if architecture == "gemma3" and key.endswith("norm.weight"):
            array = array + 1
        if architecture == "llama" and ("q_proj" in key or "k_proj" in key):
            array = array[rotated_rows(len(array), HEADS if "q_proj" in key else KEY_HEADS)]
        writer.add_tensor(names.get_name(key, (".weight", ".bias")), np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def rotated_rows(rows: int, heads: int) -> list[int]:
    """Where each row of a Llama GGUF file's queries or keys stands in transformers: row i of a head's first half, then
    row i of its second half, and so on."""
    size = rows // heads
    return [head * size + half * size // 2 + i for head in range(heads) for i in range(size // 2) for half in (0, 1)]


class LlamaCpp:
    """llama.cpp with one GGUF file and perhaps an adapter, exact where the file is."""

    def __init__(self, model: Path, adapter: Path | None = None) -> None:
        params = xllamacpp.CommonParams()
        params.model.path = str(model)
        params.n_parallel, params.n_ctx, params.warmup, params.verbosity = 1, 256, False, 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        if adapter:
            params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(str(adapter), 1.0)]
        self.server = xllamacpp.Server(params)

    def next_token(self, prompt: Sequence[int], most: int) -> dict[int, float]:
        """The log-probabilities of the `most` likeliest tokens after the prompt."""
        (token,) = self._tokens(prompt, 1, most)
        return {entry["id"]: entry["logprob"] for entry in token["top_logprobs"]}

    def answer(self, prompt: Sequence[int], most: int) -> list[tuple[int, float]]:
        """The tokens, `most` at most, that follow the prompt if the likeliest is taken each time, with their
        log-probabilities."""
        return [(token["id"], token["logprob"]) for token in self._tokens(prompt, most, 1)]

    def _tokens(self, prompt: Sequence[int], number: int, most: int) -> list[Any]:
        answers: list[Any] = []
        request = {"prompt": [list(prompt)], "max_tokens": number, "temperature": 0, "logprobs": most}
        self.server.handle_completions(request | {"ignore_eos": number == 1}, answers.append)
        tokens: list[Any] = answers[-1]["choices"][0]["logprobs"]["content"]
        return tokens
