"""The loss of responses: the cross-entropy of their tokens alone, and no logits but theirs.

A language model's head is its largest product: Gemma 3 270M has 262,144 logits for every token. Prompts make up most of
an example and none of its loss, so the body is run without the head, the states that predict a response are picked,
and the head is applied to these, some at a time; each part's gradient is taken at once, so that no more than one part's
logits are ever in memory.

    loss = sum over response tokens t of -log softmax(head(state[t - 1]))[token[t]]
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import cross_entropy

from finetune.lora.batches import Batch
from rag_mt.base.errors import UserError

ROWS = 256
"""States that the head is applied to at once: 256 x 262,144 float32 logits are 256 MiB."""


class Responses:
    """What a causal language model says about responses.

    `causal` is the model with its adapter in it, not PEFT's wrapper. Where the configuration says so, logits are
    capped: cap * tanh(logits / cap).
    """

    def __init__(self, causal: Any) -> None:
        self.body, self.head = causal.base_model, causal.get_output_embeddings()
        config = causal.config.get_text_config(decoder=True)
        self.cap: float | None = getattr(config, "final_logit_softcapping", None)

    def states(self, batch: Batch) -> torch.Tensor:
        """The states that predict the tokens of the responses, (tokens, hidden)."""
        device = self.head.weight.device
        output = self.body(input_ids=batch.input_ids.to(device), attention_mask=batch.mask.to(device), use_cache=False)
        states: torch.Tensor = output.last_hidden_state[batch.rows.to(device), batch.columns.to(device)]
        return states

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """The logits (tokens, vocabulary) of states, float32."""
        made: torch.Tensor = self.head(states).float()
        return made if self.cap is None else self.cap * torch.tanh(made / self.cap)

    def losses(self, batch: Batch) -> torch.Tensor:
        """The loss of each response token, without gradients (tokens,)."""
        with torch.no_grad():
            states, wanted = self.states(batch), batch.wanted.to(self.head.weight.device)
            parts = zip(states.split(ROWS), wanted.split(ROWS), strict=True)
            return torch.cat([cross_entropy(self.logits(s), w, reduction="none") for s, w in parts])

    def loss(self, batch: Batch) -> torch.Tensor:
        """The sum of the losses of all response tokens, with gradients for the body (the head is frozen)."""
        apply: Any = _HeadLoss.apply
        made: torch.Tensor = apply(self.states(batch), batch.wanted.to(self.head.weight.device), self)
        return made


class _HeadLoss(torch.autograd.Function):
    """The loss of states, whose gradient is computed along with it."""

    @staticmethod
    def forward(ctx: Any, states: torch.Tensor, wanted: torch.Tensor, responses: Responses) -> torch.Tensor:
        total = torch.zeros((), device=states.device)
        gradients = []
        for part, tokens in zip(states.split(ROWS), wanted.split(ROWS), strict=True):
            with torch.enable_grad():
                own = part.detach().requires_grad_()
                loss = cross_entropy(responses.logits(own), tokens, reduction="sum")
                gradients.append(torch.autograd.grad(loss, own)[0])
            total += loss.detach()
        ctx.save_for_backward(torch.cat(gradients))
        return total

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * upstream[0], None, None


def check_head(causal: Any, name: str) -> None:
    """Raise UserError if the model does more to its logits than `Responses` does (scales them, say)."""
    responses, training = Responses(causal), causal.training
    causal.eval()  # without dropout, which is never the same twice
    ids = torch.arange(1, 9, device=responses.head.weight.device)[None] % responses.head.weight.shape[0]
    with torch.no_grad():
        wanted = causal(input_ids=ids, use_cache=False).logits[0].float()
        found = responses.logits(responses.body(input_ids=ids, use_cache=False).last_hidden_state[0])
    causal.train(training)
    if not torch.allclose(found, wanted, rtol=0.02, atol=0.02 * float(wanted.abs().max())):
        raise UserError(
            f"{name} does more to its logits than a head and a cap, which the loss of responses does not know: choose "
            "a model such as Llama, Mistral, Qwen or Gemma"
        )
