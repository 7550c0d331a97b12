"""The language model with a LoRA adapter on it: opened for training, its loss of responses, saved, merged.

A head is a language model's largest product: Gemma 3 270M has 262,144 logits for every token. Prompts make up most of
an example and none of its loss, so the head is only applied to the states that predict a response, some at a time, and
each part's gradient is taken at once: no more than one part's logits are ever in memory.

    loss = sum over response tokens t of -log softmax(head(state[t - 1]))[token[t]]
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, prepare_model_for_kbit_training
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy, linear

from finetune.lora.config import Config, ModelConfig
from finetune.lora.vocabulary import Candidates
from finetune.training.encoder import fits_adapter, save_adapter, started_from, with_adapter
from rag_mt.base.errors import UserError
from rag_mt.base.files import file_sha256, read_json, whole_folder
from rag_mt.llm.transformers_llm import TransformersLLM
from rag_mt.models.adapter_files import CONFIG, WEIGHTS, checked_adapter
from rag_mt.models.loading import LoadedLLM, choose_device, choose_dtype, load_llm

LOGITS = 2**26
"""Logits that are computed at once: as float32 they take 256 MiB."""
TERMS = ("LICENCE*", "LICENSE*", "NOTICE*")
"""Files of a base model whose terms hold for what is trained on it."""
SHAPE_SETTINGS = ("r", "lora_alpha", "target_modules")


@dataclass(frozen=True)
class Batch:
    """Token ids and their positions (rows, tokens): each row has one example or several, each of which begins at
    position 0, and is padded at the end. For every token `wanted` of a response, example by example, the place that
    predicts it, `rows` and `columns` (all three (tokens,))."""

    input_ids: torch.Tensor
    positions: torch.Tensor
    rows: torch.Tensor
    columns: torch.Tensor
    wanted: torch.Tensor


class Responses:
    """The losses of responses by `causal`, a language model with its adapter in it but without PEFT's wrapper. Logits
    are capped where the configuration says so: cap * tanh(logits / cap)."""

    def __init__(self, causal: Any) -> None:
        self.body, self.head = causal.base_model, causal.get_output_embeddings()
        config = causal.config.get_text_config(decoder=True)
        self.cap: float | None = getattr(config, "final_logit_softcapping", None)

    def states(self, batch: Batch) -> torch.Tensor:
        """The states that predict the tokens of the responses, (tokens, hidden)."""
        device = self.head.weight.device
        positions = batch.positions.to(device) if (batch.positions[:, 1:] == 0).any() else None
        hidden = self.hidden(batch.input_ids.to(device), positions)
        return hidden[batch.rows.to(device), batch.columns.to(device)]

    def hidden(self, ids: torch.Tensor, positions: torch.Tensor | None = None) -> torch.Tensor:
        """All states (rows, tokens, hidden). Without a mask, position 0 begins another text for models of transformers,
        and what follows a text changes nothing in it."""
        packed = {} if positions is None else {"position_ids": positions}
        states: torch.Tensor = self.body(input_ids=ids, use_cache=False, **packed).last_hidden_state
        return states

    def logits(self, states: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        """The logits (tokens, vocabulary) of states, float32; with `weight` those of some rows of the head's weight."""
        logits: torch.Tensor = (self.head(states) if weight is None else linear(states, weight)).float()
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)

    def losses(self, states: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """The loss of each token `wanted` (tokens,) that the states (tokens, hidden) predict."""
        rows = max(1, LOGITS // self.head.weight.shape[0])
        parts = zip(states.split(rows), wanted.to(states.device).split(rows), strict=True)
        return torch.cat([cross_entropy(self.logits(part), tokens, reduction="none") for part, tokens in parts])

    def loss_and_gradient(
        self, states: torch.Tensor, wanted: torch.Tensor, candidates: Candidates | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The sum of the losses and its gradient for the states (tokens, hidden); the head is frozen. With `candidates`
        for the wanted tokens, no other logits are computed; heads with a bias are not for that."""
        device, weight, added = states.device, None, None
        if candidates is not None:
            weight = self.head.weight[candidates.ids.to(device)]
            added, wanted = candidates.added.to(device), candidates.wanted
        rows = max(1, LOGITS // (self.head.weight if weight is None else weight).shape[0])
        total, gradients = torch.zeros((), device=device), []
        for part, tokens in zip(states.split(rows), wanted.to(device).split(rows), strict=True):
            leaf = part.detach().requires_grad_()
            logits = self.logits(leaf, weight)
            loss = cross_entropy(logits if added is None else logits + added, tokens, reduction="sum")
            gradients.append(torch.autograd.grad(loss, leaf)[0])
            total += loss.detach()
        return total, torch.cat(gradients)


def check_head(causal: Any, name: str) -> None:
    """Raise UserError if the model does more to its logits than `Responses` does (scales them, say)."""
    responses, training = Responses(causal), causal.training
    causal.eval()  # without dropout, which is never the same twice
    ids = torch.arange(1, 9, device=responses.head.weight.device)[None] % responses.head.weight.shape[0]
    with torch.no_grad():
        expected = causal(input_ids=ids, use_cache=False).logits[0].float()
        logits = responses.logits(responses.body(input_ids=ids, use_cache=False).last_hidden_state[0])
    causal.train(training)
    if not torch.allclose(logits, expected, rtol=0.02, atol=0.02 * float(expected.abs().max())):
        raise UserError(
            f"{name} does more to its logits than a head and a cap, which the loss of responses does not know: choose "
            "a model such as Llama, Mistral, Qwen or Gemma"
        )


def packs(causal: Any) -> bool:
    """Whether the model keeps the texts apart that stand in one row of a batch: the second of two has the states that
    it has alone, and not those of the end of a longer text."""
    responses, training = Responses(causal), causal.training
    causal.eval()
    ids = torch.arange(1, 9, device=responses.head.weight.device).expand(2, -1) % responses.head.weight.shape[0]
    place = torch.arange(8, device=ids.device).expand(2, -1) % 4
    with torch.no_grad():
        alone, longer = responses.hidden(ids[:, 4:]), responses.hidden(ids)[:, 4:]
        try:
            beside = responses.hidden(ids, place)[:, 4:]
        except TypeError:  # it takes no positions
            beside = longer
    causal.train(training)
    return bool((beside - alone).abs().max() < 0.1 * (longer - alone).abs().max())


def autocast(loaded: LoadedLLM) -> torch.autocast:
    """The context in which the model computes in its number format, with weights of float32 beside its own."""
    return torch.autocast(loaded.device.type, dtype=loaded.dtype, enabled=loaded.dtype != torch.float32)


@dataclass(frozen=True)
class Trainable:
    """A model to tune: as loaded, with PEFT's wrapper `adapted`, its prompts' side `llm` and its losses `responses`;
    `packs` tells whether it keeps several texts of a row apart, `before` is what is recorded of the adapter that it
    starts from. The adapter's weights are float32, `loaded.dtype` is the number format to compute in."""

    loaded: LoadedLLM
    adapted: Any
    llm: TransformersLLM
    responses: Responses
    packs: bool
    before: Mapping[str, Any] | None

    @property
    def parameters(self) -> dict[str, torch.nn.Parameter]:
        """The adapter's weights by name."""
        return {name: p for name, p in self.adapted.named_parameters() if p.requires_grad}

    def autocast(self) -> torch.autocast:
        """The context to compute in."""
        return autocast(self.loaded)

    def backward(self, batch: Batch, answers: int, candidates: Candidates | None = None) -> torch.Tensor:
        """The sum of the losses of all response tokens; adds the gradients of this sum divided by `answers`."""
        with self.autocast():
            states = self.responses.states(batch)
            loss, gradient = self.responses.loss_and_gradient(states, batch.wanted, candidates)
        states.backward(gradient * (1 / answers))
        return loss

    def losses(self, batch: Batch) -> torch.Tensor:
        """The loss of each response token, without gradients (tokens,)."""
        with torch.no_grad(), self.autocast():
            return self.responses.losses(self.responses.states(batch), batch.wanted)

    def save(self, folder: Path) -> None:
        """Write the adapter with the licence terms of its base model."""
        settings = copy(self.adapted.peft_config["default"])
        settings.inference_mode, settings.target_modules = True, _sorted(settings.target_modules)
        save_adapter(self.adapted, settings, folder, {"format": "pt"})
        _copy_terms(self.loaded.folder, folder)


def open_trainable(config: Config, device: str) -> Trainable:
    """The model of the settings with a new adapter, or with the one that `model.start` names.

    Raises UserError for a model, device, quantization or module that cannot be used.
    """
    model, training = config.model, config.training
    if training.dtype == "float16":
        raise UserError("training.dtype float16 loses small gradients: choose auto, bfloat16 or float32")
    target, dtype = choose_device(device), training.dtype
    if dtype == "auto" and choose_dtype("auto", target) == torch.float16:
        dtype = "float32"  # an older card
    loaded = load_llm(model.llm, device=device, dtype=dtype, quantization=model.quantization)
    causal: Any = loaded.model
    _check_modules(causal, model)
    llm = TransformersLLM(loaded, adapter=model.start or "in training")  # prompts as for a model with an adapter
    if target.type == "cpu":
        causal.set_attn_implementation("eager")
    checkpointing = {"use_reentrant": False}
    if model.quantization != "none":
        prepare: Any = prepare_model_for_kbit_training
        causal = prepare(causal, training.checkpointing, checkpointing)
    elif training.checkpointing:
        causal.gradient_checkpointing_enable(gradient_checkpointing_kwargs=checkpointing)
    torch.manual_seed(training.seed)
    lora = LoraConfig(
        r=model.rank,
        lora_alpha=model.alpha,
        lora_dropout=model.dropout,
        target_modules=list(model.modules),
        task_type="CAUSAL_LM",
    )
    adapted = with_adapter(causal, lora)
    before = _start(model.start, adapted) if model.start else None
    base = adapted.get_base_model()
    with autocast(loaded):
        check_head(base, model.llm)
        keeps_apart = packs(base)
    return Trainable(loaded, adapted, llm, Responses(base), keeps_apart, before)


def _check_modules(causal: Any, model: ModelConfig) -> None:
    head = causal.get_output_embeddings()
    linear = [(n, m) for n, m in causal.named_modules() if isinstance(m, torch.nn.Linear) and m is not head]
    known = sorted({name.rpartition(".")[2] for name, _ in linear})
    if unknown := [name for name in model.modules if name not in known]:
        raise UserError(
            f"model.modules names {', '.join(unknown)}, which {model.llm} does not have: choose from {', '.join(known)}"
        )


def _start(name: str, adapted: Any) -> dict[str, Any]:
    """Give the adapter the weights of the folder `name`; returns what is recorded of it."""
    folder = checked_adapter(name)
    shape, settings = adapted.peft_config["default"].to_dict(), read_json(folder / CONFIG)
    same = all(_sorted(shape[key]) == _sorted(settings.get(key)) for key in SHAPE_SETTINGS)
    if not same or not fits_adapter(adapted, load_file(folder / WEIGHTS)):
        raise UserError(
            f"model.start {name!r} does not fit these settings: give its llm, rank, alpha and modules, which are "
            f"{ {key: settings.get(key) for key in SHAPE_SETTINGS} }"
        )
    return started_from(folder, file_sha256(folder / WEIGHTS)[:16])


def _sorted(value: Any) -> Any:
    """A setting whose order says nothing."""
    return sorted(value) if isinstance(value, list | set | tuple) else value


def write_merged(config: Config, adapter: Path, folder: Path, dtype: torch.dtype) -> None:
    """Write the model without quantization, the adapter merged into its weights, and its tokenizer."""
    loaded = load_llm(config.model.llm, str(adapter), "cpu", str(dtype).removeprefix("torch."))
    with whole_folder(folder) as part:
        loaded.model.save_pretrained(part)
        loaded.tokenizer.save_pretrained(part)
        _copy_terms(loaded.folder, part)


def _copy_terms(source: Path | None, target: Path) -> None:
    for file in [file for pattern in TERMS for file in source.glob(pattern)] if source else ():
        shutil.copyfile(file, target / file.name)
