"""Training XPR: exact resuming, the same loss in chunks, the ablations, and that it learns."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from finetune.losses.phrases import LEFT_OUT, Negatives, xpco
from finetune.xpr.__main__ import main
from finetune.xpr.batches import Collator, XprPool
from finetune.xpr.config import Config, TrainingConfig
from finetune.xpr.train import XprTrainer
from rag_mt.base.errors import UserError
from rag_mt.base.settings import config_file
from rag_mt.models.loading import LoadedEncoder, load_encoder
from retrievers.xpr.examples import Side, sentence_table
from retrievers.xpr.model import open_xpr
from tests.finetune.xpr_sets import loader_of, phrase_set

LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
CONFIG = """
[model]
encoder = "{encoder}"
tuning = "lora"
rank = 2
alpha = 4
dropout = 0.1
[data]
languages = ["xa-en", "xb-en"]
sentences = 2
dev_pairs = 8
dev_sentences = 2
[training]
steps = 6
batch = 8
chunks = 3
learning_rate = 1e-2
momentum = 0.9
evaluate_every = 3
checkpoint_every = 3
dtype = "float32"
"""


@pytest.fixture(scope="module")
def phrases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("phrases")
    phrase_set(folder, "xa-en", seed=3)
    phrase_set(folder, "xb-en", seed=4)
    return folder


@pytest.fixture(scope="module")
def loaded(tiny_encoder: Path) -> LoadedEncoder:
    return load_encoder(str(tiny_encoder), "cpu", "float32")


@pytest.fixture(autouse=True)
def _read_once(loaded: LoadedEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("finetune.training.encoder", "retrievers.xpr.model", "rag_mt.models.trained"):
        monkeypatch.setattr(f"{module}.load_encoder", loader_of(loaded))


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: Path) -> Path:
    path = tmp_path_factory.mktemp("config") / "xpr.toml"
    path.write_text(CONFIG.format(encoder=tiny_encoder))
    return path


@pytest.fixture
def trainer(config: Path, phrases: Path, tmp_path: Path) -> Callable[..., XprTrainer]:
    """Makes runs with changed settings."""

    def make(name: str = "run", **changes: Any) -> XprTrainer:
        texts = {key.replace("__", "."): json.dumps(value) for key, value in changes.items()}
        return XprTrainer(Config.read(config, texts), phrases, tmp_path / name, "cpu")

    return make


def run(config: Path, phrases: Path, output: Path, *more: str) -> int:
    given = ["--config", str(config), "--phrases", str(phrases), "--output", str(output), "--device", "cpu"]
    return main([*given, *more])


@pytest.mark.slow
def test_a_run_that_stops_goes_on_exactly(config: Path, phrases: Path, tmp_path: Path) -> None:
    """Queue, momentum encoder, optimiser, dropout and batches go on as if there had been no stop."""
    queue = ("--set", "training.queue=20")
    assert run(config, phrases, tmp_path / "whole", *queue) == 0
    begun = XprTrainer(Config.read(config, {"training.queue": "20"}), phrases, tmp_path / "parts", "cpu")
    for _ in range(3):
        begun.run_step()
    saved = {name: tensor.clone() for name, tensor in begun.state().items()}
    goes_on = XprTrainer(Config.read(config, {"training.queue": "20"}), phrases, tmp_path / "parts", "cpu")
    goes_on.restore(saved, begun.facts())
    goes_on.step = 3
    for _ in range(3):
        goes_on.run_step()
    goes_on.save()
    whole = load_file(tmp_path / "whole" / "checkpoint" / "checkpoint.safetensors")
    for name, tensor in goes_on.state().items():
        assert torch.equal(tensor, whole[name]), name
    record = json.loads((tmp_path / "whole" / "training.json").read_text())
    assert record["steps"] == 6 and record["phrase_pairs_seen"] == 48
    assert [point["step"] for point in record["curve"]] == [0, 3, 6]
    assert {"contrastive", "xa-en", "xb-en", "average"} <= record["curve"][-1].keys()


def test_a_run_that_stops_before_its_model_is_written_gets_it(
    config: Path, phrases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(XprTrainer, "save", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(config, phrases, tmp_path / "out", "--max-steps", "1")
    assert (tmp_path / "out" / "checkpoint" / "checkpoint.safetensors").is_file()
    assert run(config, phrases, tmp_path / "out", "--max-steps", "1") == 0
    assert open_xpr(str(tmp_path / "out"), "cpu", "float32").settings.hidden == 32


def test_without_phrases_the_sample_corpus_is_tried(
    config: Path, phrases: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("finetune.xpr.__main__.sample_phrases", lambda *_: phrases)
    monkeypatch.setattr("finetune.training.settings.cache_dir", lambda: tmp_path)
    given = ["--config", str(config), "--device", "cpu"]
    assert main([*given, "--max-steps", "1"]) == 0
    (made,) = (tmp_path / "trials").iterdir()
    assert (made / "xpr.json").is_file() and "makes no model for real use" in capsys.readouterr().err
    assert main([*given, "--phrases", str(phrases)]) == 2
    assert "give --output DIR" in capsys.readouterr().err


def test_other_settings_are_not_gone_on_with(
    config: Path, phrases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(config, phrases, tmp_path / "out", "--max-steps", "1") == 0
    assert run(config, phrases, tmp_path / "out", "--max-steps", "2") == 2
    assert "other settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    "changes", [{}, {"training__momentum": 0.0}, {"training__queue": 10}, {"model__head_on": "tokens"}]
)
def test_cached_gradients_are_those_of_the_whole_batch(
    trainer: Callable[..., XprTrainer], changes: dict[str, Any]
) -> None:
    found = []
    for cached in (False, True):
        run = trainer(f"cached-{cached}", training__cached=cached, training__clip=1e9, **changes)
        losses = [run.run_step()["contrastive"] for _ in range(2)]
        found.append((losses, run.parameters))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    for (name, ours), theirs in zip(found[0][1].items(), found[1][1].values(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=2e-3, msg=name)


def test_a_head_on_tokens_differs_where_it_is_not_linear(trainer: Callable[..., XprTrainer]) -> None:
    """Both the trained vectors and those of the momentum encoder; a head that begins as the identity is linear."""
    for start, alike in (("identity", True), ("random", False)):
        found = []
        for head_on in ("mean", "tokens"):
            torch.manual_seed(1)
            run = trainer(model__head_on=head_on, model__head_start=start)
            run.set_training(False)
            with torch.no_grad():
                other = {name: tensor + 0.1 for name, tensor in run.slow.items() if name.startswith("head.")}
                vectors, slow, moved = (run.whole_vectors(run.batch(0), own) for own in ({}, run.slow, other))
            torch.testing.assert_close(slow, vectors)
            assert not torch.allclose(moved, vectors, atol=1e-3)
            found.append(vectors)
        assert torch.allclose(*found, atol=1e-5) == alike


def test_momentum_encoder_follows_slowly(trainer: Callable[..., XprTrainer]) -> None:
    run = trainer()
    before = {name: tensor.clone() for name, tensor in run.slow.items()}
    run.run_step()
    moved = 0
    for name, tensor in run.slow.items():
        expected = 0.9 * before[name] + 0.1 * run.parameters[name].detach()
        torch.testing.assert_close(tensor, expected)
        moved += not torch.equal(tensor, before[name])
    assert moved


def test_queue_keeps_the_last_keys(trainer: Callable[..., XprTrainer]) -> None:
    run = trainer(training__queue=12)
    run.run_step()
    first = run.queues[0].surfaces.clone()
    run.run_step()
    assert len(run.queues[0].surfaces) == 12 and len(first) == 8
    assert run.queues[0].surfaces[8:].tolist() == first[:4].tolist()


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({}, {"encoder", "head", "slow"}),
        ({"model__head": False}, {"encoder", "slow"}),
        ({"training__momentum": 0.0}, {"encoder", "head"}),
        ({"data__sentences": 0}, {"encoder", "head", "slow"}),
        ({"model__tuning": "full"}, {"encoder", "head", "slow"}),
        ({"training__dtype": "bfloat16"}, {"encoder", "head", "slow"}),
        ({"model__head_on": "tokens", "model__head_start": "random"}, {"encoder", "head", "slow"}),
    ],
)
def test_ablations_train_and_open(
    trainer: Callable[..., XprTrainer], changes: dict[str, Any], parts: set[str], loaded: LoadedEncoder
) -> None:
    run = trainer(**changes)
    losses = [run.run_step()["contrastive"] for _ in range(2)]
    assert np.isfinite(losses).all()
    names = {name.removeprefix("parameter.").split(".")[0] for name in run.state() if not name.startswith("adam")}
    assert names == parts
    run.save()
    model = open_xpr(str(run.output), "cpu", "float32")
    assert model.settings.sentences == changes.get("data__sentences", 2)
    assert model.settings.head == changes.get("model__head", True)
    assert model.settings.head_on == changes.get("model__head_on", "mean")
    if changes.get("model__tuning") == "full":  # embeddings and all
        trained = {n: p for n, p in run.parameters.items() if "embeddings.word" in n}
        for name, parameter in trained.items():
            saved = model.model.get_parameter(name.removeprefix("encoder."))
            torch.testing.assert_close(saved, parameter.detach())
            assert not torch.equal(parameter.detach(), loaded.model.get_parameter(name.removeprefix("encoder.")))
        assert trained
    # The saved model is the trained one: its vectors are those that training sees, up to fp16.
    own = run.pool.sets[0]
    batch = Collator(run.encoder.tokenizer, "", 2, 300, 80, 1)(
        [own.sides], np.array([[0, 0, 0], [0, 1, 1]], np.int32), None
    )
    run.set_training(False)
    with torch.no_grad():
        wanted = run.vectors(batch, [run.means(chunk, n) for n, chunk in enumerate(batch.chunks)])[:2].numpy()
    found = model.project(model.side_states(own.source, np.array([0, 1]), 2, model.settings.layer))
    np.testing.assert_allclose(found, wanted, atol=5e-3 if run.encoder.dtype == torch.float32 else 5e-2)


@pytest.mark.slow
def test_two_processes_train_one_model(config: Path, phrases: Path, tmp_path: Path) -> None:
    given = ["--config", str(config), "--phrases", str(phrases), "--output", str(tmp_path / "two"), "--device", "cpu"]
    made = subprocess.run(
        [*LAUNCH, "-m", "finetune.xpr", *given, "--set", "training.queue=20"],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert made.returncode == 0, made.stderr[-2000:]
    facts = json.loads((tmp_path / "two" / "training.json").read_text())
    assert facts["phrase_pairs_seen"] == 6 * 8 * 2 and [point["pairs"] for point in facts["curve"]] == [0, 48, 96]


@pytest.mark.slow
def test_it_learns(trainer: Callable[..., XprTrainer]) -> None:
    run = trainer(training__steps=30, model__dropout=0.0, training__momentum=0.5, data__languages=["xa-en"])
    losses = [run.run_step()["contrastive"] for _ in range(30)]
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5])


def test_batches_take_every_pair_once_in_each_epoch(phrases: Path) -> None:
    pool = XprPool([phrases / "xa-en", phrases / "xb-en"])
    assert len(pool) == 48
    epochs = [np.concatenate([pool.batch(n + 6 * e, 8, seed=1) for n in range(6)]) for e in (0, 1)]
    for rows in epochs:
        assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, pool.rows.tolist()))
    assert epochs[0].tolist() != epochs[1].tolist()
    with pytest.raises(UserError, match=r"48 phrase pairs do not fill one batch of 64"):
        pool.batch(0, 64, 1)


def test_collator_marks_the_tokens_of_each_phrase(trainer: Callable[..., XprTrainer], phrases: Path) -> None:
    run = trainer()
    own = run.pool.sets[0]
    pairs = np.array([[0, 4, 4], [0, 9, 9]], np.int32)
    batch = run.collate([own.sides], pairs, np.random.default_rng(0))
    wanted = [own.source.phrases[4], own.source.phrases[9], own.target.phrases[4], own.target.phrases[9]]
    seen = [0] * 4
    for chunk in batch.chunks:
        for ids, (first, last), owner in zip(
            chunk.input_ids, chunk.places.tolist(), chunk.owners.tolist(), strict=True
        ):
            assert run.encoder.tokenizer.decode(ids[first : last + 1]).strip() == wanted[owner]
            seen[owner] += 1
    assert seen == batch.counts.tolist()
    most = [min(2, int(np.diff(side.bounds)[p])) for side in own.sides for p in (4, 9)]
    assert seen == most


def test_collator_keeps_the_phrase_of_a_long_sentence(trainer: Callable[..., XprTrainer]) -> None:
    run = trainer(data__max_chars=25)
    own = run.pool.sets[0]
    batch = run.collate([own.sides], np.array([[0, 4, 4]], np.int32), None)
    assert batch.counts.min() >= 1
    texts = [
        run.encoder.tokenizer.decode(ids, skip_special_tokens=True) for chunk in batch.chunks for ids in chunk.input_ids
    ]
    assert max(map(len, texts)) <= 26


def test_collator_looks_closer_where_tokens_run_out(trainer: Callable[..., XprTrainer]) -> None:
    """Of many tokens around a phrase fewer are read, so that it is seen whole; a pair of which nothing is seen is left
    out."""
    run = trainer()
    run.collate.max_tokens = 12
    dense = "zq " * 40
    texts = [f"{dense}bridge {dense}", f"{dense}old garden wall", dense, "tower stands"]
    places = np.array([(0, 0, 120, 126), (1, 1, 120, 135), (2, 2, 0, 0)], np.int32)
    source = Side("xa", ("bridge", "old garden wall", ""), sentence_table(texts), places)
    target = Side("en", ("tower",) * 3, sentence_table(texts), np.array([(p, 3, 0, 5) for p in range(3)], np.int32))
    batch = run.collate([(source, target)], np.array([[0, n, n] for n in range(3)], np.int32), None)
    said = {}
    for chunk in batch.chunks:
        for ids, (first, last), owner in zip(
            chunk.input_ids, chunk.places.tolist(), chunk.owners.tolist(), strict=True
        ):
            said[owner] = run.encoder.tokenizer.decode(ids[first : last + 1]).strip()
    assert said == {0: "bridge", 1: "old garden wall", 3: "tower", 4: "tower", 5: "tower"}
    assert (batch.surfaces == LEFT_OUT).tolist() == [False, False, True, False, False, True]
    with torch.no_grad():
        vectors = run.vectors(batch, [run.means(chunk, n) for n, chunk in enumerate(batch.chunks)])
        both = run.loss(batch, [run.means(chunk, n) for n, chunk in enumerate(batch.chunks)], None)
    kept, surfaces = torch.tensor([0, 1]), batch.surfaces.reshape(2, -1)[:, :2]
    source_vectors, target_vectors = (side[kept] for side in vectors.chunk(2))
    keys = Negatives(source_vectors, surfaces[0]), Negatives(target_vectors, surfaces[1])
    torch.testing.assert_close(both, xpco(source_vectors, target_vectors, *keys, run.config.training.temperature))


@pytest.mark.parametrize(
    ("step", "share"), [(0, 0.5), (1, 1.0), (2, 1.0), (11, 0.5), (19, 1 / 18)], ids=lambda value: f"{value:.3g}"
)
def test_learning_rate_rises_then_falls_linearly(step: int, share: float) -> None:
    assert TrainingConfig(steps=20, warm_up=0.1).share(step) == pytest.approx(share)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("training.momentum=1", "momentum"),
        ("training.batch=1", "batch"),
        ("training.temperature=0", "temperature"),
        ("model.head_start=zeros", "head_start"),
        ("model.head_on=words", "sets model.head_on to 'words': expected one of mean, tokens"),
        ("model.rank=0", "model.rank to 0: expected at least 1"),
        ("model.frozen_layers=-1", "model.frozen_layers to -1: expected at least 0"),
        ("model.frozen_layers=3", "model.frozen_layers is 3: "),
        ("data.languages=[]", "data.languages to (): expected names of phrase sets"),
        ("data.max_tokens=7", "data.max_tokens to 7: expected at least 8"),
        ("training.learning_rate=0", "training.learning_rate to 0: expected a number above 0"),
        ("training.clip=-1", "training.clip to -1: expected a number above 0"),
        ('data.languages=["xq-en"]', "no phrase pairs with examples"),
    ],
)
def test_wrong_settings_are_told(
    config: Path, phrases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str, message: str
) -> None:
    assert run(config, phrases, tmp_path / "out", "--set", setting) == 2
    said = capsys.readouterr().err
    assert message in said and "Traceback" not in said


@pytest.mark.parametrize("name", ["xpr-embedded", "xpr-paper", "xpr-shipped"])
def test_shipped_settings_are_valid(name: str) -> None:
    found = Config.read(config_file(name))
    assert found.data.sentences == 4 and found.training.temperature == 0.06
