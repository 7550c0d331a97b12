"""COMET: the embedded encoder as an XLM-RoBERTa, the other environment, training and scoring in it."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, XLMRobertaModel

from eval.comet_checkpoint import HEAD, SHIPPED, TRAINING, checkpoint_of, facts_of
from eval.comet_encoder import xlmr_folder
from eval.comet_environment import VARIABLE, comet_python, run_in_comet
from eval.comet_run import weights_hash
from eval.comet_score import FACTS as KEPT
from eval.comet_score import comet_scores, main, triples_of
from eval.comet_train import main as train
from eval.comet_train import read_settings
from eval.metrics.comet import Triple, open_comet
from eval.quality_data import FACTS, Rated, write_table
from eval.translation import main as translate
from rag_mt.errors import UserError
from rag_mt.models import load_encoder

ROOT = Path(__file__).parents[2]
TEXTS = [
    "Der Stadtrat hat den Bau  einer neuen Brücke beschlossen.",
    "Правительство не может извиняться за решение.",
    "ﬁ ½ ăîșț x",
    "İstanbul'da 3.5 milyon — “ok”",
    "word " * 400,
]
THERE = """
import sys, torch
from comet.encoders.xlmr import XLMREncoder
encoder = XLMREncoder(sys.argv[1], True, True).eval()
made = []
for text in torch.load(sys.argv[2]):
    read = encoder.prepare_sample([text])
    with torch.no_grad():
        made.append((read["input_ids"], torch.stack(encoder(**read)["all_layers"])))
torch.save(made, sys.argv[2])
"""


def _installed() -> bool:
    try:
        return bool(comet_python())
    except UserError:
        return False


needs_comet = pytest.mark.skipif(
    not _installed(), reason=f"there is no environment of `make comet` (.venv-comet, or {VARIABLE})"
)


def states_here() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Token numbers and states in all layers of the embedded encoder, as the BERT that it is."""
    loaded = load_encoder("embedded:e5-small", "cpu", "float32")
    made = []
    for text in TEXTS:
        read = loaded.tokenizer([text], return_tensors="pt", truncation=True, max_length=510)
        with torch.no_grad():
            made.append((read["input_ids"], torch.stack(loaded.model(**read, output_hidden_states=True).hidden_states)))
    return made


