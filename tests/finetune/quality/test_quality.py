"""Training of the quality estimator: it learns, resumes, and what it writes judges as it did."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from eval.data.judgements import Judged, JudgedSet, read_judgements
from finetune.quality.__main__ import main
from finetune.quality.config import Config
from finetune.quality.train import QualityTrainer, Readings, calibration, judgements
from finetune.training.trainer import CHECKPOINT, save_checkpoint
from rag_mt.base.errors import UserError
from rag_mt.base.settings import config_file
from rag_mt.base.types import Skips
from rag_mt.quality.estimator import open_estimator
from tests.finetune.conftest import WORDS

CONFIG = """
[model]
encoder = "{encoder}"
rank = 4
alpha = 16
dropout = 0.0
[data]
[training]
steps = 6
batch = 16
learning_rate = 1e-2
evaluate_every = 3
checkpoint_every = 3
dtype = "float32"
"""


def translations(count: int, seed: int) -> list[Judged]:
    """Sentences whose translation repeats them, or is one word alone, with what people would give them."""
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        words = rng.sample(WORDS, 5)
        good = number % 2 == 0
        rows.append(
            Judged(" ".join(words), " ".join(words) if good else "stone", 1.0 if good else -1.0, 90.0 if good else 20.0)
        )
    return rows


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "quality"
    folder.mkdir()
    for part, seed in (("train", 1), ("dev", 2)):
        rows = [f"{r.source}\t{r.target}\t{r.score}\t{r.mean}" for r in translations(200, seed)]
        (folder / f"mlqe-da.en-de.{part}.tsv").write_text("\n".join(["src\tmt\tz_mean\tmean", *rows]) + "\n")
    return tmp_path


@pytest.fixture
def config(tmp_path: Path, tiny_encoder: Path) -> Path:
    path = tmp_path / "quality.toml"
    path.write_text(CONFIG.format(encoder=tiny_encoder))
    return path


def trained(data: Path, config: Path, output: Path, steps: int) -> dict[str, object]:
    arguments = ["--config", str(config), "--data", str(data), "--output", str(output), "--device", "cpu"]
    assert main([*arguments, "--max-steps", str(steps)]) == 0
    facts: dict[str, object] = json.loads((output / "training.json").read_text())
    return facts


@pytest.mark.slow
def test_it_learns_to_tell_good_from_bad(data: Path, config: Path, tmp_path: Path) -> None:
    facts = trained(data, config, tmp_path / "model", 60)
    curve = facts["curve"]
    assert isinstance(curve, list)
    assert curve[-1]["average"] > 0.8
    estimator = open_estimator(str(tmp_path / "model"), "cpu", "float32")
    rows = translations(20, 3)
    scores = np.array([estimate.score for estimate in estimator.estimate([row.pair for row in rows])])
    assert scores[::2].mean() > 70 and scores[1::2].mean() < 40


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(data: Path, config: Path, tmp_path: Path) -> None:
    settings = Config.read(config_file(str(config)))
    sets = [read_judgements(data, part, Skips()) for part in ("train", "dev")]

    def trainer(output: Path) -> QualityTrainer:
        return QualityTrainer(settings, *sets, output, "cpu")

    whole = trainer(tmp_path / "whole")
    whole.train()
    half = trainer(tmp_path / "half")
    for _ in range(3):
        half.run_step()
    save_checkpoint(tmp_path / "half" / CHECKPOINT, half.key, half.state(), half.facts())
    again = trainer(tmp_path / "half")
    again.train()
    assert all(torch.equal(p, again.parameters[name]) for name, p in whole.parameters.items())


def test_penalties_count_by_their_logarithm_and_assessments_by_their_mean() -> None:
    rows = [Judged("a", "b", 0.0), Judged("a", "c", -1.0), Judged("a", "d", -25.0)]
    assert judgements(JudgedSet("mqm", "en-de", "dev", rows)).tolist() == pytest.approx([0, -np.log(2), -np.log(26)])
    assessed = JudgedSet("da", "en-de", "dev", [Judged("a", "b", 0.3, 77.0), Judged("a", "c", -0.2)])
    assert judgements(assessed).tolist() == [77.0, -0.2]


def test_assessments_are_read_as_they_are() -> None:
    readings = Readings(2)
    with torch.no_grad():
        readings.slopes[:] = torch.tensor([5.0, 2.0])
        readings.offsets[:] = torch.tensor([1.0, -1.0])
    assert readings(torch.tensor([3.0, 3.0]), torch.tensor([0, 1])).tolist() == [3.0, 5.0]


def test_calibration_rises_and_keeps_to_what_people_gave() -> None:
    rng = np.random.default_rng(1)
    said = rng.uniform(40, 80, 2000)
    means = np.clip(2 * (said - 60) + 60 + rng.normal(0, 10, 2000), 0, 100)
    measured, expected = calibration(said, means)
    assert len(measured) == len(expected) == 20
    assert list(measured) == sorted(measured) and list(expected) == sorted(expected)
    assert np.interp(60, measured, expected) == pytest.approx(60, abs=3)
    assert calibration(said[:5], means[:5]) == ((0.0, 100.0), (0.0, 100.0))


def test_a_share_of_a_step_is_damaged(data: Path, config: Path, tmp_path: Path) -> None:
    settings = Config.read(config_file(str(config)), {"data.damaged": "0.5"})
    sets = [read_judgements(data, part, Skips()) for part in ("train", "dev")]
    trainer = QualityTrainer(settings, *sets, tmp_path / "model", "cpu")
    batches = [trainer.batch(step) for step in range(10)]
    assert batches == [trainer.batch(step) for step in range(10)]
    known = set(trainer.examples)
    others = [example for batch in batches for example in batch if example not in known]
    assert 0.05 < len(others) / 160 < 0.5, "of short texts, only copies and those of other sentences"
    assert all(example.reading == 0 and example.judgement < 0 for example in others)
    assert 0 <= trainer.evaluate()["damage found"] <= 1


def test_a_second_round_begins_where_the_first_ended(data: Path, config: Path, tmp_path: Path) -> None:
    first = trained(data, config, tmp_path / "first", 6)
    start = {"model.start": str(tmp_path / "first")}
    sets = [read_judgements(data, part, Skips()) for part in ("train", "dev")]
    trainer = QualityTrainer(Config.read(config_file(str(config)), start), *sets, tmp_path / "second", "cpu")
    curve = first["curve"]
    assert isinstance(curve, list)
    assert trainer.evaluate()["average"] == pytest.approx(curve[-1]["average"], abs=0.01)
    assert trainer.before is not None and trainer.before["curve"] == curve
    other = Config.read(config_file(str(config)), {**start, "model.rank": "2"})
    with pytest.raises(UserError, match="does not fit these settings: give its encoder, rank and alpha"):
        QualityTrainer(other, *sets, tmp_path / "third", "cpu")


def test_leaving_out_all_sets_is_an_error(data: Path, config: Path, tmp_path: Path) -> None:
    settings = Config.read(config_file(str(config)), {"data.leave_out": "da"})
    train = read_judgements(data, "train", Skips())
    with pytest.raises(UserError, match="leaves nothing to train on"):
        QualityTrainer(settings, train, [], tmp_path / "model", "cpu")
