"""The plan of trainings: what it holds, and that it is made, resumed and told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch.nn.functional import normalize

from finetune.losses.passages import language_contrastive, retrieval, semantic_contrastive
from finetune.mdpr import runs as mdpr_runs
from finetune.mdpr.config import Config
from finetune.mdpr.runs import main, read_plan, score_table
from rag_mt.base.errors import UserError
from rag_mt.base.settings import config_file

PLAN = """
config = "{config}"
seeds = [1, 2]
[groups.losses.ir]
"training.semantic_weight" = 0.0
[groups.losses.sema]
"training.semantic_weight" = 0.1
[groups.transfer.next]
"model.start" = "{{runs}}/sema.seed{{seed}}"
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    config = tmp_path / "config.toml"
    config.write_text('[model]\nencoder = "none"\n[training]\nsteps = 4\nlanguage_weight = 0.0\n')
    path = tmp_path / "plan.toml"
    path.write_text(PLAN.format(config=config))
    return path


class FakeTrainer:
    """Writes what a finished run leaves; the runs that were made are in `made`."""

    made: ClassVar[list[str]] = []

    def __init__(self, config, prepared, output, device="auto", command=""):
        self.config, self.output = config, output
        if config.model.start and not Path(config.model.start).is_dir():
            raise UserError(f"there is no {config.model.start}")

    def train(self):
        FakeTrainer.made.append(self.output.name)
        score = 50 + self.config.training.seed + 10 * bool(self.config.training.semantic_weight)
        point = {"step": 4, "same": score, "cross": score, "mixed": score, "average": score}
        self.output.mkdir(parents=True, exist_ok=True)
        facts = {"settings": self.config.as_dict(), "steps": 4, "curve": [point], "data_fingerprint": "words"}
        if self.config.model.start:
            facts["started_from"] = {"weights": weights(self.config.model.start)}
        (self.output / "training.json").write_text(json.dumps(facts))


def weights(folder):
    return [(Path(folder) / "training.json").read_text()]


@pytest.fixture(autouse=True)
def _fake(monkeypatch):
    FakeTrainer.made = []
    monkeypatch.setattr(mdpr_runs, "weights_of", weights)
    monkeypatch.setattr(mdpr_runs, "passage_model_folder", str)
    monkeypatch.setattr(mdpr_runs, "MdprTrainer", FakeTrainer)
    monkeypatch.setattr(mdpr_runs, "data_of", lambda *_: "words")


def arguments(plan: Path, *more: str) -> list[str]:
    return ["--plan", str(plan), "--prepared", "nowhere", "--output", str(plan.parent / "runs"), *more]


def test_a_plan_is_made_and_goes_on(plan, capsys):
    assert main(arguments(plan, "--groups", "losses", "--seeds", "1")) == 0
    assert FakeTrainer.made == ["ir.seed1", "sema.seed1"]
    assert main(arguments(plan)) == 0
    assert FakeTrainer.made == ["ir.seed1", "sema.seed1", "next.seed1", "ir.seed2", "sema.seed2", "next.seed2"]
    out = capsys.readouterr().out
    assert "| losses | `ir` | 2 | 51.5 ± 6.4 | 51.5 ± 6.4 | 51.5 ± 6.4 | 51.5 ± 6.4 |" in out
    assert "| losses | `sema` | 1 | 61.0 |" in out


def test_what_cannot_be_made_is_told_and_the_rest_goes_on(plan, capsys):
    assert main(arguments(plan, "--groups", "transfer,losses", "--seeds", "1")) == 1
    assert FakeTrainer.made == ["ir.seed1", "sema.seed1"]
    assert "next.seed1 is left out: there is no" in capsys.readouterr().err


def test_a_run_with_other_settings_is_not_finished(plan):
    main(arguments(plan, "--groups", "losses", "--seeds", "1"))
    plan.write_text(plan.read_text().replace("0.1", "0.2"))
    again = read_plan(plan, plan.parent / "runs", ["losses"], [1])
    assert "`ir`" in score_table(again, Path("nowhere"), plan.parent / "runs")
    assert "`sema`" not in score_table(again, Path("nowhere"), plan.parent / "runs")


def test_a_run_on_other_texts_is_not_finished(plan, monkeypatch):
    main(arguments(plan, "--groups", "losses", "--seeds", "1"))
    FakeTrainer.made.clear()
    monkeypatch.setattr(mdpr_runs, "data_of", lambda *_: "other words")
    main(arguments(plan, "--groups", "losses", "--seeds", "1"))
    assert FakeTrainer.made == ["ir.seed1", "sema.seed1"]


def test_a_run_that_started_from_other_weights_is_not_finished(plan):
    main(arguments(plan, "--seeds", "1"))
    FakeTrainer.made.clear()
    (plan.parent / "runs" / "sema.seed1" / "training.json").unlink()
    main(arguments(plan, "--seeds", "1"))
    assert FakeTrainer.made == ["sema.seed1"]
    facts = plan.parent / "runs" / "sema.seed1" / "training.json"
    facts.write_text(facts.read_text().replace("61", "62"))
    main(arguments(plan, "--seeds", "1"))
    assert FakeTrainer.made == ["sema.seed1", "next.seed1"]


