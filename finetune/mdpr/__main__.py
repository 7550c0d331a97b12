"""Train a multilingual dual encoder for passages (mDPR).

    python -m finetune.mdpr --config configs/mdpr-embedded.toml --prepared PREPARED --output MODEL

PREPARED is made by `python -m finetune.mdpr.data`. A stopped run goes on from its last checkpoint. On several GPUs:
`accelerate launch -m finetune.mdpr ...`; each process takes its own batches.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from finetune.losses.language_contrastive import language_contrastive
from finetune.losses.retrieval import retrieval
from finetune.losses.semantic_contrastive import semantic_contrastive
from finetune.mdpr.batches import Sentences, TrainingData
from finetune.mdpr.config import EXAMPLE, Config, read_config
from finetune.mdpr.dev import dev_scores, read_dev
from finetune.mdpr.model import Towers
from finetune.training.checkpoints import restore_training, training_tensors, write_training
from finetune.training.curves import plot_scores
from finetune.training.loop import Losses, run_to_end
from finetune.training.optimisation import share_gradients, take_step
from finetune.training.settings import add_run_options, changes_in, shown_options
from finetune.training.warm_start import continued
from rag_mt import __version__
from rag_mt.base.console import OK, Parser, run
from rag_mt.base.fingerprints import read_json, settings_hash
from rag_mt.base.paths import cache_dir, whole_file
from rag_mt.base.settings import shown_path

log = logging.getLogger("rag_mt")

BETAS = (0.9, 0.999)
LOSSES = ("retrieval", "semantic", "language")


class Trainer:
    """One training run: the encoders, their optimiser and the step it has come to."""

    def __init__(
        self,
        config: Config,
        prepared: Path,
        output: Path,
        device: str = "auto",
        command: str = "python -m finetune.mdpr",
    ) -> None:
        self.config, self.prepared, self.output, self.command = config, prepared, output, command
        training = config.training
        self.accelerator = Accelerator(cpu=device == "cpu")
        self.data = TrainingData(prepared, config.data, training)
        device = str(self.accelerator.device) if device == "auto" else device
        self.towers = Towers(config.model, device, training.dtype, training.seed)
        self.dev = read_dev(prepared / "dev", training.dev_queries)
        self.parameters = self.towers.parameters
        self.optimizer = torch.optim.AdamW(
            self.parameters.values(), lr=training.learning_rate, betas=BETAS, weight_decay=training.weight_decay
        )
        self.step, self.curve, self.seconds, self.losses = 0, list[dict[str, Any]](), 0.0, Losses()
        before = self.towers.before
        self.key = settings_hash(
            [config.as_dict(), self.towers.fingerprint, self.data.fingerprint, before and before["weights"]]
        )

    @property
    def pairs_a_step(self) -> int:
        """Questions of all processes."""
        return self.config.training.batch * int(self.accelerator.num_processes)

    def run_step(self) -> dict[str, float]:
        """One step of optimisation; returns its losses. Each loss passes its gradients on before the next one is
        computed, so that the memory is that of the largest."""
        training = self.config.training
        number = self.step * self.accelerator.num_processes + self.accelerator.process_index
        torch.manual_seed(hash((training.seed, number)) % 2**63)  # dropout
        self.towers.train()
        losses = {"retrieval": self._retrieval(number)}
        if training.semantic_weight or training.language_weight:
            losses |= self._contrastive(self.data.sentences(number))
        share_gradients(self.accelerator, self.parameters)
        share = training.share(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = training.learning_rate * share
        take_step(self.optimizer, self.parameters, training.clip)
        self.step += 1
        self.losses.add(losses)
        return losses

    def _retrieval(self, number: int) -> float:
        """L_IR (equation 1)."""
        batch, data = self.data.retrieval(number), self.config.data
        queries = self.towers.vectors(batch.queries, "query", data.query_tokens)
        passages = self.towers.vectors(batch.passages, "passage", data.passage_tokens)
        temperature = self.config.training.retrieval_temperature
        loss = retrieval(queries, passages, batch.relevant, batch.left_out.to(passages.device), temperature)
        loss.backward()
        return float(loss.detach())

    def _contrastive(self, batch: Sentences) -> dict[str, float]:
        """L_semaCL and L_langCL (equations 2 and 3), weighted, of the passage encoder; both read the same vectors."""
        training = self.config.training
        texts = [*batch.first, *batch.second, *batch.others]
        vectors = self.towers.vectors(texts, "passage", self.config.data.sentence_tokens)
        pairs = len(batch.first)
        first, second, others = vectors.split([pairs, pairs, len(batch.others)])
        parts = {}
        if training.semantic_weight:
            parts["semantic"] = semantic_contrastive(first, second, training.semantic_temperature)
        if training.language_weight and len(texts) > 2:  # fewer where a sentence came twice
            parts["language"] = language_contrastive(first, second, others)
        weights = {"semantic": training.semantic_weight, "language": training.language_weight}
        if parts:
            torch.stack([weights[name] * part for name, part in parts.items()]).sum().backward()
        return {name: float(part.detach()) for name, part in parts.items()}

    def evaluate(self) -> dict[str, float]:
        """The development scores of the model as it is."""
        self.towers.eval()
        return dev_scores(self.dev, self.towers.encode)

    def train(self) -> None:
        """Train to the last step, measuring and saving on the way; the first point of the curve is the model before
        training."""
        run_to_end(self, self.config.training, measure_first=True)

    def measured(self) -> dict[str, float]:
        """The losses since this was last asked and, in the main process, the development scores."""
        losses = self.losses.taken()
        if not self.accelerator.is_main_process:
            return losses
        return losses | (self.evaluate() if self.step else self._scores_before())

    def _scores_before(self) -> dict[str, float]:
        """The development scores before the first step, kept in the cache for all runs that start with this model."""
        before, model = self.towers.before, asdict(self.config.model)
        start = [self.towers.fingerprint, before and before["weights"], model, self.config.training.dtype]
        asked = [[s.language, s.queries, [sorted(ids) for ids in s.relevant], s.passages] for s in self.dev]
        path = cache_dir() / "mdpr-before" / f"{settings_hash([__version__, start, asked])}.json"
        if not path.is_file():
            with whole_file(path) as part:
                part.write_text(json.dumps(self.evaluate()) + "\n", encoding="utf-8")
        kept: dict[str, float] = read_json(path)
        return kept

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
        """Write the passage model with its `training.json` and curve."""
        self.towers.save(self.output)
        before = self.towers.before
        manifest = self.prepared / "manifest.json"
        facts = {
            "command": self.command,
            "version": __version__,
            "settings": self.config.as_dict(),
            "encoder_fingerprint": self.towers.fingerprint,
            "data_fingerprint": self.data.fingerprint,
            "prepared": read_json(manifest) if manifest.is_file() else {},
            "questions": len(self.data.examples),
            "sentence_pairs": len(self.data.pairs),
            "other_sentences": len(self.data.texts),
            "steps": self.step,
            "questions_seen": self.step * self.pairs_a_step,
            "training_seconds": round(self.seconds),
            "dtype": str(self.towers.encoders["passage"].dtype).removeprefix("torch."),
            "curve": self.curve,
            **({} if before is None else {"started_from": before}),
        }
        write_training(self.output, facts)
        plot_scores(continued(before, self.curve), self.output / "curve.svg", LOSSES, "questions", "MRR@100")


def train(options: argparse.Namespace) -> int:
    """Train, evaluating and saving on the way, and write the model."""
    config = read_config(Path(options.config), changes_in(options))
    command = f"python -m finetune.mdpr --config {shown_path(options.config)} --prepared PREPARED --output MODEL"
    command += shown_options(options)
    trainer = Trainer(config, Path(options.prepared), Path(options.output), options.device, command)
    data = trainer.data
    log.info(
        "%d questions, %d sentence pairs, %d other sentences; development questions in %s",
        len(data.examples),
        len(data.pairs),
        len(data.texts),
        ", ".join(s.language for s in trainer.dev) or "no language",
    )
    trainer.train()
    if trainer.accelerator.is_main_process:
        log.info("the passage model is in %s", trainer.output)
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(prog="python -m finetune.mdpr", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--config", required=True, metavar="FILE", help=f"settings, such as {EXAMPLE}")
    parser.add_argument("--prepared", required=True, metavar="DIR", help="made by `python -m finetune.mdpr.data`")
    parser.add_argument("--output", required=True, metavar="DIR", help="the model's folder; checkpoints lie in it too")
    add_run_options(parser)
    return run(train, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
