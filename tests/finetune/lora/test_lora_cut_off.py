"""The loss with and without hints is that of the trainer on the same examples."""

from __future__ import annotations

from dataclasses import replace

from finetune.lora.__main__ import main as tune
from finetune.lora.config import Config
from finetune.lora.cut_off import above, main
from finetune.lora.data import Data
from finetune.lora.examples import write_examples
from finetune.lora.train import LoraTrainer

CONFIG = """
[model]
llm = "{llm}"
rank = 2
modules = ["q_proj"]
[training]
steps = 2
batch = 2
dtype = "float32"
"""


def test_the_losses_are_the_trainers(tmp_path, tiny_llm, examples, capsys):
    config, dev, adapter = tmp_path / "config.toml", tmp_path / "dev.jsonl", tmp_path / "adapter"
    config.write_text(CONFIG.format(llm=tiny_llm()))
    own = examples(9)
    scores = [0.2, 0.9, 0.9]
    own = [
        replace(e, hints=tuple(replace(h, hit=replace(h.hit, score=s)) for h, s in zip(e.hints, scores, strict=False)))
        for e in own
    ]
    write_examples(dev, own)
    assert tune(["--config", str(config), "--examples", str(dev), "--output", str(adapter), "--device", "cpu"]) == 0
    capsys.readouterr()
    arguments = [str(adapter), str(adapter), "--config", str(config), "--dev", str(dev), "--device", "cpu"]
    assert main([*arguments, "--cut-offs", "0.1,0.5"]) == 0
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    with_hints = [e for e in own if e.hints]
    expected = []
    for least in (2.0, 0.1, 0.5):
        shown = above(with_hints, least)
        settings = Config.read(config, {"model.start": str(adapter)})
        loss = LoraTrainer(settings, Data(own[:1], shown), tmp_path / "unused", "cpu").evaluate()["dev"]
        expected.append((str(sum(len(e.hints) for e in shown)), f"{loss:.4f}"))
    assert [(row[2], row[3]) for row in rows] == 2 * expected, "of both adapters"
    assert {row[0] for row in rows} == {"| adapter"}
    assert len({loss for _, loss in expected}) == 3


def test_mistakes_are_told(tmp_path, examples, capsys):
    dev = tmp_path / "dev.jsonl"
    write_examples(dev, above(examples(5), 2.0))
    arguments = ["nowhere", "--config", "lora-embedded", "--dev", str(dev)]
    assert main(arguments) == 2
    assert "has no example with hints" in capsys.readouterr().err
    assert main([*arguments, "--cut-offs", "x"]) == 2
    assert "are no numbers" in capsys.readouterr().err
