"""The training of a quality estimator.

All judgements are taken for readings of one quality, which the head says: a direct assessment from 0 to 100 is that
quality itself, and MQM penalties and chrF are linear in it, by a slope and an offset of each direction that are learned
with the model, since the same chrF is much in Finnish and little in Romanian.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from scipy.optimize import isotonic_regression

from eval.data.damage import DAMAGES, damaged, with_damage
from eval.data.judgements import Judged, JudgedSet
from finetune.quality.config import Config
from finetune.training.encoder import fits_adapter, open_encoder, started_from
from finetune.training.sampling import rows_of
from finetune.training.trainer import Group, Trainer
from rag_mt.base.errors import UserError
from rag_mt.base.files import file_sha256, settings_hash
from rag_mt.models.adapter_files import WEIGHTS
from rag_mt.quality.estimator import measured
from rag_mt.quality.model import HEAD, MIDDLE, SPREAD, EstimatorHead, EstimatorSettings, tokenise_pairs
from retrievers.encoders.encoder import batches

DELTA = 1.0
"""Where Huber's loss begins to be linear."""
TOKENS = 1536
"""Tokens of the parts of a batch that are computed at once."""
DAMAGED = 100
"""Good translations of each development set that are damaged."""
BINS = 20
"""Groups of equal size of the development translations that scores are calibrated by."""


class Example(NamedTuple):
    """A pair, its standardised judgement, and the number of its readings."""

    pair: tuple[str, str]
    judgement: float
    reading: int