def equal(ours: list[tuple[torch.Tensor, torch.Tensor]], theirs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    for (ids, states), (other_ids, other_states) in zip(ours, theirs, strict=True):
        assert ids.tolist() == other_ids.tolist()
        assert torch.nn.functional.cosine_similarity(states, other_states, dim=-1).min() > 0.9999
        assert (states - other_states).abs().max() < 1e-4


def test_the_embedded_encoder_is_an_equal_xlm_roberta() -> None:
    folder = xlmr_folder()
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = XLMRobertaModel.from_pretrained(folder, add_pooling_layer=False, local_files_only=True).eval()
    theirs = []
    for text in TEXTS:
        read = tokenizer([text], return_tensors="pt", truncation=True, max_length=510)
        with torch.no_grad():
            output = model(read["input_ids"], read["attention_mask"], output_hidden_states=True)
        theirs.append((read["input_ids"], torch.stack(output.hidden_states)))
    equal(states_here(), theirs)


@needs_comet
def test_unbabel_comet_computes_the_same_states(tmp_path: Path) -> None:
    torch.save(TEXTS, tmp_path / "states.pt")
    command = [str(comet_python()), "-c", THERE, str(xlmr_folder()), str(tmp_path / "states.pt")]
    subprocess.run(command, check=True, capture_output=True)
    equal(states_here(), torch.load(tmp_path / "states.pt"))


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
def quality(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of made-up scores: the more words a translation lacks, the worse."""
    folder = tmp_path_factory.mktemp("quality")
    for part, first, last in (("train", 0, 8), ("dev", 8, 12)):
        rows = []
        for n in range(first, last):
            words = f"Das Haus Nummer {n} steht am alten Fluss .".split()
            for kept in (2, 4, 6, 9):
                source, cut = f"House number {n} stands at the old river .", " ".join(words[:kept])
                rows.append(Rated(source, cut, " ".join(words), float(kept - 9)))
        write_table(folder / f"mqm.{part}.en-de.csv", rows)
        write_table(folder / f"da.{part}.en-de.csv", [Rated(r.source, r.translation, "", r.human / 3) for r in rows])
    (folder / FACTS).write_text(json.dumps({"seed": 1, "shares": {}, "rows": {}}))
    return folder


@pytest.fixture(scope="module")
def trained(quality: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Trains a model of a kind in two epochs."""
    folder = tmp_path_factory.mktemp("models")

    def model(kind: str) -> Path:
        place = folder / kind
        if not place.exists():
            command = ["--config", str(ROOT / "configs" / f"comet-{kind}.toml"), "--data", str(quality)]
            assert train([*command, "--output", str(place), "--max-epochs", "2", "--quiet"]) == 0
        return place

    return model


@needs_comet
@pytest.mark.parametrize("kind", ["reference", "reference-free"])
def test_a_model_is_trained_rebuilt_and_scores(
    kind: str, trained: Callable[[str], Path], runs: Path, tmp_path: Path
) -> None:
    model = trained(kind)
    assert sorted(p.name for p in model.iterdir()) == [HEAD, TRAINING]
    facts = json.loads((model / TRAINING).read_text())
    assert facts["kind"] == kind and facts["rows"]["train"] == {"en-de": 32}
    assert [point["epoch"] for point in facts["dev_scores"]] == [1, 2]
    triples = triples_of(runs)
    together = comet_scores(str(model), triples, quiet=True)
    assert together["references"] == (kind == "reference") and together["model"] == model.name
    alone = comet_scores(str(checkpoint_of(model)), triples, batch_size=1, quiet=True)
    assert together["scores"] == pytest.approx(alone["scores"], abs=1e-4)
    assert len(set(together["scores"])) > 1
    scores = tmp_path / "scores.json"
    assert main([str(runs), "--model", str(model), "--output", str(scores), "--quiet"]) == 0
    metric = open_comet([scores], "")
    assert metric.signature.startswith(f"model:{model.name}|weights:{together['weights']}|version:")
    found = metric.statistics(*zip(*triples, strict=True))
    assert found[:, 0] == pytest.approx(100 * torch.tensor(together["scores"]).numpy())


@needs_comet
def test_scoring_goes_on_where_it_was(
    trained: Callable[[str], Path],
    runs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model, scores, compute, asked = trained("reference"), tmp_path / "scores.json", comet_scores, list[int]()
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
        assert {name: found[name] for name in KEPT} == {name: whole[name] for name in KEPT}
        assert [r["COMET"] for r in found["scores"]["runs"]] == pytest.approx([r["COMET"] for r in rows], abs=1e-4)
        return list(asked)

    monkeypatch.setattr("eval.comet_score.BLOCK", 4)
    monkeypatch.setattr("eval.comet_score.comet_scores", counted)
    assert main(command) == 0
    whole, count = json.loads(scores.read_text()), len(triples_of(runs))
    rows = whole["scores"]["runs"]
    assert sum(asked) == len(rows) == count > 4 == max(asked)
    assert asked_with(whole) == [1], "one tells that the weights are the same"
    assert sum(asked_with(whole | {"weights": "of another training"})) == count
    cut = whole | {"scores": {"runs": rows[:-1]}}
    assert asked_with(cut) == [1]
    assert sum(asked_with(cut | {"weights": "of another training"})) == count, "the missing one told it"
    assert "eval.comet_score runs --model reference" in (runs / "commands.json").read_text()
    scores.write_text(json.dumps(whole | {"model": "another"}))
    for place, told in ((scores, "scores by another"), (tmp_path, "is a folder")):
        assert main([str(runs), "--model", str(model), "--output", str(place), "--quiet"]) == 2
        assert told in capsys.readouterr().err


@needs_comet
def test_training_is_repeatable(trained: Callable[[str], Path], quality: Path, tmp_path: Path) -> None:
    first = trained("reference")
    command = ["--config", str(ROOT / "configs" / "comet-reference.toml"), "--data", str(quality), "--quiet"]
    assert train([*command, "--output", str(tmp_path / "again"), "--max-epochs", "2"]) == 0
    assert (tmp_path / "again" / HEAD).read_bytes() == (first / HEAD).read_bytes()


@needs_comet
def test_models_that_cannot_be_had_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match=r"'nobody/comet' cannot be downloaded.*--model embedded"):
        comet_scores("nobody/comet", [("s", "t", "r")])
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "model.ckpt").write_bytes(b"x")
    with pytest.raises(UserError, match=r"is no COMET checkpoint.*hparams"):
        comet_scores(str(tmp_path / "checkpoints" / "model.ckpt"), [("s", "t", "r")])
    (tmp_path / "hparams.yaml").write_text("class_identifier: regression_metric\n")
    with pytest.raises(UserError, match="cannot be loaded"):
        comet_scores(str(tmp_path / "checkpoints" / "model.ckpt"), [("s", "t", "r")])
    for name in ("missing.ckpt", "a/b/c", "./folder"):
        with pytest.raises(UserError, match="there is no COMET model"):
            comet_scores(name, [("s", "t", "r")])


@needs_comet
def test_a_program_that_fails_leaves_its_message(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"ended without an answer \(exit code 1\)"):
        run_in_comet("comet_run", {})


def test_settings_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "comet.toml"
    for text, complaint in (
        ("[data]\nkind = 'unified'", "data.kind"),
        ("[data]\nrows = 1", "data.rows"),
        ("[data]\ntrain_rows = -1", "data.train_rows to -1: expected at least 0"),
        ("[training]\nmax_epochs = true", "training.max_epochs to True: expected a whole number, such as 10"),
        ("[models]\n", r"\[models\]"),
        ("[model]\nlayer = 3", "model.layer"),
        ("x", "not a TOML file"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=complaint):
            read_settings(path)
    with pytest.raises(UserError, match="no configuration"):
        read_settings(tmp_path / "none.toml")
    assert {read_settings(path).data.kind for path in (ROOT / "configs").glob("comet-*.toml")} == {
        "reference",
        "reference-free",
    }


def test_other_folders_are_no_models(tmp_path: Path) -> None:
    (tmp_path / TRAINING).write_text("{}")
    with pytest.raises(UserError, match="holds no COMET model"):
        facts_of(tmp_path)


def test_shipped_models_are_small() -> None:
    for folder in SHIPPED.glob("*/"):
        kind, _ = facts_of(folder)
        assert kind in ("reference", "reference-free")
        assert sum(p.stat().st_size for p in folder.iterdir()) < 10_000_000


def test_weights_are_told_apart_by_what_they_are() -> None:
    """Not by the file that they lie in, which names folders."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).to(torch.bfloat16)
    before = weights_hash(model)
    assert weights_hash(copy.deepcopy(model)) == before
    model[0].bias.data[0] += 1
    assert weights_hash(model) != before
