"""Training of mDPR on a tiny model: it learns, stops and goes on, and saves what the retriever opens."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from finetune.losses.passages import language_contrastive
from finetune.mdpr.__main__ import main
from finetune.mdpr.config import Config
from finetune.mdpr.relevance import Example, Passage, write_examples
from finetune.mdpr.train import MdprTrainer
from rag_mt.base.errors import UserError
from retrievers.mdpr import open_mdpr

CONFIG = """
[model]
encoder = "{encoder}"
tuning = "lora"
rank = 8
alpha = 16
dropout = 0.0
shared = false
[data]
relevance = ["own"]
pairs = ["xa-en", "xb-en"]
texts = ["xc"]
passage_tokens = 32
[training]
steps = 12
batch = 8
pair_batch = 8
text_batch = 6
semantic_weight = 0.5
language_weight = 0.5
retrieval_temperature = 0.1
semantic_temperature = 0.1
learning_rate = 1e-2
warm_up = 2
evaluate_every = 6
checkpoint_every = 6
dtype = "float32"
"""


@pytest.fixture
def config(tmp_path, quick_encoder):
    path = tmp_path / "config.toml"
    path.write_text(CONFIG.format(encoder=quick_encoder))
    return path


def arguments(config: Path, prepared: Path, output: Path, *more: str) -> list[str]:
    return ["--config", str(config), "--prepared", str(prepared), "--output", str(output), "--device", "cpu", *more]


def slow_semantic(first, second, temperature):
    """Equation 2 pair by pair: each sentence against all others of both sides."""
    both, count, terms = torch.nn.functional.normalize(torch.cat([first, second]), dim=-1), len(first), []
    for i in range(2 * count):
        scores = [both[i] @ both[j] / temperature for j in range(2 * count)]
        right = scores[(i + count) % (2 * count)]
        rest = [score for j, score in enumerate(scores) if j != i]
        terms.append(torch.logsumexp(torch.stack(rest), 0) - right)
    return torch.stack(terms).mean()


@pytest.mark.parametrize(("semantic", "language"), [(0.3, 0.0), (0.0, 0.7), (0.3, 0.7)])
def test_weighted_losses_reach_the_passage_encoder(config, prepared, tmp_path, monkeypatch, semantic, language):
    """The gradients of a step's contrastive part, as the vectors get them, are those of the weighted losses."""
    changes = {"training.semantic_weight": semantic, "training.language_weight": language}
    run = MdprTrainer(Config.read(config, changes), prepared, tmp_path / "model", "cpu")
    pairs, others = run.data.sentences(0)
    texts = [*(pair[0] for pair in pairs), *(pair[1] for pair in pairs), *others]
    torch.manual_seed(3)
    given = torch.randn(len(texts), 6, requires_grad=True)
    again = given.detach().clone().requires_grad_()

    def vectors(ids, kind):
        assert kind == "passage"
        assert ids == run.towers.token_ids(texts, kind, run.config.data.sentence_tokens)
        return given

    monkeypatch.setattr(run.towers, "vectors", vectors)
    found = run._contrastive(run.batch(0))
    assert found.keys() == {name for name, weight in (("semantic", semantic), ("language", language)) if weight}
    assert bool(others) == bool(language)
    first, second, others = again.split([len(pairs), len(pairs), len(others)])
    loss = semantic * slow_semantic(first, second, 0.1)
    if language:
        loss = loss + language * language_contrastive(first, second, others)
    loss.backward()
    torch.testing.assert_close(given.grad, again.grad)


def test_passages_of_all_processes_are_negatives_where_they_are_not_relevant(config, tmp_path, monkeypatch):
    """All vectors are the same, so that the loss of a question is the logarithm of the number of passages it is asked
    among. Of three questions each process reads two: the second one reads the first question again, which counts once.
    """
    for name in ("relevance", "dev"):
        (tmp_path / name).mkdir()
    one, two, three = (Passage(name, name) for name in ("one", "two", "three"))
    questions = [Example("1", "first", (one, two)), Example("2", "second", (two,)), Example("3", "third", (three,))]
    write_examples(tmp_path / "relevance" / "own.jsonl", questions)
    weights = {"training.semantic_weight": "0", "training.language_weight": "0"}
    settings = Config.read(config, {**weights, "training.batch": "2"})
    runs = []
    for index in (0, 1):
        process = SimpleNamespace(num_processes=2, process_index=index, gather=lambda own: torch.cat([own, own]))
        monkeypatch.setattr("finetune.training.trainer.Accelerator", lambda cpu, process=process: process)
        runs.append(MdprTrainer(settings, tmp_path, tmp_path / "model", "cpu"))
        monkeypatch.setattr(runs[-1].towers, "vectors", lambda ids, kind: torch.ones(len(ids), 2, requires_grad=True))
    asked = set()
    for step in range(8):
        here, there = (run.batch(step) for run in runs)
        assert here.queries + there.queries[:1] == runs[0].towers.token_ids(
            runs[0].data.retrieval(step).queries, "query", settings.data.query_tokens
        )
        assert there.queries[1] == here.queries[0]
        count = here.left_out.shape[1]  # three, or two where the first question is asked for the second one's passage
        wanted = (math.log(2) + 2 * math.log(3)) / 3 if count == 3 else math.log(2)
        for run, batch in zip(runs, (here, there), strict=True):
            assert (len(batch.queries), len(batch.passages)) == (2, count - 1)
            assert run._retrieval(batch) == pytest.approx(wanted)
        asked.add(count)
    assert asked == {2, 3}


