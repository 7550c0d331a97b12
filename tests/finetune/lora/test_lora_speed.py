"""The plain recipe learns the same thing, and both are timed."""

from __future__ import annotations

import re

import pytest
import torch

from finetune.lora.config import Config
from finetune.lora.data import Data
from finetune.lora.examples import write_examples
from finetune.lora.speed import main, plain_step
from finetune.lora.train import LoraTrainer

CONFIG = """
[model]
llm = "{llm}"
dropout = 0.0
modules = ["q_proj", "down_proj"]
[training]
batch = 5
dtype = "float32"
"""


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_both_steps_change_the_weights_alike(tmp_path, tiny_llm, examples, family):
    (tmp_path / "config.toml").write_text(CONFIG.format(llm=tiny_llm(family)))
    made = []
    for step in (plain_step, lambda trainer: trainer.run_step()["loss"]):
        trainer = LoraTrainer(Config.read(tmp_path / "config.toml"), Data(examples(9)), tmp_path / "x", "cpu")
        losses = [step(trainer) for _ in range(3)]
        made.append((losses, {n: p.detach().clone() for n, p in trainer.parameters.items()}))
    (plain_losses, plain), (losses, ours) = made
    assert losses == pytest.approx(plain_losses, rel=1e-5)
    for name, weights in plain.items():
        torch.testing.assert_close(ours[name], weights, atol=2e-5, rtol=1e-3)


def test_the_command_prints_both_and_their_ratio(tmp_path, tiny_llm, examples, capsys):
    (tmp_path / "config.toml").write_text(CONFIG.format(llm=tiny_llm()))
    write_examples(tmp_path / "examples.jsonl", examples(12))
    given = ["--config", str(tmp_path / "config.toml"), "--examples", str(tmp_path / "examples.jsonl")]
    assert main([*given, "--steps", "2", "--device", "cpu"]) == 0
    told = capsys.readouterr().out
    assert "float32 on cpu with" in told and "batches of 5 examples" in told and "2 at a time" in told
    (plain, _), (ours, ratio) = re.findall(r"([\d.]+) s a step +([\d.]+) x", told)
    assert re.search(r"plain recipe .* 1\.00 x", told)
    assert float(ours) >= 0 and float(plain) >= 0 and float(ratio) > 0
