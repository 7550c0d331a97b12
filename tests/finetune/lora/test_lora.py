"""LoRA tuning of tiny models: it learns, stops and goes on, and saves what translation opens."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from finetune.lora.__main__ import main
from finetune.lora.config import Config
from finetune.lora.data import Data, sample_data
from finetune.lora.examples import read_examples, write_examples
from finetune.lora.references import nearly_equal
from finetune.lora.train import LoraTrainer
from finetune.training.trainer import continued
from rag_mt.base.errors import UserError
from rag_mt.base.settings import config_file
from rag_mt.llm.opening import open_llm
from rag_mt.llm.queue import complete
from rag_mt.models.loading import load_llm

CONFIG = """
[model]
llm = "{llm}"
rank = 4
alpha = 8
dropout = 0.1
modules = ["q_proj", "v_proj", "gate_proj", "up_proj", "down_proj"]
[training]
steps = 12
batch = 6
micro = 2
learning_rate = 1e-2
warm_up = 2
evaluate_every = 4
checkpoint_every = 4
dtype = "float32"
"""


@pytest.fixture
def config(tmp_path, tiny_llm):
    return config_of(tmp_path, tiny_llm())


def config_of(folder, llm):
    path = folder / "config.toml"
    path.write_text(CONFIG.format(llm=llm))
    return path


@pytest.fixture
def files(tmp_path, examples):
    """Examples to train on and to measure on."""
    train, dev = tmp_path / "train.jsonl", tmp_path / "dev.jsonl"
    write_examples(train, examples(14))
    write_examples(dev, examples(17)[14:])
    return ["--examples", str(train), "--dev", str(dev)]


def arguments(config, files, output, *more):
    return ["--config", str(config), *files, "--output", str(output), "--device", "cpu", *more]


def trainer_of(config, output, data, dropout=0.1, **changes):
    settings = {"model.dropout": str(dropout), **{f"training.{k}": str(v) for k, v in changes.items()}}
    return LoraTrainer(Config.read(config, settings), data, output, "cpu")


@pytest.mark.parametrize(
    ("family", "steps", "least"), [("llama", 90, 0.1), pytest.param("gemma3", 220, 0.8, marks=pytest.mark.slow)]
)
def test_it_learns_to_answer_and_to_end(tmp_path, tiny_llm, examples, files, family, steps, least):
    """A model that has seen a few examples often says them, ends each, and does so through the saved adapter.

    The cap on the logits of the one family keeps its loss from falling further than `least`.
    """
    write_examples(tmp_path / "few.jsonl", examples(3))
    few = ["--examples", str(tmp_path / "few.jsonl")]
    more = ["--set", f"training.steps={steps}", "--set", "training.evaluate_every=30", "--set", "model.dropout=0.0"]
    more += ["--set", "model.rank=16", "--set", "model.alpha=32", "--set", "training.batch=3"]
    adapter = tmp_path / "adapter"
    path = config_of(tmp_path, tiny_llm(family))
    assert main(arguments(path, few, adapter, *more)) == 0
    facts = json.loads((adapter / "training.json").read_text())
    losses = [point["loss"] for point in facts["curve"]]
    assert losses[-1] < least < 2 < losses[0]
    llm = open_llm(str(tiny_llm(family)), adapter=str(adapter), device="cpu", dtype="float32")
    trainer = trainer_of(path, tmp_path / "unused", Data(examples(3)))
    prompts = [trainer.prompts.prompt(e) for e in examples(3)]
    for example, made in zip(examples(3), complete(llm, prompts, 200), strict=True):
        assert made.text == example.pair.target
        assert made.finished


def test_what_is_written(tmp_path, config, files, tiny_llm):
    adapter = tmp_path / "adapter"
    assert main(arguments(config, files, adapter)) == 0
    facts = json.loads((adapter / "training.json").read_text())
    assert [p["step"] for p in facts["curve"]] == [4, 8, 12]
    assert [p["pairs"] for p in facts["curve"]] == [24, 48, 72]
    assert all(p["dev"] > 0 and p["loss"] > 0 for p in facts["curve"])
    assert facts["examples"][0]["file"] == "train.jsonl"
    assert len(facts["examples"][0]["sha256"]) == 64
    assert (facts["sentence_pairs_seen"], facts["examples_used"], facts["examples_too_long"]) == (72, 14, 0)
    assert "--config" in facts["command"] and str(tmp_path) not in facts["command"].replace(str(config), "")
    assert (adapter / "curve.svg").read_text().startswith("<?xml")
    settings = json.loads((adapter / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(tiny_llm())
    assert (settings["r"], settings["task_type"], settings["inference_mode"]) == (4, "CAUSAL_LM", True)
    weights = load_file(adapter / "adapter_model.safetensors")
    assert all(tensor.dtype == torch.float16 for tensor in weights.values())
    base = AutoModelForCausalLM.from_pretrained(tiny_llm())
    PeftModel.from_pretrained(base, str(adapter))  # as anyone would open it


def test_an_adapter_of_another_run_is_not_overwritten(tmp_path, config, files, capsys):
    adapter = tmp_path / "adapter"
    assert main(arguments(config, files, adapter, "--max-steps", "1")) == 0
    before = (adapter / "adapter_model.safetensors").read_bytes()
    shutil.rmtree(adapter / "checkpoint")
    (tmp_path / "file").touch()
    for place, told in ((adapter, "no checkpoint to go on from"), (tmp_path / "file", "is no folder")):
        assert main(arguments(config, files, place)) == 2
        assert told in capsys.readouterr().err
    assert (adapter / "adapter_model.safetensors").read_bytes() == before


def test_parts_of_a_batch_give_the_gradients_of_the_whole(tmp_path, config, examples, monkeypatch):
    """However it is cut, by number or by tokens, and whoever computes the parts."""
    gradients = []
    monkeypatch.setattr(LoraTrainer, "update", lambda self: None)
    data = Data(examples(14))
    cuts = [{"micro": 6}, {"micro": 1}, {"micro": 4}, {"micro_tokens": 700}]
    for changes in cuts:
        trainer = trainer_of(config, tmp_path / "x", data, **changes, dropout=0.0)
        shuffled(trainer)
        loss = trainer.run_step()["loss"]
        gradients.append((loss, {n: p.grad.clone() for n, p in trainer.parameters.items()}))
    (loss, whole), *others = gradients
    assert max(float(g.abs().max()) for g in whole.values()) > 1e-3
    for other_loss, other in others:
        assert other_loss == pytest.approx(loss, rel=1e-5)
        for name, gradient in whole.items():
            torch.testing.assert_close(other[name], gradient, atol=1e-6, rtol=1e-4)


def shuffled(trainer):
    """Give the second factors of the adapter, which begin as 0, some weights."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in trainer.parameters.values():
            parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))


