"""Tiny random language models whose every token is one character, so that equal texts mean equal tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
)

SPECIAL = ["<pad>", "<s>", "</s>", "<|user|>", "<|assistant|>"]
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZäöüß€.,:;!?#- \n0123456789"
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] | trim }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SIZES: dict[str, Any] = {
    "vocab_size": len(SPECIAL) + len(LETTERS),
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "initializer_range": 0.35,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}
CONFIGS: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaConfig(num_hidden_layers=2, **SIZES),
    "mistral": lambda: MistralConfig(num_hidden_layers=2, sliding_window=12, **SIZES),
    "gemma3": lambda: Gemma3TextConfig(
        num_hidden_layers=3,
        sliding_window=16,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        **SIZES,
    ),
}


def tiny_tokenizer(template: str | None = None) -> PreTrainedTokenizerFast:
    """One token per character, begin-of-text before every text."""
    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *LETTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="#"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=["<|user|>", "<|assistant|>"],
    )
    fast.chat_template = template
    return fast


@pytest.fixture(scope="session")
def tiny_llm(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes (once each) the folder of a tiny `llama`, `mistral` or `gemma3`, with a chat template or not."""
    made: dict[tuple[str, str | None], Path] = {}

    def make(family: str = "llama", template: str | None = None) -> Path:
        key = (family, template)
        if key not in made:
            folder = made[key] = tmp_path_factory.mktemp(family)
            torch.manual_seed(7)
            AutoModelForCausalLM.from_config(CONFIGS[family]()).save_pretrained(folder)
            tiny_tokenizer(template).save_pretrained(folder)
        return made[key]

    return make


@pytest.fixture(scope="session")
def chat_template() -> str:
    """A template that ends an assistant's turn with the end-of-text token."""
    return TEMPLATE
