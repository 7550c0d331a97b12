"""COMET: scoring by unbabel-comet, which lives in an environment of its own."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import XLMRobertaConfig, XLMRobertaModel

from eval.comet.isolated import weights_hash
from eval.comet.score import PROGRAM, VARIABLE, comet_python, comet_scores, main, run_in_comet, triples_of
from eval.metrics.comet import FACTS, Comet, Triple
from eval.translation.__main__ import main as translate
from rag_mt.base.errors import UserError

CHECKPOINT = """
import json, sys, torch
from pathlib import Path
from comet.models import ReferencelessRegression, RegressionMetric
folder, encoder, kind = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
settings = {"encoder_model": "XLM-RoBERTa", "pretrained_model": encoder, "hidden_sizes": [8], "local_files_only": True}
torch.manual_seed(1)
classes = {"regression_metric": RegressionMetric, "referenceless_regression_metric": ReferencelessRegression}
model = classes[kind](**settings)
(folder / "checkpoints").mkdir(parents=True)
made = {"state_dict": model.state_dict(), "hyper_parameters": settings, "pytorch-lightning_version": "2.0.0"}
torch.save(made, folder / "checkpoints" / "model.ckpt")
(folder / "hparams.yaml").write_text(json.dumps({**settings, "class_identifier": kind}))
"""
"""Writes an untrained model as unbabel-comet keeps them: FOLDER ENCODER KIND."""

# What transformers 4, which unbabel-comet needs, takes for XLM-RoBERTa's tokenizer.
TOKENIZER = {
    "tokenizer_class": "XLMRobertaTokenizerFast",
    **{"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>"},
    **{"unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>", "model_max_length": 64},
}


def _installed() -> bool:
    try:
        return bool(comet_python())
    except UserError:
        return False


needs_comet = pytest.mark.skipif(
    not _installed(), reason=f"there is no environment of `make comet` (.venv-comet, or {VARIABLE})"
)


def test_a_missing_environment_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], runs: Path
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(UserError, match=r"no environment with unbabel-comet.*make comet"):
        comet_python()
    scores = tmp_path / "scores.json"
    assert main([str(runs), "--model", "Unbabel/wmt22-comet-da", "--output", str(scores)]) == 2
    assert "`make comet`" in capsys.readouterr().err and not scores.exists()


@pytest.fixture(scope="module")
def runs(parallel_data: Path, systems_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finished runs of two systems."""
    folder = tmp_path_factory.mktemp("comet") / "runs"
    options = ["--suite", "wmt16", "--data", str(parallel_data), "--config", str(systems_file), "--quiet"]
    systems = ["--directions", "de-en", "--limit", "6", "--systems", "plain,sentence"]
    assert translate([*options, *systems, "--output", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def checkpoint(tiny_encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes an untrained checkpoint of a kind over a tiny XLM-RoBERTa."""
    folder = tmp_path_factory.mktemp("models")
    config = XLMRobertaConfig(
        vocab_size=250037,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=66,
        dtype="float32",
    )
    torch.manual_seed(0)
    XLMRobertaModel(config).save_pretrained(folder / "encoder")
    (folder / "encoder" / "tokenizer.json").write_bytes((tiny_encoder / "tokenizer.json").read_bytes())
    (folder / "encoder" / "tokenizer_config.json").write_text(json.dumps(TOKENIZER))

    def made(kind: str) -> Path:
        if not (folder / kind).exists():
            command = [str(comet_python()), "-c", CHECKPOINT, str(folder / kind), str(folder / "encoder"), kind]
            subprocess.run(command, check=True, capture_output=True)
        return folder / kind / "checkpoints" / "model.ckpt"

    return made


@needs_comet
@pytest.mark.parametrize("kind", ["regression_metric", "referenceless_regression_metric"])
def test_a_checkpoint_scores(kind: str, checkpoint: Callable[[str], Path], runs: Path, tmp_path: Path) -> None:
    model = checkpoint(kind)
    triples = triples_of(runs)
    together = comet_scores(str(model), triples, quiet=True)
    assert together["references"] == (kind == "regression_metric") and together["model"] == kind
    alone = comet_scores(str(model), triples, batch_size=1, quiet=True)
    assert together["scores"] == pytest.approx(alone["scores"], abs=1e-4)
    assert len(set(together["scores"])) > 1
    scores = tmp_path / "scores.json"
    assert main([str(runs), "--model", str(model), "--output", str(scores), "--quiet"]) == 0
    metric = Comet([scores])
    assert metric.signature.startswith(f"model:{kind}|weights:{together['weights']}|version:")
    found = metric.statistics(*zip(*triples, strict=True))
    assert found[:, 0] == pytest.approx(100 * torch.tensor(together["scores"]).numpy())


@needs_comet
def test_scoring_goes_on_where_it_was(
    checkpoint: Callable[[str], Path],
    runs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model, scores = checkpoint("regression_metric"), tmp_path / "scores.json"
    compute, asked = comet_scores, list[int]()
    command = [str(runs), "--model", str(model), "--output", str(scores), "--quiet"]

    def counted(name: str, rows: Sequence[Triple], *rest: Any) -> dict[str, Any]:
        asked.append(len(rows))
        return compute(name, rows, *rest)

    def asked_with(content: dict[str, Any]) -> list[int]:
        """How many translations each block had when the file held that before."""
        scores.write_text(json.dumps(content))
        asked.clear()
        assert main(command) == 0
        found = json.loads(scores.read_text())
        assert {name: found[name] for name in FACTS} == {name: whole[name] for name in FACTS}
        assert [r["COMET"] for r in found["scores"]["runs"]] == pytest.approx([r["COMET"] for r in rows], abs=1e-4)
        return list(asked)

    monkeypatch.setattr("eval.comet.score.BLOCK", 4)
    monkeypatch.setattr("eval.comet.score.comet_scores", counted)
    assert main(command) == 0
    whole, count = json.loads(scores.read_text()), len(triples_of(runs))
    rows = whole["scores"]["runs"]
    assert sum(asked) == len(rows) == count > 4 == max(asked)
    assert asked_with(whole) == [1], "one tells that the weights are the same"
    assert sum(asked_with(whole | {"weights": "of another training"})) == count
    cut = whole | {"scores": {"runs": rows[:-1]}}
    assert asked_with(cut) == [1]
    assert sum(asked_with(cut | {"weights": "of another training"})) == count, "the missing one told it"
    assert "eval.comet.score runs --model model.ckpt" in (runs / "commands.json").read_text()
    scores.write_text(json.dumps(whole | {"model": "another"}))
    for place, told in ((scores, "scores by another"), (tmp_path, "is a folder")):
        assert main([str(runs), "--model", str(model), "--output", str(place), "--quiet"]) == 2
        assert told in capsys.readouterr().err


@needs_comet
def test_models_that_cannot_be_had_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match=r"'nobody/comet' cannot be downloaded.*\.ckpt file"):
        comet_scores("nobody/comet", [("s", "t", "r")])
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "model.ckpt").write_bytes(b"x")
    with pytest.raises(UserError, match=r"is no COMET checkpoint.*hparams"):
        comet_scores(str(tmp_path / "checkpoints" / "model.ckpt"), [("s", "t", "r")])
    (tmp_path / "hparams.yaml").write_text("class_identifier: regression_metric\n")
    with pytest.raises(UserError, match="cannot be loaded"):
        comet_scores(str(tmp_path / "checkpoints" / "model.ckpt"), [("s", "t", "r")])
    for name in ("missing.ckpt", "a/b/c", "./folder", "embedded"):
        with pytest.raises(UserError, match="there is no COMET model"):
            comet_scores(name, [("s", "t", "r")])


def test_the_program_is_where_it_is_looked_for() -> None:
    assert PROGRAM.is_file()


@needs_comet
def test_a_program_that_fails_leaves_its_message(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"ended without an answer \(exit code 1\)"):
        run_in_comet({})


def test_weights_are_told_apart_by_what_they_are() -> None:
    """Not by the file that they lie in, which names folders."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).to(torch.bfloat16)
    before = weights_hash(model)
    assert weights_hash(copy.deepcopy(model)) == before
    model[0].bias.data[0] += 1
    assert weights_hash(model) != before