class Share:
    """What an Accelerator says to one of several processes; sums are left to the test."""

    is_main_process = True

    def __init__(self, index, count):
        self.process_index, self.num_processes = index, count


def test_several_processes_share_a_batch_and_its_dropout(tmp_path, config, examples, monkeypatch):
    monkeypatch.setattr(LoraTrainer, "update", lambda self: None)
    monkeypatch.setattr(LoraTrainer, "_sum", lambda self, tensor: tensor)
    gradients, losses = [], []
    for count in (1, 2):
        for index in range(count):
            trainer = trainer_of(config, tmp_path / "x", Data(examples(14)), batch=7)
            shuffled(trainer)
            trainer.accelerator = Share(index, count)
            losses.append(trainer.run_step()["loss"])
            gradients.append({n: p.grad.clone() for n, p in trainer.parameters.items()})
    whole, first, second = gradients
    assert losses[0] == pytest.approx(losses[1] + losses[2], rel=1e-5)
    for name, gradient in whole.items():
        torch.testing.assert_close(first[name] + second[name], gradient, atol=1e-6, rtol=1e-4)


def test_a_stopped_run_ends_like_one_in_one_piece(tmp_path, config, files):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main(arguments(config, files, whole)) == 0
    run_step, steps = LoraTrainer.run_step, 0

    class StoppedError(Exception):
        pass

    def stops(self, *batch):
        nonlocal steps
        steps += 1
        if steps == 11:
            raise StoppedError
        return run_step(self, *batch)

    more = ["--set", "training.checkpoint_every=3"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LoraTrainer, "run_step", stops)
        with pytest.raises(StoppedError):
            main(arguments(config, files, parts, *more))
    assert main(arguments(config, files, parts, *more)) == 0
    assert load_file(whole / "adapter_model.safetensors").keys()
    for file in ("adapter_model.safetensors", "adapter_config.json"):
        assert (whole / file).read_bytes() == (parts / file).read_bytes()
    tensors = [load_file(folder / "checkpoint" / "checkpoint.safetensors") for folder in (whole, parts)]
    assert tensors[0].keys() == tensors[1].keys()
    assert all(torch.equal(tensors[0][name], tensors[1][name]) for name in tensors[0])
    curves = [json.loads((m / "training.json").read_text())["curve"] for m in (whole, parts)]
    for curve in curves:
        for point in curve:
            del point["seconds"]
    assert curves[0] == curves[1]


