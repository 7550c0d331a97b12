"""The scores of a token are the model's own, turned round or not."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rag_mt.llm.decoding import TURNED_TOKENS, _can_turn, _next_tokens


def tiny(vocabulary: int) -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=vocabulary, num_key_value_heads=1, **sizes)).eval()


@pytest.mark.parametrize(("vocabulary", "turned"), [(64, False), (TURNED_TOKENS, True)])
def test_the_next_token_is_the_likeliest(vocabulary: int, turned: bool) -> None:
    model = tiny(vocabulary)
    assert _can_turn(model) is turned
    tokens = torch.arange(40).reshape(8, 5) * 97 % vocabulary
    mask, positions = torch.ones_like(tokens), torch.arange(5)[None].expand(8, 5)
    with torch.inference_mode():
        expected = model(tokens).logits[:, -1].argmax(dim=-1)
    assert _next_tokens(model, tokens, mask, positions, None).tolist() == expected.tolist()


def test_other_number_formats_are_not_turned() -> None:
    assert not _can_turn(tiny(TURNED_TOKENS).to(torch.bfloat16))
