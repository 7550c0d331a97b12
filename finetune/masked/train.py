"""The training of an encoder on text alone: hidden pieces of words are to be told from the rest of their sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import BertConfig, BertForMaskedLM, DataCollatorForLanguageModeling, PreTrainedTokenizerFast

from finetune.masked.config import Config
from finetune.masked.text import draw, make_tokenizer, read_texts, shares, wrapped
from finetune.training.encoder import alike, save_trained
from finetune.training.trainer import Group, Trainer
from rag_mt.base.errors import UserError
from rag_mt.base.files import file_sha256, settings_hash
from rag_mt.models.loading import choose_device, choose_dtype

Batch = Mapping[str, torch.Tensor]
DEV_BATCH = 64
TOKENIZER = "tokenizer"
"""The tensor of a checkpoint that holds the tokenizer's JSON, byte by byte."""


class MaskedTrainer(Trainer[Batch]):
    """A training run of BERT's first objective (Devlin et al. 2019, section 3.1, without pairs of sentences)."""

    losses_shown = ("masked",)
    scores_shown = "hidden pieces told, %"
    unit = "sentences"

    def __init__(
        self,
        config: Config,
        texts: Sequence[Path],
        output: Path,
        device: str = "auto",
        command: str = "python -m finetune.masked",
    ) -> None:
        super().__init__(output, device, command)
        self.config, model, data, training = config, config.model, config.data, config.training
        if model.hidden % model.heads:
            raise UserError(
                f"model.hidden is {model.hidden}: expected a multiple of model.heads, which is {model.heads}"
            )
        self.texts = read_texts(texts, data.dev_sentences, training.seed)
        self.files = {path.name: file_sha256(path) for path in texts}
        self.weights = shares(self.texts, data.exponent)
        self.device = choose_device(self.device_name)
        self.dtype = choose_dtype(training.dtype, self.device)
        torch.manual_seed(training.seed)
        size = BertConfig(
            vocab_size=model.vocabulary,
            hidden_size=model.hidden,
            num_hidden_layers=model.layers,
            num_attention_heads=model.heads,
            intermediate_size=4 * model.hidden,
            hidden_dropout_prob=model.dropout,
            attention_probs_dropout_prob=model.dropout,
            max_position_embeddings=max(512, data.max_tokens),
            pad_token_id=1,
            type_vocab_size=1,
        )
        self.model = cast(Any, BertForMaskedLM(size)).to(self.device)
        if self.device.type == "cpu":
            self.model.set_attn_implementation("eager")  # the fused kernel's backward pass is six times slower on CPUs
        parameters = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        key = settings_hash([config.as_dict(), self.files, int(self.accelerator.num_processes)])
        self.begin(training, [Group(parameters, training.learning_rate)], [self.model], key)
        self._made: Tokenizer | None = None

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerFast:
        """That of the checkpoint, or one that is made of the texts."""
        if self._made is None:
            data, rng = self.config.data, np.random.default_rng([self.config.training.seed, 0, 0])
            self._made = make_tokenizer(
                draw(self.texts, self.weights, data.vocabulary_sentences, rng), self.config.model.vocabulary
            )
        return wrapped(self._made, self.config.data.max_tokens)

    def batch(self, step: int) -> Batch:
        """Sentences of any texts with 15 % of their pieces (`data.masked`) hidden: eight in ten by a mark, one by
        another piece, one as it is. `input_ids`, `attention_mask` and `labels` (sentences, tokens)."""
        training, number = self.config.training, self.number(step)
        rng = np.random.default_rng([training.seed, 1, number])
        return self._hidden(draw(self.texts, self.weights, training.batch, rng), int(rng.integers(2**62)))

    def _hidden(self, sentences: Sequence[str], seed: int) -> Batch:
        data = self.config.data
        collate = DataCollatorForLanguageModeling(self.tokenizer, mlm_probability=data.masked, seed=seed)
        ids = self.tokenizer(list(sentences), truncation=True, max_length=data.max_tokens)
        rows = [{"input_ids": row, "attention_mask": [1] * len(row)} for row in ids["input_ids"]]
        batch: Batch = dict(collate(rows))
        return batch

    def _loss(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """The mean loss of the hidden pieces, and whether each of them was told."""
        hidden, labels = list[torch.Tensor](), list[torch.Tensor]()
        lengths = batch["attention_mask"].sum(1)
        with torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32):
            for rows in alike(lengths, self.device):
                width = int(lengths[rows].max())
                part = {name: tensor[rows, :width].to(self.device) for name, tensor in batch.items()}
                labels.append(part.pop("labels"))
                hidden.append(self.model.bert(**part).last_hidden_state[labels[-1] >= 0])
            scores = self.model.cls(torch.cat(hidden)).float()
        wanted = torch.cat([own[own >= 0] for own in labels])
        loss = torch.nn.functional.cross_entropy(scores, wanted, reduction="sum") / max(1, len(wanted))
        return loss, scores.argmax(dim=-1) == wanted

    def backward(self, batch: Batch) -> dict[str, float]:
        """The loss of the hidden pieces."""
        self.seed_dropout(self.step, int(self.accelerator.process_index))
        loss, _ = self._loss(batch)
        loss.backward()
        return {"masked": float(loss.detach())}

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """How many of the hidden pieces of the sentences that were left out are told, in per cent, by the text's name;
        and `average`."""
        self.set_training(False)
        scores = {}
        for text in self.texts:
            told = [
                self._loss(self._hidden(text.dev[begin : begin + DEV_BATCH], begin))[1]
                for begin in range(0, len(text.dev), DEV_BATCH)
            ]
            right = torch.cat(told).float()
            scores[text.name] = round(100 * float(right.sum()) / max(1, len(right)), 2)
        return {**scores, "average": round(float(np.mean(list(scores.values()))), 2)}

    def extra_tensors(self) -> dict[str, torch.Tensor]:
        """The tokenizer."""
        text = self.tokenizer.backend_tokenizer.to_str().encode()
        return {TOKENIZER: torch.frombuffer(bytearray(text), dtype=torch.uint8)}

    def restore_extra(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Go on with the tokenizer of the checkpoint."""
        self._made = Tokenizer.from_str(bytes(tensors[TOKENIZER].cpu().numpy()).decode())

    def write(self, folder: Path) -> Mapping[str, Any]:
        """The encoder without what tells the pieces, and the tokenizer."""
        save_trained(self.model.bert, self.tokenizer, folder)
        return {"settings": self.config.as_dict(), "texts": self.files}
