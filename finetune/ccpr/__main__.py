"""Train a cross-lingual contextualized phrase retriever (CCPR).

    python -m finetune.ccpr --config configs/ccpr-embedded.toml --pairs PAIRS --output MODEL

PAIRS holds a folder of phrase pairs per language and the dev alignments for the scores during training (`python -m
eval.data.phrase_pairs` makes both). A stopped run goes on from its last checkpoint. On several GPUs: `accelerate
launch -m finetune.ccpr ...`; each process takes its own batches and has the others' phrases as further negatives.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator

from finetune.ccpr.batches import Collator, PhraseBatch, PhrasePool, batches_of
from finetune.ccpr.config import Config, read_config
from finetune.ccpr.contexts import OtherContexts
from finetune.ccpr.dev import dev_rows, dev_scores
from finetune.ccpr.loss import PhraseLoss, spans_of
from finetune.training.checkpoints import restore_training, training_tensors, write_training
from finetune.training.curves import plot_scores
from finetune.training.loop import Losses, run_to_end
from finetune.training.optimisation import share_gradients, take_step
from finetune.training.settings import add_run_options, changes_in, shown_options
from finetune.training.tuning import first_layers, save_trained, trainable
from finetune.training.warm_start import continued, start_from
from rag_mt import __version__
from rag_mt.base.console import Parser, run
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import settings_hash
from rag_mt.base.settings import shown_path
from rag_mt.models.loading import load_encoder
from retrievers.ccpr.heads import ENCODER, PhraseHeads, PhraseSettings

log = logging.getLogger("rag_mt")

LOSSES = ("contrastive", "segmentation")


class Trainer:
    """One training run: the model, its optimiser and the step it has come to."""

    def __init__(
        self, config: Config, pairs: Path, output: Path, device: str = "auto", command: str = "python -m finetune.ccpr"
    ) -> None:
        self.config, self.output, self.command = config, output, command
        self.accelerator = Accelerator(cpu=device == "cpu")
        model, training = config.model, config.training
        device = str(self.accelerator.device) if device == "auto" else device
        loaded = load_encoder(model.encoder, device, training.dtype)
        self.device, self.dtype, self.tokenizer = loaded.device, loaded.dtype, loaded.tokenizer
        self.fingerprint = loaded.fingerprint
        torch.manual_seed(training.seed)
        depth = first_layers(loaded.model, model.layer, model.encoder)
        self.encoder = trainable(loaded.model, model, depth)
        self.settings = PhraseSettings(
            model.encoder,
            loaded.model.config.num_hidden_layers,
            loaded.model.config.hidden_size,
            model.dimension,
            model.normalised,
            model.segment_width,
            model.max_words,
            model.prefix,
        )
        self.heads = PhraseHeads(self.settings).to(self.device)
        self.before = start_from(model.start, self.encoder, self.heads) if model.start else None
        tuned = [(n, p) for n, p in self.encoder.named_parameters() if p.requires_grad]
        self.parameters = {f"encoder.{n}": p for n, p in tuned}
        self.parameters |= {f"heads.{n}": p for n, p in self.heads.named_parameters()}
        rate = training.head_learning_rate or training.learning_rate
        groups = [
            {"params": [p for _, p in tuned], "lr": training.learning_rate},
            {"params": list(self.heads.parameters()), "lr": rate},
        ]
        self.optimizer = torch.optim.AdamW(groups, weight_decay=training.weight_decay)
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.pool = PhrasePool([pairs / name for name in config.data.languages])
        order = self.pool.order(training.seed, config.data.domain_weights, config.data.language_power)
        self.batches = batches_of(order, self.pool.lengths(), training.batch, training.seed)
        if not self.batches:
            raise UserError(f"{len(order)} sentence pairs in {pairs} do not fill one batch of {training.batch}")
        self.others = OtherContexts(self.pool, order) if config.data.other_contexts else None
        self.collate = Collator(
            self.tokenizer, model.prefix, config.data.max_tokens, model.max_words, config.data.per_sentence
        )
        self.dev = [row for n in config.data.languages for row in dev_rows(pairs, n, config.data.dev_sentences)]
        self.step, self.curve, self.seconds, self.losses = 0, list[dict[str, Any]](), 0.0, Losses()
        self.loss = PhraseLoss(self.heads, training, self.accelerator)
        started_from = self.before and self.before["weights"]
        self.key = settings_hash([config.as_dict(), self.fingerprint, len(self.pool), started_from])

    @property
    def pairs_a_step(self) -> int:
        """Sentence pairs of all processes."""
        return self.config.training.batch * int(self.accelerator.num_processes)

    def rows_of(self, step: int) -> list[dict[str, Any]]:
        """The sentence pairs of a step of this process; after the last batch the first one comes again."""
        number = step * self.accelerator.num_processes + self.accelerator.process_index
        chosen = self.batches[number % len(self.batches)].tolist()
        if self.others is None:
            return self.pool.rows(chosen)
        return self.others.swapped(self.pool, chosen, np.random.default_rng([self.config.training.seed, number]))

    def run_step(self) -> dict[str, float]:
        """One step of optimisation; returns its losses."""
        training = self.config.training
        rng = np.random.default_rng([training.seed, self.step, self.accelerator.process_index])
        batch = self.collate(self.rows_of(self.step), rng)
        share = training.share(self.step)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * share
        self.encoder.train()
        losses = self._chunked(batch) if training.chunks > 1 else self._whole(batch)
        share_gradients(self.accelerator, self.parameters)
        take_step(self.optimizer, self.parameters, training.clip)
        self.step += 1
        self.losses.add(losses)
        return losses

    def _whole(self, batch: PhraseBatch) -> dict[str, float]:
        self._seed(0)
        states = self.encode(batch.input_ids, batch.mask)
        loss, losses = self.loss(batch, [_edges(states, spans.places) for spans in spans_of(batch)])
        loss.backward()
        return losses

    def _chunked(self, batch: PhraseBatch) -> dict[str, float]:
        """The same loss with the memory of one chunk: what the loss reads is made without gradients, the loss gives
        theirs, and each chunk is run again to pass them on (gradient caching)."""
        rows = torch.arange(len(batch.input_ids)).chunk(self.config.training.chunks)
        parts = spans_of(batch)
        features = [torch.zeros(len(s), 2 * self.settings.hidden, device=self.device) for s in parts]
        inside = [[(s.places[:, 0] >= r[0]) & (s.places[:, 0] <= r[-1]) for s in parts] for r in rows]

        def run(number: int) -> list[torch.Tensor]:
            own = rows[number]
            width = int(batch.mask[own].sum(1).max())
            self._seed(number)
            states = self.encode(batch.input_ids[own, :width], batch.mask[own, :width])
            shift = torch.tensor([int(own[0]), 0, 0])
            return [_edges(states, s.places[m] - shift) for s, m in zip(parts, inside[number], strict=True)]

        with torch.no_grad():
            for number in range(len(rows)):
                for made, mask, found in zip(features, inside[number], run(number), strict=True):
                    made[mask] = found.float()
        for made in features:
            made.requires_grad_()
        loss, losses = self.loss(batch, features)
        loss.backward()
        for number in range(len(rows)):
            again = run(number)
            wanted = [_gradient(made)[mask] for made, mask in zip(features, inside[number], strict=True)]
            torch.autograd.backward(again, [w.to(f.dtype) for w, f in zip(wanted, again, strict=True)])
        return losses

    def _seed(self, chunk: int) -> None:
        torch.manual_seed(hash((self.config.training.seed, self.step, chunk, self.accelerator.process_index)) % 2**63)

    def encode(self, input_ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """States (batch, tokens, hidden) of the chosen layer, in the run's number format."""
        with torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32):
            output = self.encoder(input_ids=input_ids.to(self.device), attention_mask=mask.to(self.device))
        states: torch.Tensor = output.last_hidden_state
        return states

    def evaluate(self) -> dict[str, float]:
        """The dev scores of the model as it is."""
        self.encoder.eval()
        return dev_scores(self.dev, self.tokenizer, self.encode, self.heads, self.config.data.max_tokens)

    def measured(self) -> dict[str, float]:
        """The losses since this was last asked and, in the main process, the dev scores."""
        losses = self.losses.taken()
        return losses | self.evaluate() if self.accelerator.is_main_process else losses

    def state(self) -> dict[str, torch.Tensor]:
        """All tensors that a run needs to go on: weights and AdamW's moments."""
        return training_tensors(self.parameters, self.optimizer)

    def facts(self) -> dict[str, Any]:
        """What a checkpoint keeps beside `state()`."""
        return {"losses": vars(self.losses)}

    def restore(self, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
        """Go on from `state()` and `facts()`."""
        restore_training(self.parameters, self.optimizer, tensors)
        self.losses = Losses(**facts.get("losses", {}))

    def save(self) -> None:
        """Write the model: adapter (or the whole encoder), heads, `training.json`."""
        self.output.mkdir(parents=True, exist_ok=True)
        place = self.output if self.config.model.tuning == "lora" else self.output / ENCODER
        save_trained(self.encoder, self.tokenizer, place)
        self.heads.save(self.output)
        facts = {
            "command": self.command,
            "version": __version__,
            "settings": self.config.as_dict(),
            "encoder_fingerprint": self.fingerprint,
            "pairs": self.pool.facts,
            "steps": self.step,
            "sentence_pairs_seen": self.step * self.pairs_a_step,
            "training_seconds": round(self.seconds),
            "curve": self.curve,
            **({} if self.before is None else {"started_from": self.before}),
        }
        write_training(self.output, facts)
        plot_scores(continued(self.before, self.curve), self.output / "curve.svg", LOSSES, "sentence pairs")


def _edges(states: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """[h_start; h_end], shape (spans, 2 * hidden)."""
    row, first, last = places.to(states.device).unbind(1)
    return torch.cat([states[row, first], states[row, last]], dim=-1)


def _gradient(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad


def train(options: argparse.Namespace) -> int:
    """Train, evaluating and saving on the way, and write the model."""
    config = read_config(Path(options.config), changes_in(options))
    command = f"python -m finetune.ccpr --config {shown_path(options.config)} --pairs PAIRS --output MODEL"
    command += shown_options(options)
    trainer = Trainer(config, Path(options.pairs), Path(options.output), options.device, command)
    log.info("%d sentence pairs, %d batches of %d", len(trainer.pool), len(trainer.batches), config.training.batch)
    run_to_end(trainer, config.training)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(prog="python -m finetune.ccpr", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--config", required=True, metavar="FILE", help="settings, such as configs/ccpr-embedded.toml")
    parser.add_argument("--pairs", required=True, metavar="DIR", help="phrase pairs and dev alignments")
    parser.add_argument("--output", required=True, metavar="DIR", help="the model's folder; checkpoints lie in it too")
    add_run_options(parser)
    return run(train, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