class Scale(NamedTuple):
    """The mean and the deviation that judgements of a kind and direction are standardised by."""

    mean: float
    deviation: float

    def __call__(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return (values - self.mean) / self.deviation


ASSESSED = Scale(MIDDLE, SPREAD)
"""Direct assessments are what the head says."""


def judgements(judged: JudgedSet) -> NDArray[np.float64]:
    """What a set says of its translations (rows,), in the form that is linear in the quality: few translations have
    very many errors, so penalties count by the logarithm."""
    if judged.kind == "da":
        return np.array([row.score if row.mean is None else row.mean for row in judged.rows])
    scores = np.array([row.score for row in judged.rows])
    return -np.log1p(-np.minimum(scores, 0)) if judged.kind == "mqm" else scores


class Readings(torch.nn.Module):
    """From the quality to judgements: the first row, of direct assessments, stays the identity."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.slopes = torch.nn.Parameter(torch.ones(count))
        self.offsets = torch.nn.Parameter(torch.zeros(count))

    def forward(self, numbers: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """The expected judgements (pairs,) of numbers (pairs,) by the readings `rows` (pairs,)."""
        read = numbers * self.slopes[rows] + self.offsets[rows]
        return torch.where(rows == 0, numbers, read)


class QualityTrainer(Trainer[Sequence[Example]]):
    """A training run of an encoder with a head, and of the readings, which are not kept."""

    losses_shown = ("huber",)
    scores_shown = "Pearson's r"
    unit = "translations"

    def __init__(
        self,
        config: Config,
        train: Sequence[JudgedSet],
        dev: Sequence[JudgedSet],
        output: Path,
        device: str = "auto",
        command: str = "python -m finetune.quality",
    ) -> None:
        super().__init__(output, device, command)
        left_out = {name.strip() for name in config.data.leave_out.split(",")}
        self.sets = [own for own in train if not {own.kind, own.direction} & left_out]
        if not any(self.sets):
            raise UserError(f"data.leave_out = {config.data.leave_out!r} leaves nothing to train on")
        self.config, self.dev = config, [own for own in dev if own.rows]
        self.readings_of = ["da", *sorted({own.name for own in self.sets if own.kind != "da"})]
        self.examples = list(self._examples())
        model, training = config.model, config.training
        self.encoder = open_encoder(model, 0, self.device_name, training.dtype, training.seed)
        self.head = EstimatorHead(self.encoder.hidden)
        self.before = self._start(model.start) if model.start else None
        self.head.to(self.encoder.device)
        self.readings = Readings(len(self.readings_of)).to(self.encoder.device)
        heads = {f"head.{name}": p for name, p in self.head.named_parameters()}
        heads |= {f"readings.{name}": p for name, p in self.readings.named_parameters()}
        groups = [Group(self.encoder.parameters(), training.learning_rate), Group(heads, training.learning_rate)]
        data = [(own.name, len(own.rows)) for own in (*self.sets, *self.dev)]
        key = settings_hash([config.as_dict(), self.encoder.fingerprint, data, self.accelerator.num_processes])
        self.begin(training, groups, [self.encoder.model], key)

    def _start(self, name: str) -> dict[str, Any]:
        """Take over the weights of an estimator; returns what is recorded of it."""
        folder = EstimatorSettings.folder(name)
        settings, weights = EstimatorSettings.load(folder), folder / WEIGHTS
        same = settings.encoder == self.config.model.encoder and weights.is_file()
        if not same or not fits_adapter(self.encoder.model, load_file(weights)):
            raise UserError(f"model.start {name!r} does not fit these settings: give its encoder, rank and alpha")
        settings.load_head(self.head, folder / HEAD)
        return started_from(folder, file_sha256(weights)[:16])

    def _examples(self) -> Sequence[Example]:
        examples: list[Example] = []
        for own in self.sets:
            if not own.rows:
                continue
            values = judgements(own)
            scale = ASSESSED if own.kind == "da" else Scale(float(values.mean()), float(values.std()) or 1.0)
            reading = 0 if own.kind == "da" else self.readings_of.index(own.name)
            pairs = zip(own.rows, scale(values).tolist(), strict=True)
            examples += (Example(row.pair, value, reading) for row, value in pairs)
        return examples

    def batch(self, step: int) -> Sequence[Example]:
        """The translations of a step, a share of them damaged."""
        training, number = self.config.training, self.number(step)
        rows = rows_of(number, training.batch, len(self.examples), training.seed)
        rng = np.random.default_rng([training.seed, number])
        return [self._maybe_damaged(row, rng) for row in rows]

    def _maybe_damaged(self, row: int, rng: np.random.Generator) -> Example:
        example = self.examples[row]
        if rng.random() >= self.config.data.damaged:
            return example
        kind = list(DAMAGES)[rng.integers(len(DAMAGES))]
        near = self.examples[(row + 1) % len(self.examples)]  # in most cases of the same languages
        made = damaged(Judged(*example.pair, 0.0), Judged(*near.pair, 0.0), kind, rng)
        if made is None:
            return example
        return Example(made.pair, float(ASSESSED(np.array([made.score]))[0]), 0)

    def backward(self, batch: Sequence[Example]) -> dict[str, float]:
        """Huber's loss of the readings, part by part of similar lengths."""
        self.seed_dropout(self.step, int(self.accelerator.process_index))
        device, total = self.encoder.device, 0.0
        ids = tokenise_pairs(self.encoder.tokenizer, [own.pair for own in batch], self.config.data.max_tokens)
        for rows, tokens, mask in batches(ids, self.encoder.tokenizer.pad_token_id or 0, TOKENS):
            said = self.head(self.encoder.states(tokens, mask), mask.to(device))
            read = self.readings(said, torch.tensor([batch[row].reading for row in rows], device=device))
            judged = torch.tensor([batch[row].judgement for row in rows], device=device)
            loss = torch.nn.functional.huber_loss(read, judged, reduction="sum", delta=DELTA) / len(batch)
            loss.backward()
            total += float(loss.detach())
        return {"huber": total}

    def said(self, rows: Sequence[Judged]) -> NDArray[np.float64]:
        """What the model says of translations (rows,)."""
        scores = measured(self.encoder, self.head, [row.pair for row in rows], self.config.data.max_tokens)
        return scores.astype(np.float64)

    def evaluate(self) -> dict[str, float]:
        """Pearson's r with the judgements of each development set, and the mean of it."""
        self.set_training(False)
        scores = {own.name: _correlation(self.said(own.rows), judgements(own)) for own in self.dev}
        average = round(float(np.mean(list(scores.values()))), 4) if scores else 0.0
        return {**scores, "average": average, "damage found": self._found()}

    def _found(self) -> float:
        """The share of good development translations that are judged better than the same ones damaged."""
        rng = np.random.default_rng(self.config.training.seed)
        pairs = [pair for own in self.dev for pair in with_damage(own.good_rows[:DAMAGED], list(DAMAGES), rng)]
        if not pairs:
            return 0.0
        whole, broken = (self.said([pair[side] for pair in pairs]) for side in (0, 1))
        return round(float((whole > broken).mean()), 4)

    def write(self, folder: Path) -> Mapping[str, Any]:
        """Adapter, head, and settings with the calibration by development assessments."""
        self.set_training(False)
        self.encoder.save(folder)
        self.head.save(folder)
        rows = [row for own in self.dev if own.kind == "da" for row in own.rows if row.mean is not None]
        steps, expected = calibration(self.said(rows), np.array([row.mean for row in rows], np.float64))
        config = self.config
        settings = EstimatorSettings(config.model.encoder, self.encoder.hidden, config.data.max_tokens, steps, expected)
        settings.save(folder)
        sets = {own.name: len(own.rows) for own in (*self.sets, *self.dev)}
        return {"settings": config.as_dict(), "encoder_fingerprint": self.encoder.fingerprint, "translations": sets}


def calibration(said: NDArray[np.float64], means: NDArray[np.float64]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """What the model said, in rising steps, and what people gave on average there: means of BINS groups of equal size,
    made rising (isotonic regression)."""
    groups = [rows for rows in np.array_split(np.argsort(said, kind="stable"), BINS) if len(rows)]
    if len(groups) < BINS:
        return (0.0, 100.0), (0.0, 100.0)
    measured = [round(float(said[rows].mean()), 2) for rows in groups]
    expected = isotonic_regression([means[rows].mean() for rows in groups]).x
    return tuple(measured), tuple(round(float(value), 2) for value in expected)


def _correlation(said: NDArray[np.float64], judged: NDArray[np.float64]) -> float:
    if len(said) < 2 or not said.std() or not judged.std():
        return 0.0
    return round(float(np.corrcoef(said, judged)[0, 1]), 4)