@pytest.mark.parametrize("shared", ["false", "true"])
def test_it_learns_and_the_retriever_opens_it(tmp_path, config, prepared, shared):
    model = tmp_path / "model"
    assert main(arguments(config, prepared, model, "--set", f"model.shared={shared}", "--max-steps", "18")) == 0
    facts = json.loads((model / "training.json").read_text())
    curve = facts["curve"]
    assert [point["step"] for point in curve] == [0, 6, 12, 18]
    for loss in ("retrieval", "semantic"):
        assert curve[-1][loss] < curve[1][loss]
    assert curve[-1]["en"] > curve[0]["en"]
    assert {"en", "xa", "same", "cross", "mixed", "average"} <= curve[0].keys()
    assert (model / "curve.svg").is_file()
    assert sorted(p.name for p in model.iterdir() if p.is_dir()) == (
        ["checkpoint", "passage"] if shared == "true" else ["checkpoint", "passage", "query"]
    )
    opened = open_mdpr(str(model), device="cpu", dtype="float32")
    assert opened.shared == (shared == "true")
    vectors = opened.encode(["stone river", "garden"], "passage")
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    asked = opened.encode(["stone river"], "query")
    assert np.allclose(asked[0], vectors[0], atol=1e-5) == (shared == "true")


@pytest.mark.parametrize("tuning", ["lora", "full"])
def test_the_saved_model_computes_what_the_trained_one_did(tmp_path, config, prepared, tuning):
    trainer = MdprTrainer(Config.read(config, {"model.tuning": tuning}), prepared, tmp_path / "m", "cpu")
    for _ in range(3):
        trainer.run_step()
    trainer.save()
    opened = open_mdpr(str(tmp_path / "m"), device="cpu", dtype="float32")
    trainer.set_training(False)
    texts = ["retniw stone garden", "river"]
    for kind in ("query", "passage"):
        wanted = trainer.towers.encode(texts, kind)
        np.testing.assert_allclose(opened.encode(texts, kind), wanted, atol=3e-3)  # the files hold float16
        with torch.no_grad():
            trained = trainer.towers.vectors(trainer.towers.token_ids(texts, kind, 32), kind)
        np.testing.assert_allclose(trained.numpy(), wanted, atol=1e-5)


