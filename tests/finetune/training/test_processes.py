"""Training in two processes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from finetune.lora.__main__ import main as tune
from finetune.lora.examples import write_examples
from finetune.mdpr.relevance import Example, Passage
from finetune.mdpr.relevance import write_examples as write_questions
from tests.finetune.ccpr.test_ccpr import CONFIG
from tests.finetune.lora import test_lora
from tests.finetune.mdpr import test_mdpr

LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.mark.slow
def test_two_processes_train_one_model(tmp_path, tiny_encoder, pairs):
    config = tmp_path / "config.toml"
    config.write_text(CONFIG.format(encoder=tiny_encoder))
    model = tmp_path / "model"
    run = ["-m", "finetune.ccpr", "--config", str(config), "--pairs", str(pairs), "--output", str(model)]
    options = ["--max-steps", "4", "--device", "cpu", "--set", "training.evaluate_every=2"]
    made = subprocess.run([*LAUNCH, *run, *options], capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr[-2000:]
    facts = json.loads((model / "training.json").read_text())
    assert facts["sentence_pairs_seen"] == 4 * 8 * 2
    assert [point["pairs"] for point in facts["curve"]] == [32, 64]


WITHOUT_GRADIENTS = """
import torch
from accelerate import Accelerator
from finetune.training.gradients import share_gradients

accelerator = Accelerator(cpu=True)
number = accelerator.process_index
for reduction in ("mean", "sum"):
    parameters = {name: torch.zeros(2, requires_grad=True) for name in "abc"}
    parameters["a"].grad = torch.full((2,), 1.0 + number)
    parameters["b" if number else "c"].grad = torch.full((2,), 4.0)
    share_gradients(accelerator, parameters, reduction)
    made = {name: parameter.grad.tolist() for name, parameter in parameters.items()}
    wanted = {"a": [1.5, 1.5], "b": [2.0, 2.0], "c": [2.0, 2.0]}
    factor = 1 if reduction == "mean" else 2
    assert made == {name: [factor * v for v in values] for name, values in wanted.items()}, (number, made)
"""


def test_a_parameter_without_a_gradient_in_one_process_counts_as_zero_there(tmp_path):
    """Each process skips another parameter: all of them still take part in the exchange of every gradient."""
    script = tmp_path / "without_gradients.py"
    script.write_text(WITHOUT_GRADIENTS)
    made = subprocess.run([*LAUNCH, str(script)], capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr[-2000:]


SAME_AS_ONE = """
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from finetune.mdpr.config import Config
from finetune.mdpr.train import MdprTrainer
from finetune.training import trainer
from finetune.training.gradients import share_gradients

CONFIG, PREPARED, OUTPUT = map(Path, sys.argv[1:])


def course(shared, batch):
    changes = {"model.shared": shared, "model.tuning": "full", "training.hard_negatives": "1"}
    changes |= {f"training.{name}": str(batch) for name in ("batch", "pair_batch", "text_batch")}
    changes |= {"training.language_weight": "50", "data.pairs": '["xa-en"]', "training.clip": "1000"}
    run = MdprTrainer(Config.read(CONFIG, changes), PREPARED, OUTPUT, "cpu")
    run.optimizer.param_groups[0]["eps"] = 1.0  # a gradient that is rounding alone shall not move a weight
    losses = [run.backward(run.batch(0))]
    share_gradients(run.accelerator, run.parameters)
    gradients = {name: p.grad.clone() for name, p in run.parameters.items() if p.grad is not None}
    run.optimizer.zero_grad()
    losses += [run.run_step() for _ in range(3)]
    return run, losses, gradients


accelerator = trainer.Accelerator
alone = SimpleNamespace(num_processes=1, process_index=0, gather=lambda tensor: tensor)
for shared in ("true", "false"):
    trainer.Accelerator = accelerator
    two, losses, gradients = course(shared, 3)
    trainer.Accelerator = lambda cpu: alone
    one, wanted, whole = course(shared, 6)
    assert two.accelerator.num_processes == 2 and two.key == one.key
    batch = one.batch(0)
    assert batch.left_out.any() and len(batch.queries) == 5 and len(batch.sentences) == 7
    for found, right in zip(losses, wanted, strict=True):
        assert found.keys() == right.keys() == {"retrieval", "semantic", "language"}
        assert all(abs(found[name] - right[name]) < 1e-5 for name in right), (losses, wanted)
    for name, gradient in whole.items():  # of all but the pooler, which nothing reads
        torch.testing.assert_close(gradients[name], gradient, atol=1e-5, rtol=1e-4, msg=name)
        torch.testing.assert_close(two.parameters[name], one.parameters[name], atol=1e-6, rtol=1e-4, msg=name)