def test_computing_the_layers_again_changes_nothing(tmp_path, config, examples):
    losses = []
    for checkpointing in ("false", "true"):
        trainer = trainer_of(config, tmp_path / "x", Data(examples(14)), checkpointing=checkpointing)
        losses.append([trainer.run_step()["loss"] for _ in range(3)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_the_merged_model_says_what_the_adapter_says(tmp_path, tiny_llm, files, family):
    adapter, merged = tmp_path / "adapter", tmp_path / "merged"
    path = config_of(tmp_path, tiny_llm(family))
    more = ["--merge", str(merged), "--set", "training.learning_rate=5e-2"]
    assert main(arguments(path, files, adapter, *more)) == 0
    ids = torch.randint(5, 800, (2, 40), generator=torch.Generator().manual_seed(1))
    base = AutoModelForCausalLM.from_pretrained(tiny_llm(family), dtype=torch.float32)
    with torch.no_grad():
        plain = base(input_ids=ids).logits
        beside = PeftModel.from_pretrained(base, str(adapter)).eval()(input_ids=ids).logits
        inside = load_llm(str(merged), device="cpu", dtype="float32").model(input_ids=ids).logits
    assert float((beside - plain).abs().max()) > 0.01
    torch.testing.assert_close(inside, beside, atol=1e-3, rtol=1e-3)


def test_an_adapter_is_trained_further(tmp_path, config, files, examples):
    first, second = tmp_path / "first", tmp_path / "second"
    assert main(arguments(config, files, first)) == 0
    saved = load_file(first / "adapter_model.safetensors")
    settings = Config.read(config, {"model.start": str(first)})
    trainer = LoraTrainer(settings, Data(examples(14)), second, "cpu")
    for name, tensor in saved.items():
        own = trainer.parameters[name.replace(".weight", ".default.weight")]
        torch.testing.assert_close(own.detach(), tensor.float(), atol=0, rtol=0)
    assert main(arguments(config, files, second, "--set", f'model.start="{first}"')) == 0
    facts = [json.loads((m / "training.json").read_text()) for m in (first, second)]
    assert str(first.parent) not in json.dumps(facts[1])
    assert facts[1]["started_from"]["curve"] == facts[0]["curve"]
    assert [p["pairs"] for p in continued(facts[1]["started_from"], facts[1]["curve"])] == [24, 48, 72, 96, 120, 144]
    third = continued(facts[1], [{"pairs": 24}])
    assert [p["pairs"] for p in third] == [24, 48, 72, 96, 120, 144, 168]
    assert facts[1]["curve"][0]["loss"] < facts[0]["curve"][0]["loss"]
    for change in ("model.rank=8", "model.alpha=4", 'model.modules=["q_proj"]'):
        name, _, value = change.partition("=")
        other = Config.read(config, {"model.start": str(first), name: value})
        with pytest.raises(UserError, match=r"model.start .* does not fit these settings"):
            LoraTrainer(other, Data(examples(14)), second, "cpu")


def test_the_bfloat16_run_keeps_its_adapter_in_float32(tmp_path, config, examples):
    trainer = trainer_of(config, tmp_path / "x", Data(examples(14)), dtype="bfloat16")
    losses = [trainer.run_step()["loss"] for _ in range(12)]
    assert losses[-1] < losses[0]
    assert {p.dtype for p in trainer.parameters.values()} == {torch.float32}
    frozen = [p for p in trainer.model.adapted.parameters() if not p.requires_grad]
    assert {p.dtype for p in frozen} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--set", "model.quantization=8bit"], "quantization 8bit needs a CUDA device"),
        (["--set", 'model.modules=["magic"]'], "model.modules names magic, which .* does not have: choose from down_"),
        (["--set", "training.dtype=float16"], "float16 loses small gradients: choose auto, bfloat16 or float32"),
        (["--set", "training.cutoff=20"], "none of 14 examples has at most 20 tokens"),
        (["--set", "model.start=nowhere"], "there is no adapter folder 'nowhere'"),
        (["--set", "steps"], "expected SECTION.KEY=VALUE"),
        (["--merge", "."], r"\. is there already: give --merge another folder"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, config, files, capsys, more, message):
    assert main(arguments(config, files, tmp_path / "out", *more)) == 2
    *_, told = capsys.readouterr().err.strip().splitlines()
    with pytest.raises(UserError, match=message):
        raise UserError(told)
    assert not (tmp_path / "out").exists()


def test_other_settings_do_not_go_on(tmp_path, config, files, capsys):
    output = tmp_path / "out"
    assert main(arguments(config, files, output, "--max-steps", "1")) == 0
    assert main(arguments(config, files, output, "--max-steps", "2")) == 2
    assert "holds a run with other settings or data: give another --output" in capsys.readouterr().err
    assert main(["--config", str(config), *files]) == 2
    assert "the adapter has no place: give --output DIR" in capsys.readouterr().err


def test_long_examples_are_told(tmp_path, config, files, capsys):
    trainer = trainer_of(config, tmp_path / "x", Data(read_examples([Path(files[1])])))
    cutoff = sorted(map(len, trainer.tokens))[6]
    more = ["--set", f"training.cutoff={cutoff}", "--max-steps", "1"]
    assert main(arguments(config, files, tmp_path / "out", *more)) == 0
    left_out = sum(len(t) > cutoff for t in trainer.tokens)
    assert f"left out, having over {cutoff} tokens: {left_out}," in capsys.readouterr().err
    assert json.loads((tmp_path / "out" / "training.json").read_text())["examples_too_long"] == left_out


def test_a_model_that_cannot_be_had_is_told_before_any_example_is_made(monkeypatch, capsys):
    monkeypatch.setattr("finetune.lora.__main__.data_of", lambda *arguments: pytest.fail("examples were made"))
    assert main(["--config", "lora-embedded", "--set", "model.llm=nobody/nothing", "--device", "cpu"]) == 2
    assert "'nobody/nothing' is no folder here" in capsys.readouterr().err


@pytest.mark.slow
def test_without_examples_the_sample_corpus_is_tried(tmp_path, tiny_llm, capsys):
    """With the real retriever over the real sample index."""
    more = ["--set", f"model.llm={tiny_llm('gemma3')}", "--set", 'data.languages=["de"]', "--set", "training.batch=4"]
    more += ["--set", "data.no_hints=0.0", "--output", str(tmp_path / "trial"), "--device", "cpu"]
    assert main(["--config", "lora-embedded", "--max-steps", "2", *more]) == 0
    assert "trying out on sentences of the sample corpus" in capsys.readouterr().err
    facts = json.loads((tmp_path / "trial" / "training.json").read_text())
    assert facts["examples"] == "sentences of the sample corpus, for trying out only"
    assert facts["curve"][-1]["dev"] > 0
    data = sample_data(Config.read(config_file("lora-embedded"), {"data.languages": '["de"]'}).data, "cpu")
    assert sum(bool(e.hints) for e in data.train) > 5
    assert not {e.pair.source for e in data.train} & {e.pair.source for e in data.dev}
    for example in [*data.train, *data.dev]:
        assert not any(nearly_equal(h.hit.sentence.text, example.pair.target) for h in example.hints)