def test_a_run_on_other_data_is_not_finished(plan, tmp_path):
    main(arguments(plan, "--groups", "losses", "--seeds", "1"))
    (tmp_path / "manifest.json").write_text('{"pairs": {"de-en": 7}}')
    again = read_plan(plan, plan.parent / "runs", ["losses"], [1])
    assert "`ir`" not in score_table(again, tmp_path, plan.parent / "runs")


def test_a_change_of_all_runs_is_on_top_of_the_plan(plan, capsys):
    changes = ["--set", "training.steps=3", "--set", "training.semantic_weight=0.7"]
    assert main(arguments(plan, "--list", "--groups", "losses", "--seeds", "2", *changes)) == 0
    for line in capsys.readouterr().out.splitlines():
        assert line.endswith("--set 'training.semantic_weight=0.7' --set 'training.steps=3' --set 'training.seed=2'")
    assert main(arguments(plan, "--list", "--set", "training.stepps=3")) == 2
    assert "training.stepps" in capsys.readouterr().err


def test_listing_trains_nothing(plan, capsys):
    assert main(arguments(plan, "--list", "--seeds", "3")) == 0
    out = capsys.readouterr().out
    assert "losses/sema.seed3 (to be made): python -m finetune.mdpr --config" in out
    assert f"--set 'model.start=\"{plan.parent}/runs/sema.seed3\"'" in out
    assert FakeTrainer.made == []


@pytest.mark.parametrize(
    ("change", "more", "message"),
    [
        ((), ["--groups", "sizes"], "has no group 'sizes': choose from losses, transfer"),
        (("seeds = [1, 2]", ""), [], "is no plan: expected config, seeds and [groups.GROUP.RUN]"),
        (("[groups.losses.ir]", "[groups.transfer.sema]"), [], "has two runs 'sema'"),
        (("semantic_weight", "weight"), [], "sets training.weight, which does not exist"),
        ((), ["--seeds", "one"], "--seeds 'one' is no list of whole numbers"),
    ],
)
def test_wrong_plans(plan, capsys, change, more, message):
    if change:
        plan.write_text(plan.read_text().replace(*change))
    assert main(arguments(plan, *more)) == 2
    assert message in capsys.readouterr().err


def test_the_plan_of_the_report():
    """Every run of the plan that comes with the project has possible settings."""
    runs = read_plan(config_file("mdpr-runs"), Path('RU"NS'))
    assert len({item.folder for item in runs}) == len(runs) == 3 * 30
    by_name = {item.name: item.settings() for item in runs if item.seed == 2}
    assert by_name["ir"].training.semantic_weight == 0
    assert by_name["setting-5"].data.pairs == ("de-tr",)
    assert by_name["titles"].model.start == 'RU"NS/sema.seed2'
    assert by_name["infoxlm-sema"].model.encoder == "microsoft/infoxlm-base"
    paper = Config.read(config_file("mdpr-paper"))
    for item in runs:
        if item.group == "backbones":  # tuned as in the paper, not with the settings for two cores
            settings = item.settings()
            assert replace(settings.model, encoder="") == replace(paper.model, encoder="")
            assert settings.data == paper.data
            assert settings.training.learning_rate == paper.training.learning_rate
            assert settings.training.steps == paper.training.steps


def test_the_weights_of_the_papers_settings_act():
    """Gradients of the weighted losses for the vectors of a batch of all processes: those of L_semaCL and L_langCL are
    felt beside those of L_IR and are not larger; with the paper's weight L_langCL would do nothing."""
    training, count, generator = Config.read(config_file("mdpr-paper")).training, 48, torch.Generator().manual_seed(1)
    common, texts = torch.randn(1, 768, generator=generator), torch.randn(count, 768, generator=generator)

    def vectors() -> torch.Tensor:
        """Of length 1: 0.5 is the cosine of any two texts, 0.8 that of two that say the same."""
        own = torch.randn(count, 768, generator=generator)
        parts = zip((0.5, 0.3, 0.2), (common, texts, own), strict=True)
        return sum(share**0.5 * normalize(part, dim=1) for share, part in parts).requires_grad_()

    def gradient(loss: torch.Tensor, *inputs: torch.Tensor) -> float:
        return float(torch.cat(torch.autograd.grad(loss, inputs)).norm())

    first, second, others = vectors(), vectors(), vectors()
    loss = retrieval(first, second, range(count), temperature=training.retrieval_temperature)
    asked = gradient(loss, first, second)
    semantic = gradient(semantic_contrastive(first, second, training.semantic_temperature), first, second)
    language = gradient(language_contrastive(first, second, others), first, second, others)
    assert training.batch * 8 == training.pair_batch * 8 == training.text_batch * 8 == count
    assert 0.01 < training.semantic_weight * semantic / asked < 1
    assert 0.01 < training.language_weight * language / asked < 1
    assert 0.001 * language / asked < 1e-4
