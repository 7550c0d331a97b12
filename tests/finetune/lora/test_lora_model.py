"""The loss of responses is that of the full logits, and so are its gradients."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, BloomConfig, GraniteConfig

from finetune.lora import model as lora_model
from finetune.lora.model import Responses, check_head, packs
from finetune.lora.speed import padded
from finetune.lora.train import ExamplePrompts, collated, tokens_of
from rag_mt.base.errors import UserError
from rag_mt.llm.transformers_llm import TransformersLLM
from rag_mt.models.loading import load_llm


@pytest.mark.parametrize(("family", "width"), [("llama", 300), ("gemma3", 300), ("gemma3", 0)])
def test_loss_and_gradients_are_those_of_padded_examples_and_full_logits(
    tiny_llm, examples, family, width, monkeypatch
):
    monkeypatch.setattr(lora_model, "LOGITS", 7 * 200)
    loaded = load_llm(str(tiny_llm(family)), device="cpu", dtype="float32")
    tokens, _ = tokens_of(ExamplePrompts(TransformersLLM(loaded, adapter="a")), examples(6), 4096, show=False)
    model, batch = loaded.model, collated(tokens, 0, width)
    assert width == 0 or len(batch.input_ids) < len(tokens)
    responses = Responses(model)
    assert (responses.cap is not None) == (family == "gemma3")
    weights = [p for name, p in model.named_parameters() if "_proj" in name]
    wanted = model(**padded(tokens, 0)).loss
    expected = torch.autograd.grad(wanted, weights)
    states = responses.states(batch)
    loss, gradient = responses.loss_and_gradient(states, batch.wanted)
    gradients = torch.autograd.grad(states, weights, gradient / len(batch.wanted))
    assert float(loss) / len(batch.wanted) == pytest.approx(float(wanted.detach()), abs=1e-5)
    assert float(responses.losses(states, batch.wanted).mean()) == pytest.approx(float(wanted.detach()), abs=1e-5)
    assert max(float(g.abs().max()) for g in expected) > 1e-3
    for own, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(own, other, atol=1e-6, rtol=1e-4)


def test_a_cap_that_is_forgotten_would_be_seen(tiny_llm):
    model = load_llm(str(tiny_llm("gemma3")), device="cpu", dtype="float32").model
    check_head(model, "tiny")
    states = torch.randn(5, model.config.hidden_size)
    responses = Responses(model.requires_grad_(False))
    assert float(responses.logits(states).abs().max()) <= model.config.final_logit_softcapping
    assert not torch.allclose(responses.logits(states), responses.head(states), atol=1e-3)


def test_a_model_with_scaled_logits_is_refused():
    sizes = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    config = GraniteConfig(num_attention_heads=2, num_key_value_heads=1, logits_scaling=8.0, **sizes)
    with pytest.raises(UserError, match=r"granite does more to its logits .*: choose a model such as Llama"):
        check_head(AutoModelForCausalLM.from_config(config), "granite")


def test_models_tell_whether_they_keep_texts_of_a_row_apart(tiny_llm):
    assert packs(load_llm(str(tiny_llm("gemma3")), device="cpu", dtype="float32").model)
    without_positions = BloomConfig(vocab_size=50, hidden_size=16, n_layer=1, n_head=2)
    assert not packs(AutoModelForCausalLM.from_config(without_positions))
