"""Last states reach the output embeddings without gaps, and of the scores the highest is found."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rag_mt.llm.decoding import BLOCK, lay_out_states, likeliest


def tiny() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, num_key_value_heads=1, **sizes)).eval()


@pytest.mark.parametrize("rows", [1, 3])
def test_the_output_embeddings_get_states_without_gaps(rows: int) -> None:
    model = tiny()
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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("columns", [1, 300, BLOCK, 3 * BLOCK, 3 * BLOCK + 7])
def test_the_likeliest_is_the_first_of_the_highest(dtype: torch.dtype, columns: int) -> None:
    scores = torch.randint(-9, 9, (40, columns), generator=torch.Generator().manual_seed(columns)).to(dtype)
    scores[:3] = -torch.inf
    scores[:2, columns // 2 :] = -3.5
    expected = scores.float().numpy().argmax(axis=1)
    assert likeliest(scores).tolist() == expected.tolist()
