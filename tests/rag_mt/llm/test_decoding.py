"""The scores of a token are the model's own, turned round or not."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rag_mt.llm.decoding import TURNED_TOKENS, _can_turn, _next_tokens, lay_out_states


def tiny(vocabulary: int) -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=vocabulary, num_key_value_heads=1, **sizes)).eval()


@pytest.mark.parametrize(("vocabulary", "turned"), [(64, False), (TURNED_TOKENS, True)])
def test_the_next_token_is_the_likeliest(vocabulary: int, turned: bool) -> None:
    model = tiny(vocabulary)
    assert _can_turn(model, 8) is turned
    tokens = torch.arange(40).reshape(8, 5) * 97 % vocabulary
    mask, positions = torch.ones_like(tokens), torch.arange(5)[None].expand(8, 5)
    with torch.inference_mode():
        expected = model(tokens).logits[:, -1].argmax(dim=-1)
    assert _next_tokens(model, tokens, mask, positions, None).tolist() == expected.tolist()


def test_in_other_number_formats_one_row_at_most_is_turned() -> None:
    model = tiny(TURNED_TOKENS)
    assert [_can_turn(model.to(torch.bfloat16), rows) for rows in (1, 2)] == [True, False]
    assert not _can_turn(model.to(torch.float16), 1)


@pytest.mark.parametrize("rows", [1, 3])
def test_the_output_embeddings_get_states_without_gaps(rows: int) -> None:
    model = tiny(64)
    for _ in range(2):
        lay_out_states(model)
    seen: list[torch.Tensor] = []
    head = model.get_output_embeddings()
    head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    tokens = torch.arange(rows * 5).reshape(rows, 5)
    with torch.inference_mode():
        last = model(tokens, logits_to_keep=1).logits
        assert torch.allclose(last, model(tokens).logits[:, -1:], atol=1e-6)
    assert [states.stride() for states in seen] == [(16, 16, 1), (80, 16, 1)]
    assert len(head._forward_pre_hooks) == 2, "laid out once"
