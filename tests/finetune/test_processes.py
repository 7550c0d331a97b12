"""Training in two processes."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.finetune.test_ccpr import CONFIG


def test_two_processes_train_one_model(tmp_path, tiny_encoder, pairs):
    config = tmp_path / "config.toml"
    config.write_text(CONFIG.format(encoder=tiny_encoder))
    model = tmp_path / "model"
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run = ["-m", "finetune.ccpr", "--config", str(config), "--pairs", str(pairs), "--output", str(model)]
    options = ["--max-steps", "4", "--device", "cpu", "--set", "training.evaluate_every=2"]
    made = subprocess.run([*launch, *run, *options], capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr[-2000:]
    facts = json.loads((model / "training.json").read_text())
    assert facts["sentence_pairs_seen"] == 4 * 8 * 2
    assert [point["pairs"] for point in facts["curve"]] == [32, 64]
