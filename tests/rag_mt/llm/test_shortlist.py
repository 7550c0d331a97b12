"""What chooses tokens on a CPU chooses those that the model's own float32 scores choose."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from rag_mt.llm import shortlist
from rag_mt.llm.decoding import _next_tokens
from rag_mt.llm.shortlist import Chooser, Shortlist, Turned, chooser_of


def numbers(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@given(
    st.sampled_from([Shortlist, Turned]),
    st.integers(0, 2**31),
    st.integers(1, 9),
    st.sampled_from([0.0, 1e-6, 1e-3, 0.1, 1.0]),
)
def test_the_choice_is_that_of_float32(kind: type[Chooser], seed: int, rows: int, spread: float) -> None:
    """Also where all tokens are nearly alike, so that bfloat16 cannot tell them apart."""
    weight = numbers(seed, 1, 24) + spread * numbers(seed + 1, 500, 24)
    states = numbers(seed + 2, rows, 24)
    chosen = kind(weight).likeliest(states)
    scores = states.double() @ weight.double().T
    assert chosen.shape == (rows,)
    lost = scores.amax(dim=1) - scores.gather(1, chosen[:, None])[:, 0]
    assert float(lost.max()) <= 1e-5 * float(scores.abs().max())


@pytest.mark.parametrize("kind", [Shortlist, Turned])
def test_of_equal_scores_the_first_is_chosen(kind: type[Chooser]) -> None:
    weight = numbers(0, 40, 8)
    chosen = kind(torch.cat([weight, weight])).likeliest(numbers(1, 64, 8))
    assert int(chosen.max()) < 40


@pytest.mark.parametrize("kind", [Shortlist, Turned])
def test_states_that_are_no_numbers_give_some_token(kind: type[Chooser]) -> None:
    states = torch.full((2, 8), torch.nan)
    assert int(kind(numbers(0, 40, 8)).likeliest(states).max()) < 40


def tiny(**settings: int) -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    config = LlamaConfig(**{**sizes, "num_attention_heads": 2, "num_key_value_heads": 1, **settings})
    return LlamaForCausalLM(config).eval()


@pytest.mark.parametrize(("bfloat16", "kind"), [(True, Shortlist), (False, Turned)])
def test_a_model_decodes_alike_with_it(monkeypatch: pytest.MonkeyPatch, bfloat16: bool, kind: type[Chooser]) -> None:
    monkeypatch.setattr(shortlist, "cpu_has_bfloat16", lambda: bfloat16)
    model = tiny(vocab_size=shortlist.LEAST_TOKENS)
    assert isinstance(chooser_of(model), kind)
    assert chooser_of(model) is chooser_of(model)
    tokens = torch.arange(40).reshape(8, 5) * 97 % shortlist.LEAST_TOKENS
    mask, positions = torch.ones_like(tokens), torch.arange(5)[None].expand(8, 5)
    with torch.inference_mode():
        expected = model(tokens).logits[:, -1].argmax(dim=-1)
    assert _next_tokens(model, tokens, mask, positions, None).tolist() == expected.tolist()


def test_models_that_it_does_not_suit() -> None:
    assert chooser_of(tiny()) is None  # a small vocabulary
    assert chooser_of(tiny(vocab_size=shortlist.LEAST_TOKENS).to(torch.bfloat16)) is None
