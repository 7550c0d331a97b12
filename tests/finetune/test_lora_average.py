"""Averages of adapters."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file

from finetune.lora_average import main
from rag_mt.models import load_llm


@pytest.fixture
def adapters(tiny_llm: Callable[..., Path], tmp_path: Path) -> list[Path]:
    """Two adapters that share their first factors, as those of one start nearly do."""
    made: list[Path] = []
    for number in range(2):
        own: Any = get_peft_model(
            load_llm(str(tiny_llm("llama")), device="cpu", dtype="float32").model, LoraConfig(r=2)
        )
        for place, (name, weight) in enumerate(own.named_parameters()):
            if "lora_" in name:
                torch.manual_seed(place if "lora_A" in name else 1000 + 100 * number + place)
                torch.nn.init.normal_(weight)
        folder = tmp_path / f"a{number}"
        own.save_pretrained(str(folder))
        (folder / "training.json").write_text(json.dumps({"wrapper": "compact", "started_from": {"weights": "s"}}))
        made.append(folder)
    (made[0] / "LICENSE").write_text("terms")
    return made


def test_the_average_lies_between(adapters: list[Path], tmp_path: Path, tiny_llm: Callable[..., Path]) -> None:
    output = tmp_path / "mean"
    assert main([*map(str, adapters), "--output", str(output), "--weights", "0.25,0.75"]) == 0
    weights = [load_file(folder / "adapter_model.safetensors") for folder in (*adapters, output)]
    for one, other, mean in zip(*(own.values() for own in weights), strict=True):
        torch.testing.assert_close(mean, 0.25 * one + 0.75 * other)
    record = json.loads((output / "training.json").read_text())
    assert record["wrapper"] == "compact", "prompts are chosen by it"
    assert [(part["name"], part["weight"]) for part in record["averaged"]] == [("a0", 0.25), ("a1", 0.75)]
    assert (output / "LICENSE").read_text() == "terms"
    models = [load_llm(str(tiny_llm("llama")), str(f), "cpu", "float32").model for f in (*adapters, output)]
    one, other, mean = (model.state_dict() for model in models)
    changed = [name for name in one if not torch.equal(one[name], other[name])]
    assert changed
    for name in changed:
        torch.testing.assert_close(mean[name], 0.25 * one[name] + 0.75 * other[name], atol=1e-5, rtol=1e-4)


def test_an_adapter_is_its_own_average(adapters: list[Path], tmp_path: Path) -> None:
    assert main([str(adapters[0]), str(adapters[0]), "--output", str(tmp_path / "same")]) == 0
    own = load_file(adapters[0] / "adapter_model.safetensors")
    for name, tensor in load_file(tmp_path / "same" / "adapter_model.safetensors").items():
        torch.testing.assert_close(tensor, own[name])


@pytest.mark.parametrize("weights", ["1", "0.5,0.6", "1.5,-0.5", "a,b"])
def test_weights_are_shares(adapters: list[Path], tmp_path: Path, capsys: Any, weights: str) -> None:
    assert main([*map(str, adapters), "--output", str(tmp_path / "mean"), "--weights", weights]) == 2
    assert f"--weights {weights} do not fit 2 adapters" in capsys.readouterr().err
    assert not (tmp_path / "mean").exists()


def test_others_are_told(adapters: list[Path], tmp_path: Path, capsys: Any) -> None:
    given = [*map(str, adapters), "--output", str(tmp_path / "mean")]
    for file, key, value in (("adapter_config.json", "r", 4), ("training.json", "started_from", {"weights": "t"})):
        path = adapters[1] / file
        before = path.read_text()
        path.write_text(json.dumps({**json.loads(before), key: value}))
        assert main(given) == 2
        assert f"differ in {'start' if key == 'started_from' else key}: only" in capsys.readouterr().err
        path.write_text(before)
    assert main([str(adapters[0]), str(tmp_path / "none"), "--output", str(tmp_path / "mean")]) == 2
    assert "no adapter folder" in capsys.readouterr().err
    assert main([str(adapters[0]), str(adapters[1]), "--output", str(adapters[1])]) == 2
    assert "is there already" in capsys.readouterr().err