def test_a_dense_layer_above_the_encoder_stays(tmp_path, config, prepared, quick_encoder):
    base = tmp_path / "base"
    shutil.copytree(quick_encoder, base)
    for name in ("1_Pooling", "2_Dense"):
        (base / name).mkdir()
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense")]
    rows = [{"idx": n, "name": str(n), "path": path, "type": f"x.{kind}"} for n, (path, kind) in enumerate(kinds)]
    (base / "modules.json").write_text(json.dumps(rows))
    (base / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    (base / "2_Dense" / "config.json").write_text('{"activation_function": "torch.nn.modules.activation.Tanh"}')
    save_file({"linear.weight": torch.randn(8, 32)}, base / "2_Dense" / "model.safetensors")
    changes = {"model.encoder": str(base), "model.tuning": "full"}
    trainer = MdprTrainer(Config.read(config, changes), prepared, tmp_path / "m", "cpu")
    trainer.run_step()
    trainer.save()
    trainer.set_training(False)
    opened = open_mdpr(str(tmp_path / "m"), device="cpu", dtype="float32")
    assert opened.dimension == 8
    np.testing.assert_allclose(opened.encode(["a"], "query"), trainer.towers.encode(["a"], "query"), atol=1e-5)


@pytest.mark.parametrize("tuning", ["lora", "full"])
def test_contrastive_losses_change_the_passage_encoder_alone(tmp_path, config, prepared, tuning):
    trainer = MdprTrainer(Config.read(config, {"model.tuning": tuning}), prepared, tmp_path / "m", "cpu")
    trainer._contrastive(trainer.batch(0))
    touched = {name.partition(".")[0] for name, p in trainer.parameters.items() if p.grad is not None}
    assert touched == {"passage"}
    trainer.optimizer.zero_grad(set_to_none=True)
    trainer._retrieval(trainer.batch(0))
    touched = {name.partition(".")[0] for name, p in trainer.parameters.items() if p.grad is not None}
    assert touched == {"passage", "query"}


def test_a_stopped_run_ends_like_one_in_one_piece(tmp_path, config, prepared):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    more = ["--set", "model.lora_dropout=0.2"]
    assert main(arguments(config, prepared, whole, *more)) == 0
    run_step, steps = MdprTrainer.run_step, 0

    class StoppedError(Exception):
        pass

    def stops(self, *batch):
        nonlocal steps
        steps += 1
        if steps == 10:
            raise StoppedError
        return run_step(self, *batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MdprTrainer, "run_step", stops)
        with pytest.raises(StoppedError):
            main(arguments(config, prepared, parts, *more))
    assert json.loads((parts / "training.json").read_text())["steps"] == 6
    assert main(arguments(config, prepared, parts, *more)) == 0
    for kind in ("query", "passage"):
        first, second = (load_file(m / kind / "adapter_model.safetensors") for m in (whole, parts))
        assert all(torch.equal(first[name], second[name]) for name in first)
    curves = [json.loads((m / "training.json").read_text())["curve"] for m in (whole, parts)]
    for point in (*curves[0], *curves[1]):
        del point["seconds"]
    assert curves[0] == curves[1]


def test_the_start_is_measured_once_for_all_runs(tmp_path, config, prepared, monkeypatch):
    curves, measured, evaluate = [], [], MdprTrainer.evaluate
    monkeypatch.setenv("RAG_MT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(MdprTrainer, "evaluate", lambda self: measured.append(self.step) or evaluate(self))
    for seed in (1, 2):
        output = tmp_path / str(seed)
        assert main(arguments(config, prepared, output, "--set", f"training.seed={seed}", "--max-steps", "2")) == 0
        curves.append(json.loads((output / "training.json").read_text())["curve"])
    assert measured == [0, 2, 2]
    assert curves[0][0] == curves[1][0]


def test_other_settings_do_not_go_on(tmp_path, config, prepared, capsys):
    assert main(arguments(config, prepared, tmp_path / "m", "--max-steps", "1")) == 0
    assert main(arguments(config, prepared, tmp_path / "m", "--max-steps", "1", "--set", "training.seed=2")) == 2
    assert "holds a run with other settings or data: give another --output" in capsys.readouterr().err


@pytest.mark.parametrize("tuning", ["lora", "full"])
def test_a_second_stage_goes_on_from_the_first(tmp_path, config, prepared, tuning):
    first = tmp_path / "first"
    assert main(arguments(config, prepared, first, "--max-steps", "2", "--set", f"model.tuning={tuning}")) == 0
    changes = {"model.start": str(first), "model.tuning": tuning, "training.semantic_weight": "0"}
    trainer = MdprTrainer(Config.read(config, changes), prepared, tmp_path / "second", "cpu")
    opened = open_mdpr(str(first), device="cpu", dtype="float32")
    trainer.set_training(False)
    for kind in ("query", "passage"):
        np.testing.assert_allclose(trainer.towers.encode(["stone"], kind), opened.encode(["stone"], kind), atol=1e-5)
    trainer.run_step()
    trainer.save()
    facts = json.loads((tmp_path / "second" / "training.json").read_text())
    assert facts["started_from"]["steps"] == 2


@pytest.mark.parametrize("change", [("model.rank", "4"), ("model.shared", "true"), ("model.tuning", "full")])
def test_a_start_of_another_shape(tmp_path, config, prepared, change):
    MdprTrainer(Config.read(config), prepared, tmp_path / "m", "cpu").save()
    changes = {"model.start": str(tmp_path / "m"), change[0]: change[1]}
    with pytest.raises(UserError, match=r"model.start .* does not fit these settings"):
        MdprTrainer(Config.read(config, changes), prepared, tmp_path, "cpu")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("training.pair_batch", "1"), "training.pair_batch to 1: expected at least 2"),
        (("training.retrieval_temperature", "0"), "training.retrieval_temperature to 0: expected a number above 0"),
        (("model.frozen_layers", "-1"), "model.frozen_layers to -1: expected at least 0"),
        (("model.rank", "0"), "model.rank to 0: expected at least 1"),
        (("data.passage_tokens", "3"), "data.passage_tokens to 3: expected at least 8"),
        (("data.pairs", "[]"), "data.pairs to (): expected pairs such as de-en, or both weights 0"),
        (("data.relevance", '["other"]'), "there is no"),
        (("data.pairs", '["xa-xb"]'), "there is no"),
        (("model.pooling", "last"), "model.pooling to 'last': expected one of , mean, cls, max, pooler"),
    ],
)
def test_wrong_settings(tmp_path, config, prepared, capsys, change, message):
    code = main(arguments(config, prepared, tmp_path / "m", "--set", f"{change[0]}={change[1]}"))
    assert code == 2
    assert message in capsys.readouterr().err
