"""The training of a CCPR model: encoder, heads and the whole loss of a step (equation 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch.nn.functional import binary_cross_entropy_with_logits, linear

from finetune.ccpr.batches import Collator, OtherContexts, PhraseBatch, PhrasePool, batches_of
from finetune.ccpr.config import Config
from finetune.ccpr.dev import dev_rows, dev_scores
from finetune.losses.phrases import NO_TRANSLATION, Negatives, phrase_contrastive
from finetune.training.encoder import fits_adapter, open_encoder, started_from
from finetune.training.gradients import Features, Loss, cached_backward
from finetune.training.trainer import Group, Trainer
from rag_mt.base.errors import UserError
from rag_mt.base.files import file_sha256, settings_hash
from rag_mt.models.adapter_files import WEIGHTS
from retrievers.ccpr.model import WEIGHTS as HEADS
from retrievers.ccpr.model import PhraseHeads, PhraseSettings

HEAD_SETTINGS = ("dimension", "normalised", "segment_width", "max_words", "prefix")


class CcprTrainer(Trainer[PhraseBatch]):
    """A training run of an encoder with phrase heads on it."""

    losses_shown = ("contrastive", "segmentation")

    def __init__(self, config: Config, pairs: Path, output: Path, device: str = "auto", command: str = "") -> None:
        super().__init__(output, device, command)
        self.config, model, data, training = config, config.model, config.data, config.training
        self.encoder = open_encoder(model, model.layer, self.device_name, training.dtype, training.seed)
        shape = {key: getattr(model, key) for key in HEAD_SETTINGS}
        settings = PhraseSettings(model.encoder, self.encoder.layers, self.encoder.hidden, **shape)
        self.heads = PhraseHeads(settings).to(self.encoder.device)
        self.before = _start_from(model.start, self.encoder.model, self.heads) if model.start else None
        self.pool = PhrasePool([pairs / name for name in data.languages])
        order = self.pool.order(training.seed, data.domain_weights, data.language_power)
        self.batches = batches_of(order, self.pool.lengths(), training.batch, training.seed)
        if not self.batches:
            raise UserError(f"{len(order)} sentence pairs in {pairs} do not fill one batch of {training.batch}")
        self.others = OtherContexts(self.pool, order) if data.other_contexts else None
        self.collate = Collator(
            self.encoder.tokenizer, model.prefix, data.max_tokens, model.max_words, data.per_sentence, data.rewritten
        )
        self.dev = [row for name in data.languages for row in dev_rows(pairs, name, data.dev_sentences)]
        heads = {f"heads.{name}": p for name, p in self.heads.named_parameters()}
        groups = [
            Group(self.encoder.parameters(), training.learning_rate),
            Group(heads, training.head_learning_rate or training.learning_rate),
        ]
        start = self.before and self.before["weights"]
        key = settings_hash([config.as_dict(), self.encoder.fingerprint, len(self.pool), start])
        self.begin(training, groups, [self.encoder.model], key)

    def rows_of(self, step: int) -> list[dict[str, Any]]:
        """The sentence pairs of a step of this process; after the last batch the first one comes again."""
        number = self.number(step)
        chosen = self.batches[number % len(self.batches)].tolist()
        if self.others is None:
            return self.pool.rows(chosen)
        return self.others.swapped(self.pool, chosen, np.random.default_rng([self.config.training.seed, number]))

    def batch(self, step: int) -> PhraseBatch:
        """The tokens and spans of `rows_of`."""
        rng = np.random.default_rng([self.config.training.seed, step, int(self.accelerator.process_index)])
        return self.collate(self.rows_of(step), rng)

    def backward(self, batch: PhraseBatch) -> dict[str, float]:
        """The gradients of `loss`, with the memory of one chunk of the batch at a time if there are several."""
        chunks = torch.arange(len(batch.input_ids)).chunk(self.config.training.chunks)
        runs = [partial(self._edges, batch, number, rows) for number, rows in enumerate(chunks)]

        def loss(features: list[Features]) -> Loss:
            # Spans come in the order of their rows, so that those of all chunks together are those of the batch.
            return self.loss(batch, [torch.cat(kind) for kind in zip(*features, strict=True)])

        return cached_backward(runs, loss, cached=len(runs) > 1)

    def _edges(self, batch: PhraseBatch, number: int, rows: torch.Tensor) -> Features:
        """[h_start; h_end] (spans, 2 * hidden) of each kind of spans in the neighbouring `rows`, chunk `number`."""
        width = int(batch.mask[rows].sum(1).max())
        self.seed_dropout(self.step, number, int(self.accelerator.process_index))
        states = self.encoder.states(batch.input_ids[rows, :width], batch.mask[rows, :width])
        edges = []
        for spans in batch.spans:
            inside = (spans[:, 0] >= rows[0]) & (spans[:, 0] <= rows[-1])
            row, first, last, _ = spans[inside].to(states.device).unbind(1)
            row = row - int(rows[0])
            edges.append(torch.cat([states[row, first], states[row, last]], dim=-1))
        return tuple(edges)

    def loss(self, batch: PhraseBatch, edges: Sequence[torch.Tensor]) -> Loss:
        """L = L_phrases + w_seg * L_segmentation (equation 7) and its parts, of the [h_start; h_end] (spans,
        2 * hidden) of the four kinds of spans.

        L_phrases is `phrase_contrastive`; L_segmentation the cross-entropy of the segmentation head on phrases against
        other spans (equation 6; two classes of the paper are one log-odds).
        """
        training = self.config.training
        projected = linear(torch.cat(list(edges)).float(), *self.heads.weights())
        vectors = self.heads.vectors(projected).split([len(e) for e in edges])
        labels = (torch.arange(len(projected), device=projected.device) < len(edges[0]) + len(edges[1])).float()
        surfaces = [spans[:, 3].to(projected.device) for spans in batch.spans]
        negatives = self._negatives(0, vectors, surfaces), self._negatives(1, vectors, surfaces)
        (source, target, *_), (source_surfaces, target_surfaces, *_) = vectors, surfaces
        contrastive = phrase_contrastive(
            source,
            target,
            source_surfaces,
            target_surfaces,
            training.temperature,
            training.own_phrases,
            training.own_spans,
            *negatives,
        )
        segmentation = binary_cross_entropy_with_logits(self.heads.logits(projected), labels, reduction="sum")
        segmentation = segmentation / max(1, len(projected))  # a mean of no spans would be NaN
        loss = contrastive + training.segmentation_weight * segmentation
        return loss, {"contrastive": float(contrastive.detach()), "segmentation": float(segmentation.detach())}

    def _negatives(
        self, side: int, vectors: Sequence[torch.Tensor], surfaces: Sequence[torch.Tensor]
    ) -> Negatives | None:
        """Further negatives of a side (0 source, 1 target): spans that are no phrases, phrases of other processes."""
        parts: list[tuple[torch.Tensor, ...]] = []
        if self.config.training.span_negatives:
            unpaired = torch.full_like(surfaces[2 + side], NO_TRANSLATION)
            parts.append((vectors[2 + side], surfaces[2 + side], unpaired))
        if self.accelerator.num_processes > 1:
            parts.append(self._elsewhere(vectors[side], surfaces[side], surfaces[1 - side]))
        return Negatives(*map(torch.cat, zip(*parts, strict=True))) if parts else None

    def _elsewhere(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The rows that the other processes have in these tensors, without gradients."""
        device = tensors[0].device
        counts = self.accelerator.gather(torch.tensor([len(tensors[0])], device=device))
        rows = torch.arange(int(counts.max()), device=device)
        counts[self.accelerator.process_index] = 0
        elsewhere = (rows < counts[:, None]).flatten()
        gathered = (self.accelerator.gather(self.accelerator.pad_across_processes(t.detach())) for t in tensors)
        return tuple(tensor[elsewhere] for tensor in gathered)

    def evaluate(self) -> dict[str, float]:
        """The dev scores of the model as it is."""
        self.set_training(False)
        return dev_scores(self.dev, self.encoder, self.heads, self.config.data.max_tokens)

    def write(self, folder: Path) -> Mapping[str, Any]:
        """Adapter (or the whole encoder) and heads."""
        self.encoder.save(folder)
        self.heads.save(folder)
        return {
            "settings": self.config.as_dict(),
            "encoder_fingerprint": self.encoder.fingerprint,
            "pairs": self.pool.facts,
        }


def _start_from(name: str, encoder: Any, heads: PhraseHeads) -> dict[str, Any]:
    """Give `encoder` (with a LoRA adapter) and `heads` the weights of a phrase model; returns what is recorded of it.

    Raises UserError for a model of another shape, or one that was tuned as a whole.
    """
    folder = PhraseSettings.folder(name)
    unfit = f"model.start {name!r} does not fit these settings: give its encoder, layer, rank and heads, tuning 'lora'"
    if not (folder / WEIGHTS).is_file() or not hasattr(encoder, "peft_config"):
        raise UserError(unfit)
    try:
        fits = fits_adapter(encoder, load_file(folder / WEIGHTS))
        heads.load_state_dict(PhraseHeads.load(folder).state_dict())
    except RuntimeError as error:
        raise UserError(unfit) from error
    if not fits:
        raise UserError(unfit)
    before = started_from(folder, [file_sha256(folder / file)[:16] for file in (WEIGHTS, HEADS)])
    before.pop("pairs", None)  # the data of both runs stand in the new file
    return before