"""


def test_two_processes_do_what_one_does_with_their_batches_together(tmp_path, quick_encoder):
    """Losses, gradients and weights. Each question has two relevant passages, so that some are in the other process's
    part of the batch; of the five questions and seven sentences one process has more than the other."""
    for name in ("relevance", "dev", "pairs", "texts"):
        (tmp_path / name).mkdir()
    words = ["stone", "river bed", "garden", "window pane", "doctor", "market", "winter day"]
    passages = [Passage(str(n), f"the {word} in the {words[n - 3]}") for n, word in enumerate(words)]
    questions = [
        Example(str(n), f"which {words[n]}?", (passages[n], passages[n + 1]), (passages[(n + 4) % 7],))
        for n in range(5)
    ]
    write_questions(tmp_path / "relevance" / "own.jsonl", questions)
    pairs = ["one\teno", "two things\towt", "again two\towt", "three\teerht"]  # the third one has a sentence again
    (tmp_path / "pairs" / "xa-en.tsv").write_text("".join(f"{pair}\n" for pair in pairs))
    (tmp_path / "texts" / "xc.txt").write_text("a third sentence\n")
    config, script = tmp_path / "config.toml", tmp_path / "same_as_one.py"
    config.write_text(test_mdpr.CONFIG.format(encoder=quick_encoder))
    script.write_text(SAME_AS_ONE)
    run = [*LAUNCH, str(script), str(config), str(tmp_path), str(tmp_path / "model")]
    made = subprocess.run(run, capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr


@pytest.mark.slow
def test_two_processes_train_one_passage_model(tmp_path, quick_encoder, prepared):
    config = tmp_path / "config.toml"
    config.write_text(test_mdpr.CONFIG.format(encoder=quick_encoder))
    model = tmp_path / "model"
    run = ["-m", "finetune.mdpr", "--config", str(config), "--prepared", str(prepared), "--output", str(model)]
    options = ["--max-steps", "4", "--device", "cpu", "--set", "training.evaluate_every=2"]
    made = subprocess.run([*LAUNCH, *run, *options], capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr[-2000:]
    facts = json.loads((model / "training.json").read_text())
    assert facts["questions_seen"] == 4 * 8 * 2
    assert [point["pairs"] for point in facts["curve"]] == [0, 32, 64]


@pytest.mark.slow
def test_two_processes_tune_the_adapter_that_one_does(tmp_path, tiny_llm, examples):
    """Each computes its share of a batch, dropout included, so the weights and the losses are those of one process."""
    config, train, dev = test_lora.config_of(tmp_path, tiny_llm()), tmp_path / "train.jsonl", tmp_path / "dev.jsonl"
    write_examples(train, examples(14))
    write_examples(dev, examples(17)[14:])
    made = [tmp_path / "one", tmp_path / "two"]
    files = ["--config", str(config), "--examples", str(train), "--dev", str(dev), "--device", "cpu"]
    assert tune([*files, "--output", str(made[0])]) == 0
    run = [*LAUNCH, "-m", "finetune.lora", *files, "--output", str(made[1])]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.count("the adapter is in") == 1
    one, two = (json.loads((folder / "training.json").read_text()) for folder in made)
    assert one["sentence_pairs_seen"] == two["sentence_pairs_seen"] == 72
    for there, here in zip(one["curve"], two["curve"], strict=True):
        assert abs(there["loss"] - here["loss"]) < 1e-3 and abs(there["dev"] - here["dev"]) < 1e-3
    for name, weights in load_file(made[0] / "adapter_model.safetensors").items():
        torch.testing.assert_close(load_file(made[1] / "adapter_model.safetensors")[name], weights, atol=2e-3, rtol=0)
