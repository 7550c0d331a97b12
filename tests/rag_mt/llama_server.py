"""The HTTP server of llama.cpp in this process, with a tiny random model that transformers can load too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xllamacpp
from gguf import GGUFWriter, TokenType
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
WINDOW = 32_768
MERGE = ("Z", "Z")  # llama.cpp takes no vocabulary without any
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CODED_TEMPLATE = (
    "{% set names = {'de': 'German', 'cs': 'Czech', 'en': 'English'} %}{% for message in messages %}"
    "{% if message.role == 'user' %}{% set part = message.content[0] %}"
    "{% set source_lang_code = part.source_lang_code %}"
    "{% set target_lang_code = part.target_lang_code %}<|im_start|>{{ names[source_lang_code] }} > "
    "{{ names[target_lang_code] }}{{ tone or '' }}: {{ part.text | trim }}<|im_end|>\n"
    "{% else %}<|im_start|>{{ message.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>{% endif %}"
)
"""Asks for the same fields of a message as TranslateGemma's own template does."""
ENDS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down", "attn_norm", "ffn_norm")
PARTS = (
    *(f"self_attn.{name}_proj" for name in "qkvo"),
    *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
    *("input_layernorm", "post_attention_layernorm"),
)


def save_tiny(
    folder: Path, template: str = TEMPLATE, readable: bool = True, spread: float = 0.35, ends: float = 0.75
) -> Path:
    """A folder with a random Qwen2 whose tokens are bytes, and the same as `model.gguf` in it; returns that file.

    Its answers are readable text or, otherwise, any bytes; with less `spread` of its weights more of them loop, and
    with `ends` 0 they never end."""
    letters = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "".join(MERGE)]
    tokenizer = Tokenizer(models.BPE({token: n for n, token in enumerate([*letters, *SPECIAL])}, merges=[MERGE]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )
    fast.chat_template = template
    torch.manual_seed(3)
    config = Qwen2Config(
        vocab_size=len(fast),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=WINDOW,
        initializer_range=spread,
        rms_norm_eps=1e-6,
        rope_theta=10000.0,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=len(letters) + 2,
        pad_token_id=len(letters),
    )
    model = Qwen2ForCausalLM(config)
    spoken = [n for n, token in enumerate(letters) if token.isascii() or not readable] + [config.eos_token_id]
    others = torch.ones(config.vocab_size, dtype=torch.bool).index_fill(0, torch.tensor(spoken), False)
    model.lm_head.weight.data[others] = 0  # never the likeliest: answers are readable text
    model.lm_head.weight.data[config.eos_token_id] *= ends  # so that answers have some length
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    writer = GGUFWriter(folder / "model.gguf", "qwen2")
    writer.add_context_length(WINDOW)
    writer.add_block_count(2)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(48)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*letters, *SPECIAL])
    writer.add_token_types([TokenType.NORMAL] * len(letters) + [TokenType.CONTROL] * len(SPECIAL))
    writer.add_token_merges([" ".join(MERGE)])
    writer.add_eos_token_id(len(letters) + 2)
    writer.add_pad_token_id(len(letters))
    writer.add_add_bos_token(False)
    writer.add_chat_template(template)
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    for name in state:
        writer.add_tensor(_name(name), np.ascontiguousarray(state[name], dtype=np.float32))
    _write(writer)
    return folder / "model.gguf"


def _name(name: str) -> str:
    """The name of a weight in GGUF files."""
    whole = {"model.embed_tokens.weight": "token_embd", "model.norm.weight": "output_norm", "lm_head.weight": "output"}
    if name in whole:
        return f"{whole[name]}.weight"
    _, _, layer, part = name.split(".", 3)
    stem, _, kind = part.rpartition(".")
    return f"blk.{layer}.{ENDS[PARTS.index(stem)]}.{kind}"


def _write(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@contextmanager
def llama_server(model: Path, *, slots: int = 8, window: int = 256, key: str = "") -> Iterator[str]:
    """llama.cpp's server with the model as `tiny` and `window` tokens for each of its slots; the address of its API."""
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.model_alias = {"tiny"}
    params.n_parallel, params.n_ctx, params.kv_unified = slots, window * slots, False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.warmup, params.verbosity = False, 0
    params.cache_ram_mib = 0
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.api_keys = [key] if key else []
    server = xllamacpp.Server(params)
    yield f"{server.listening_address}/v1"
    del server
