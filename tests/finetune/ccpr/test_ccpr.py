"""Training of CCPR on a tiny model: it learns, stops and goes on, and saves what the retriever opens."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from finetune.ccpr.__main__ import main
from finetune.ccpr.config import Config
from finetune.ccpr.train import CcprTrainer
from finetune.training.trainer import continued, load_checkpoint
from rag_mt.base.errors import UserError
from rag_mt.base.settings import SHIPPED
from retrievers.ccpr.model import open_phrase_encoder
from retrievers.ccpr.retriever import CcprUnits

CONFIG = """
[model]
encoder = "{encoder}"
layer = 2
dimension = 32
rank = 16
alpha = 16
dropout = 0.0
segment_width = 4
[data]
languages = ["xa-en", "xb-en"]
per_sentence = 4
dev_sentences = 5
[training]
steps = 30
batch = 8
learning_rate = 1e-2
head_learning_rate = 3e-2
warm_up = 3
temperature = 0.1
span_negatives = true
evaluate_every = 10
checkpoint_every = 10
dtype = "float32"
"""


@pytest.fixture
def config(tmp_path, tiny_encoder):
    path = tmp_path / "config.toml"
    path.write_text(CONFIG.format(encoder=tiny_encoder))
    return path


def arguments(config: Path, pairs: Path, output: Path, *more: str) -> list[str]:
    return ["--config", str(config), "--pairs", str(pairs), "--output", str(output), "--device", "cpu", *more]


def test_it_learns_and_the_retriever_opens_it(tmp_path, config, pairs):
    model = tmp_path / "model"
    assert main(arguments(config, pairs, model)) == 0
    facts = json.loads((model / "training.json").read_text())
    losses = [point["contrastive"] for point in facts["curve"]]
    assert [point["step"] for point in facts["curve"]] == [10, 20, 30]
    assert losses[-1] < losses[0] - 1
    assert facts["curve"][-1]["average"] > 15
    assert facts["sentence_pairs_seen"] == 240
    assert facts["pairs"]["xb-en"] == {"aligner": "by hand"}
    assert (model / "curve.svg").read_text().startswith("<?xml")
    units = CcprUnits(open_phrase_encoder(str(model), "cpu", "float32"))
    vectors, spans = units.units(["stone river mountain"], "passage")
    assert vectors.shape[1] == 32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(units.span_vectors(["stone river mountain"], spans), vectors, atol=1e-5)


def test_the_saved_model_computes_what_the_trained_one_did(tmp_path, config, pairs):
    trainer = CcprTrainer(Config.read(config), pairs, tmp_path / "m", "cpu")
    for _ in range(5):
        trainer.run_step()
    trainer.save()
    units = CcprUnits(open_phrase_encoder(str(tmp_path / "m"), "cpu", "float32"))
    text = "retniw stone garden"
    trainer.set_training(False)
    ids = torch.tensor([trainer.encoder.tokenizer(text)["input_ids"]])
    with torch.no_grad():
        states = trainer.encoder.states(ids, torch.ones_like(ids))
        starts, ends = trainer.heads.project(states)
    ((_, tokens, opened_starts, opened_ends),) = units.encoder.projected([text])
    assert tokens[0].ids == ids[0].tolist()
    torch.testing.assert_close(opened_starts, starts, atol=3e-3, rtol=3e-3)  # the files hold float16
    torch.testing.assert_close(opened_ends, ends, atol=3e-3, rtol=3e-3)


def test_a_stopped_run_ends_like_one_in_one_piece(tmp_path, config, pairs):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main(arguments(config, pairs, whole)) == 0
    trainer = CcprTrainer(Config.read(config), pairs, parts, "cpu")
    run_step, steps = CcprTrainer.run_step, 0

    class StoppedError(Exception):
        pass

    def stops(self, *batch):
        nonlocal steps
        steps += 1
        if steps == 17:
            raise StoppedError
        return run_step(self, *batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CcprTrainer, "run_step", stops)
        with pytest.raises(StoppedError):
            main(arguments(config, pairs, parts))
    _, facts = load_checkpoint(parts / "checkpoint", trainer.key)
    assert facts["step"] == 10
    assert main(arguments(config, pairs, parts)) == 0
    for file in ("adapter_model.safetensors", "heads.safetensors"):
        first, second = load_file(whole / file), load_file(parts / file)
        assert all(torch.equal(first[name], second[name]) for name in first)
    curves = [json.loads((m / "training.json").read_text())["curve"] for m in (whole, parts)]
    for curve in curves:
        for point in curve:
            del point["seconds"]
    assert curves[0][-1]["average"] == curves[1][-1]["average"]


def test_a_model_is_trained_further(tmp_path, config, pairs):
    first, second = tmp_path / "first", tmp_path / "second"
    assert main(arguments(config, pairs, first, "--max-steps", "20")) == 0
    more = ["--max-steps", "10", "--set", f"model.start={first}"]
    trainer = CcprTrainer(Config.read(config, {"model.start": str(first)}), pairs, second, "cpu")
    saved, heads = load_file(first / "adapter_model.safetensors"), load_file(first / "heads.safetensors")
    for name, tensor in saved.items():
        own = trainer.parameters["encoder." + name.replace(".weight", ".default.weight")]
        torch.testing.assert_close(own.detach(), tensor.float(), atol=0, rtol=0)
    for name, tensor in heads.items():
        torch.testing.assert_close(trainer.parameters[f"heads.{name}"].detach(), tensor.float(), atol=0, rtol=0)
    assert main(arguments(config, pairs, second, *more)) == 0
    facts = [json.loads((m / "training.json").read_text()) for m in (first, second)]
    assert facts[1]["started_from"]["curve"] == facts[0]["curve"]
    assert [p["pairs"] for p in continued(facts[1]["started_from"], facts[1]["curve"])] == [80, 160, 240]
    assert facts[1]["curve"][0]["contrastive"] < facts[0]["curve"][0]["contrastive"]


@pytest.mark.parametrize("change", [("model.rank", "8"), ("model.dimension", "16"), ("model.tuning", "full")])
def test_a_start_of_another_shape(tmp_path, config, pairs, change):
    trainer = CcprTrainer(Config.read(config), pairs, tmp_path / "m", "cpu")
    trainer.save()
    with pytest.raises(UserError, match=r"model.start .* does not fit these settings"):
        CcprTrainer(
            Config.read(config, {"model.start": str(tmp_path / "m"), change[0]: change[1]}), pairs, tmp_path, "cpu"
        )


def test_other_settings_do_not_go_on(tmp_path, config, pairs, capsys):
    assert main(arguments(config, pairs, tmp_path / "m", "--max-steps", "2")) == 0
    assert main(arguments(config, pairs, tmp_path / "m", "--max-steps", "2", "--set", "model.rank=2")) == 2
    assert "holds a run with other settings or data: give another --output" in capsys.readouterr().err


def test_cached_gradients_are_those_of_the_whole_batch(tmp_path, config, pairs):
    gradients = []
    for chunks in ("1", "3"):
        trainer = CcprTrainer(Config.read(config, {"training.chunks": chunks}), pairs, tmp_path / "m", "cpu")
        batch = trainer.collate(trainer.rows_of(0), np.random.default_rng(1))
        trainer.set_training(True)
        losses = trainer.backward(batch)
        gradients.append((losses, {n: p.grad for n, p in trainer.parameters.items()}))
    (loss, whole), (cached_loss, cached) = gradients
    assert cached_loss == pytest.approx(loss, rel=1e-5)
    assert loss.keys() == {"contrastive", "segmentation"}
    assert whole.keys() == cached.keys()
    moving = [n for n, g in whole.items() if g.abs().max() > 0]
    assert len(moving) > 10
    for name in moving:
        torch.testing.assert_close(cached[name], whole[name], atol=1e-6, rtol=1e-4)


def test_negatives_of_the_own_side_are_as_set(tmp_path, config, pairs):
    """Fewer negatives, smaller losses; without other spans as negatives, those of the own side are none either."""

    def loss(**changes):
        settings = {f"training.{name}": json.dumps(value) for name, value in changes.items()}
        trainer = CcprTrainer(Config.read(config, settings), pairs, tmp_path / "m", "cpu")
        return trainer.backward(trainer.collate(trainer.rows_of(0), np.random.default_rng(1)))["contrastive"]

    neither = loss(own_phrases=False, own_spans=False)
    phrases, spans = loss(own_spans=False), loss(own_phrases=False)
    assert neither < min(phrases, spans) and max(phrases, spans) < loss()
    assert loss(span_negatives=False, own_spans=False) == loss(span_negatives=False)


def test_a_batch_without_phrases_leaves_the_weights_finite(tmp_path, config, pairs):
    """Rows of other contexts may hold no phrase pair at all."""
    trainer = CcprTrainer(Config.read(config), pairs, tmp_path / "m", "cpu")
    rows = [{**row, "spans": []} for row in trainer.rows_of(0)]
    batch = trainer.collate(rows, np.random.default_rng(1))
    assert len(batch.spans[0]) == len(batch.spans[2]) == 0
    trainer.set_training(True)
    assert set(trainer.backward(batch).values()) == {0.0}
    trainer.update()
    assert all(torch.isfinite(p).all() for p in trainer.parameters.values())


def test_full_tuning_leaves_the_frozen_layers_alone(tmp_path, config, pairs):
    changes = {"model.tuning": "full", "model.frozen_layers": "1"}
    trainer = CcprTrainer(Config.read(config, changes), pairs, tmp_path / "m", "cpu")
    assert {n.split(".")[3] for n in trainer.parameters if n.startswith("encoder.encoder.layer")} == {"1"}
    trainer.run_step()
    trainer.save()
    units = CcprUnits(open_phrase_encoder(str(tmp_path / "m"), "cpu", "float32"))
    assert len(units.units(["stone river"], "passage")[0]) <= 3


def test_the_papers_inner_product(tmp_path, config, pairs):
    changes = {"model.normalised": "false", "training.temperature": "1.0", "model.segment_width": "0"}
    trainer = CcprTrainer(Config.read(config, changes), pairs, tmp_path / "m", "cpu")
    trainer.run_step()
    trainer.save()
    vectors = CcprUnits(open_phrase_encoder(str(tmp_path / "m"), "cpu")).span_vectors(
        ["stone"], np.array([[0, 0, 5]], np.int32)
    )
    assert abs(np.linalg.norm(vectors) - 1) > 1e-3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model.layer=9", "model.layer is 9: .* has layers 1 to 3"),
        ("model.colour=1", "sets model.colour, which does not exist: expected one of encoder, tuning"),
        ("training.batch='many'", "sets training.batch to 'many': expected a whole number, such as 64"),
        ("training.own_phrases=1", "sets training.own_phrases to 1: expected true or false"),
        ("training.both_sides=false", "sets training.both_sides, which does not exist: .* own_phrases, .* own_spans"),
        ("training.batch=true", "sets training.batch to True: expected a whole number"),
        ("paint.colour=1", r"has no section \[paint\]"),
        ("model.frozen_layers=3", "model.frozen_layers is 3: .* has 2 layers here"),
        ("training.learning_rate=0", "sets training.learning_rate to 0: expected a number above 0"),
        ("data.languages=[]", "sets data.languages to ..: expected names"),
        ("training.evaluate_every=0", "sets training.evaluate_every to 0: expected at least 1"),
        ("training.seed=-1", "sets training.seed to -1: expected 0 to"),
        ("model.dropout=2", "sets model.dropout to 2: expected a share"),
        ("training.batch=1000", "do not fill one batch of 1000"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, config, pairs, change, message):
    name, value = change.split("=")
    with pytest.raises(UserError, match=message):
        CcprTrainer(Config.read(config, {name: value}), pairs, tmp_path / "m", "cpu")


def test_a_missing_configuration(tmp_path):
    with pytest.raises(UserError, match=r"no configuration .*try --config ccpr-embedded"):
        Config.read(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("[model")
    with pytest.raises(UserError, match="is not a TOML file"):
        Config.read(tmp_path / "bad.toml")


def test_the_committed_configurations_are_valid():
    found = sorted(SHIPPED.glob("ccpr-*.toml"))
    assert len(found) >= 3
    for path in found:
        Config.read(path)
