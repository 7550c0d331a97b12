"""Train a cross-lingual phrase retriever from example sentences (XPR).

    python -m finetune.xpr --config configs/xpr-embedded.toml --phrases PHRASES --output MODEL

PHRASES holds a folder of phrase pairs with example sentences per language pair (`python -m finetune.xpr.data` makes
it). A stopped run goes on from its last checkpoint. On several GPUs: `accelerate launch -m finetune.xpr ...`; each
process takes its own batches and has the others' phrases as further negatives. Ablations: `--set data.sentences=0` (no
example sentences), `--set training.momentum=0` (no momentum encoder), `--set model.head=false` (no projection head),
`--set training.queue=1024` (MoCo's queue). Without --phrases those of the sample corpus are used, to try the command
out.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch.func import functional_call

from eval.data.sample_phrases import sample_phrases
from finetune.losses.phrase_contrastive import Negatives
from finetune.losses.xpco import xpco
from finetune.training.checkpoints import queue_tensors, queues_of, restore_training, training_tensors, write_training
from finetune.training.curves import plot_scores
from finetune.training.loop import Losses, run_to_end
from finetune.training.optimisation import share_gradients, take_step
from finetune.training.settings import add_run_options, changes_in, shown_options
from finetune.training.tuning import first_layers, save_trained, trainable
from finetune.xpr.batches import Chunk, Collator, XprBatch, XprPool
from finetune.xpr.config import Config, read_config
from finetune.xpr.dev import dev_accuracy
from rag_mt import __version__
from rag_mt.base.console import Parser, note, run
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import settings_hash
from rag_mt.base.paths import cache_dir
from rag_mt.base.settings import shown_path
from rag_mt.models.loading import load_encoder
from retrievers.ccpr.heads import ENCODER
from retrievers.xpr.head import XprHead, XprSettings

log = logging.getLogger("rag_mt")

Weights = Mapping[str, torch.Tensor]
NONE: Weights = {}


class Trainer:
    """One training run: the model, its momentum copy, its optimiser and the step it has come to."""

    def __init__(
        self, config: Config, phrases: Path, output: Path, device: str = "auto", command: str = "python -m finetune.xpr"
    ) -> None:
        self.accelerator = Accelerator(cpu=device == "cpu")
        self.output, self.command = output, command
        self.pool = XprPool([phrases / name for name in config.data.languages])
        model, data, training = config.model, config.data, config.training
        processes = int(self.accelerator.num_processes)
        if not training.steps:
            steps = training.epochs * (len(self.pool) // training.batch) // processes
            training = replace(training, steps=max(1, steps))
        self.config = config = replace(config, training=training)
        self.pairs_a_step = training.batch * processes
        self.pool.batch(0, training.batch, training.seed)  # says now if there are too few
        device = str(self.accelerator.device) if device == "auto" else device
        loaded = load_encoder(model.encoder, device, training.dtype)
        self.device, self.dtype, self.tokenizer = loaded.device, loaded.dtype, loaded.tokenizer
        self.fingerprint = loaded.fingerprint
        torch.manual_seed(training.seed)
        depth = first_layers(loaded.model, model.layer, model.encoder)
        self.encoder = trainable(loaded.model, model, depth)
        self.settings = XprSettings(
            model.encoder,
            loaded.model.config.num_hidden_layers,
            loaded.model.config.hidden_size,
            model.head,
            data.sentences,
            prefix=model.prefix,
        )
        self.head = XprHead(self.settings)
        if model.head_start == "identity":
            self.head.begin_as_identity()
        self.head.to(self.device)
        tuned = {n: p for n, p in self.encoder.named_parameters() if p.requires_grad}
        heads = dict(self.head.named_parameters())
        self.parameters = {f"encoder.{n}": p for n, p in tuned.items()} | {f"head.{n}": p for n, p in heads.items()}
        groups = [{"params": list(tuned.values()), "lr": training.learning_rate}]
        if heads:
            rate = training.head_learning_rate or training.learning_rate
            groups.append({"params": list(heads.values()), "lr": rate})
        self.optimizer = torch.optim.AdamW(groups, weight_decay=training.weight_decay)
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.slow = {n: p.detach().clone() for n, p in self.parameters.items()} if training.momentum else {}
        self.queues: list[Negatives] = []
        self.collate = Collator(
            self.tokenizer, model.prefix, data.sentences, data.max_chars, data.max_tokens, training.chunks
        )
        self.step, self.curve, self.seconds, self.losses = 0, list[dict[str, Any]](), 0.0, Losses()
        sets = [own.manifest["files"] for own in self.pool.sets]
        self.key = settings_hash([config.as_dict(), self.fingerprint, sets, processes])

    def run_step(self) -> dict[str, float]:
        """One step of optimisation; returns its loss."""
        training = self.config.training
        number = self.step * self.accelerator.num_processes + self.accelerator.process_index
        rng = np.random.default_rng([training.seed, number])
        pairs = self.pool.batch(number, training.batch, training.seed)
        batch = self.collate([own.sides for own in self.pool.sets], pairs, rng)
        share = training.share(self.step)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * share
        self.encoder.train()
        slow = self._slow_vectors(batch) if self.slow else None
        loss = self._cached(batch, slow) if training.cached else self._whole(batch, slow)
        share_gradients(self.accelerator, self.parameters)
        take_step(self.optimizer, self.parameters, training.clip)
        for name, tensor in self.slow.items():
            tensor.lerp_(self.parameters[name].detach(), 1 - training.momentum)
        self.step += 1
        losses = {"contrastive": loss}
        self.losses.add(losses)
        return losses

    @torch.no_grad()
    def _slow_vectors(self, batch: XprBatch) -> torch.Tensor:
        """The momentum encoder's vectors of a batch."""
        return self.vectors(batch, [self.means(c, n, self.slow) for n, c in enumerate(batch.chunks)], self.slow)

    def _whole(self, batch: XprBatch, slow: torch.Tensor | None) -> float:
        loss = self.loss(batch, [self.means(chunk, n) for n, chunk in enumerate(batch.chunks)], slow)
        loss.backward()
        return float(loss.detach())

    def _cached(self, batch: XprBatch, slow: torch.Tensor | None) -> float:
        """The same loss with the memory of one chunk: what the loss reads is made without gradients, the loss gives
        theirs, and each chunk is run again to pass them on (gradient caching)."""
        with torch.no_grad():
            made = [self.means(chunk, n) for n, chunk in enumerate(batch.chunks)]
        for means in made:
            means.requires_grad_()
        loss = self.loss(batch, made, slow)
        loss.backward()
        for number, (chunk, means) in enumerate(zip(batch.chunks, made, strict=True)):
            self.means(chunk, number).backward(means.grad)
        return float(loss.detach())

    def means(self, chunk: Chunk, number: int, weights: Weights = NONE) -> torch.Tensor:
        """The mean state of the phrase in each sentence of chunk `number`, float32 (sentences, hidden), by the encoder
        as it is or with other `weights`. The same chunk of a step has the same dropout."""
        seed = (self.config.training.seed, self.step, number, self.accelerator.process_index)
        torch.manual_seed(hash(seed) % 2**63)
        inputs = {"input_ids": chunk.input_ids.to(self.device), "attention_mask": chunk.mask.to(self.device)}
        with torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32):
            own = {n.removeprefix("encoder."): t for n, t in weights.items() if n.startswith("encoder.")}
            output = functional_call(self.encoder, own, kwargs=inputs) if own else self.encoder(**inputs)
        states = output.last_hidden_state.float()
        first, last = chunk.places.to(self.device)[:, :, None].unbind(1)
        at = torch.arange(states.shape[1], device=self.device)[None]
        inside = ((at >= first) & (at <= last)).float()
        made: torch.Tensor = torch.einsum("nt,nth->nh", inside / inside.sum(1, keepdim=True), states)
        return made

    def vectors(self, batch: XprBatch, means: Sequence[torch.Tensor], weights: Weights = NONE) -> torch.Tensor:
        """Vectors of length 1 (2 * pairs, hidden) of the phrases whose sentences have these means (see `XprBatch`)."""
        owners = torch.cat([chunk.owners for chunk in batch.chunks]).to(self.device)
        sums = torch.zeros(len(batch.counts), self.settings.hidden, device=self.device)
        sums = sums.index_add(0, owners, torch.cat(list(means)))
        states = sums / batch.counts.to(self.device).clamp(min=1)[:, None]
        own = {n.removeprefix("head."): t for n, t in weights.items() if n.startswith("head.")}
        made: torch.Tensor = functional_call(self.head, own, (states,)) if own else self.head(states)
        return made

    def loss(self, batch: XprBatch, means: Sequence[torch.Tensor], slow: torch.Tensor | None) -> torch.Tensor:
        """XpCo of a batch, with the keys of other processes and of the queue as further negatives; `slow` are the
        momentum encoder's vectors, None without momentum. The keys go into the queue."""
        training = self.config.training
        made = self.vectors(batch, means)
        source, target = made.chunk(2)
        surfaces = batch.surfaces.to(self.device).chunk(2)
        keys = [Negatives(v, s) for v, s in zip((made if slow is None else slow).chunk(2), surfaces, strict=True)]
        first = 0
        if self.accelerator.num_processes > 1:
            keys = [self._of_all(own) for own in keys]
            first = int(self.accelerator.process_index) * len(source)
        if self.queues:
            keys = [_joined(own, old) for own, old in zip(keys, self.queues, strict=True)]
        if training.queue:
            kept = slice(training.queue)
            self.queues = [Negatives(own.vectors.detach()[kept], own.surfaces[kept]) for own in keys]
        return xpco(source, target, keys[0], keys[1], training.temperature, first)

    def _of_all(self, own: Negatives) -> Negatives:
        """The keys of all processes in their order; the own ones keep their gradients."""
        vectors, surfaces = (self.accelerator.gather(t.detach()) for t in (own.vectors, own.surfaces))
        begin = int(self.accelerator.process_index) * len(own.vectors)
        parts = (vectors[:begin], own.vectors, vectors[begin + len(own.vectors) :])
        return Negatives(torch.cat(parts), surfaces)

    def evaluate(self) -> dict[str, float]:
        """The dev accuracy of the model as it is."""
        data = self.config.data
        self.encoder.eval()
        collate = Collator(
            self.tokenizer,
            self.config.model.prefix,
            data.dev_sentences if data.sentences else 0,
            data.max_chars,
            data.max_tokens,
            chunks=data.dev_pairs // 16 + 1,
        )
        with torch.no_grad():
            return dev_accuracy(
                self.pool.sets,
                data.dev_pairs,
                collate,
                lambda batch: self.vectors(batch, [self.means(c, n) for n, c in enumerate(batch.chunks)]),
            )

    def measured(self) -> dict[str, float]:
        """The losses since this was last asked and, in the main process, the dev scores."""
        losses = self.losses.taken()
        return losses | self.evaluate() if self.accelerator.is_main_process else losses

    def state(self) -> dict[str, torch.Tensor]:
        """All tensors that a run needs to go on: weights, AdamW's moments, the momentum encoder, queues."""
        tensors = training_tensors(self.parameters, self.optimizer)
        tensors |= {f"slow.{name}": tensor for name, tensor in self.slow.items()}
        return tensors | queue_tensors(self.queues)

    def facts(self) -> dict[str, Any]:
        """What a checkpoint keeps beside `state()`."""
        return {"losses": vars(self.losses)}

    def restore(self, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
        """Go on from `state()` and `facts()`."""
        restore_training(self.parameters, self.optimizer, tensors)
        for name, tensor in self.slow.items():
            tensor.copy_(tensors[f"slow.{name}"])
        self.queues = queues_of(tensors, self.device) or self.queues
        self.losses = Losses(**facts.get("losses", {}))

    def save(self) -> None:
        """Write the model: adapter (or the whole encoder), head, `training.json`, the curve."""
        self.output.mkdir(parents=True, exist_ok=True)
        place = self.output if self.config.model.tuning == "lora" else self.output / ENCODER
        save_trained(self.encoder, self.tokenizer, place)
        self.head.save(self.output)
        facts = {
            "command": self.command,
            "version": __version__,
            "settings": self.config.as_dict(),
            "encoder_fingerprint": self.fingerprint,
            "phrases": self.pool.facts(),
            "steps": self.step,
            "phrase_pairs_seen": self.step * self.pairs_a_step,
            "training_seconds": round(self.seconds),
            "curve": self.curve,
        }
        write_training(self.output, facts)
        plot_scores(self.curve, self.output / "curve.svg", ["contrastive"], "phrase pairs")


def _joined(new: Negatives, old: Negatives) -> Negatives:
    return Negatives(torch.cat([new.vectors, old.vectors]), torch.cat([new.surfaces, old.surfaces]))


def folders(options: argparse.Namespace, config: Config) -> tuple[Path, Path]:
    """Where the phrases are and where the model goes: without --phrases it is tried out on the sample corpus."""
    if options.phrases and not options.output:
        raise UserError("the model has no place: give --output DIR")
    if options.phrases:
        return Path(options.phrases), Path(options.output)
    note("no --phrases: trying out on phrases of the sample corpus, which makes no model for real use")
    phrases = sample_phrases(options.device)
    name = f"{Path(options.config).stem}-{settings_hash([config.as_dict(), phrases.name])[:8]}"
    return phrases, Path(options.output) if options.output else cache_dir() / "trials" / name


def train(options: argparse.Namespace) -> int:
    """Train, evaluating and saving on the way, and write the model."""
    config = read_config(Path(options.config), changes_in(options))
    phrases, output = folders(options, config)
    command = f"python -m finetune.xpr --config {shown_path(options.config)}"
    command += f"{' --phrases PHRASES' * bool(options.phrases)} --output MODEL{shown_options(options)}"
    trainer = Trainer(config, phrases, output, options.device, command)
    training = trainer.config.training
    log.info("%d phrase pairs, %d steps of %d", len(trainer.pool), training.steps, training.batch)
    run_to_end(trainer, training, measure_first=True)
    if trainer.accelerator.is_main_process:
        note(f"the model is in {output}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(prog="python -m finetune.xpr", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--config", required=True, metavar="FILE", help="settings, such as configs/xpr-embedded.toml")
    parser.add_argument("--phrases", metavar="DIR", help="phrase pairs with example sentences")
    parser.add_argument("--output", metavar="DIR", help="the model's folder; checkpoints lie in it too")
    add_run_options(parser)
    return run(train, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
