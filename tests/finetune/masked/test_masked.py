"""An encoder on text alone: exact resuming, what is hidden, that it learns and opens, and what is refused."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from finetune.masked.__main__ import main
from finetune.masked.config import Config
from finetune.masked.text import MASK, SPECIAL, draw, read_texts, shares
from finetune.masked.train import MaskedTrainer
from rag_mt.base.errors import UserError
from retrievers.encoders.encoder import open_encoder
from tests.finetune.conftest import WORDS

CONFIG = """
[model]
layers = 2
hidden = 32
heads = 2
vocabulary = 300
dropout = {dropout}
[data]
max_tokens = 24
dev_sentences = 20
vocabulary_sentences = 500
[training]
steps = {steps}
batch = 16
learning_rate = 5e-3
evaluate_every = 4
checkpoint_every = 2
dtype = "float32"
"""


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two "languages" in which a sentence says one word again and again, so that a hidden one can be told."""
    folder, rng = tmp_path_factory.mktemp("texts"), random.Random(5)
    paths = [folder / "xa.txt", folder / "xb.txt"]
    for path, count in zip(paths, (400, 100), strict=True):
        words = WORDS if path.name == "xb.txt" else [word[::-1] for word in WORDS]
        lines = [" ".join([rng.choice(words)] * 6 + [str(number)]) for number in range(count)]
        path.write_text("\n".join(lines) + "\n")
    return paths


def run(texts: list[Path], output: Path, *arguments: str, steps: int = 4, dropout: float = 0.1) -> int:
    config = output.parent / "config.toml"
    config.write_text(CONFIG.format(steps=steps, dropout=dropout))
    given = ["--config", str(config), "--text", *map(str, texts), "--output", str(output), "--device", "cpu"]
    return main([*given, *arguments])


def trainer(texts: list[Path], output: Path, steps: int = 4, dropout: float = 0.1) -> MaskedTrainer:
    config = output.parent / "config.toml"
    config.write_text(CONFIG.format(steps=steps, dropout=dropout))
    return MaskedTrainer(Config.read(config), texts, output, "cpu")


def test_a_stopped_run_ends_as_one_that_was_not(texts, tmp_path, capsys, monkeypatch) -> None:
    assert run(texts, tmp_path / "whole") == 0, capsys.readouterr().err

    class StopError(Exception):
        pass

    steps = MaskedTrainer.run_step

    def stop(self: MaskedTrainer, batch: object = None) -> dict[str, float]:
        if self.step == 3:
            raise StopError
        return steps(self, batch)  # type: ignore[arg-type]

    with monkeypatch.context() as patch, pytest.raises(StopError):
        patch.setattr(MaskedTrainer, "run_step", stop)
        run(texts, tmp_path / "stopped")
    assert run(texts, tmp_path / "stopped") == 0
    whole, stopped = (open_encoder(str(tmp_path / n), "cpu", "float32") for n in ("whole", "stopped"))
    sentences = ["one two three", texts[0].read_text().splitlines()[0]]
    np.testing.assert_array_equal(whole.encode(sentences), stopped.encode(sentences))
    facts = json.loads((tmp_path / "stopped/training.json").read_text())
    assert facts["sentences_seen"] == 64
    assert set(facts["texts"]) == {"xa.txt", "xb.txt"}
    assert [point["step"] for point in facts["curve"]] == [4]


def test_it_learns_and_opens_as_any_encoder(texts, tmp_path) -> None:
    own = trainer(texts, tmp_path / "out", steps=200, dropout=0.0)
    before = own.evaluate()["average"]
    losses = [own.run_step()["masked"] for _ in range(200)]
    assert np.mean(losses[-10:]) < 0.6 * np.mean(losses[:10])
    assert own.evaluate()["average"] > before + 20
    own.save()
    encoder = open_encoder(str(own.output), "cpu", "float32")
    assert encoder.layers == 2
    (states,) = list(encoder.states(["xyz " + WORDS[0]], 2))
    assert states.states.shape[1] == 32
    assert states.offsets[-1].tolist()[1] == len("xyz " + WORDS[0])


def test_what_is_hidden(texts, tmp_path) -> None:
    own = trainer(texts, tmp_path / "out")
    tokenizer = own.tokenizer
    hidden = marks = kept = shown = 0
    for step in range(60):
        batch = own.batch(step)
        labels, ids = batch["labels"], batch["input_ids"]
        at = labels >= 0
        hidden, shown = hidden + int(at.sum()), shown + int((batch["attention_mask"] * (ids > 2)).sum())
        marks += int((ids[at] == tokenizer.convert_tokens_to_ids(MASK)).sum())
        kept += int((ids[at] == labels[at]).sum())
        special = torch.tensor(tokenizer.convert_tokens_to_ids(list(SPECIAL)))
        assert not torch.isin(labels[at], special).any(), "marks of begin, end and filling are never asked"
    assert hidden / shown == pytest.approx(0.15, abs=0.02)
    assert marks / hidden == pytest.approx(0.8, abs=0.05)
    assert kept / hidden == pytest.approx(0.1, abs=0.04)
    again, other = own.batch(7), own.batch(8)
    assert torch.equal(again["input_ids"], own.batch(7)["input_ids"])
    assert again["input_ids"].shape != other["input_ids"].shape or not torch.equal(
        again["input_ids"], other["input_ids"]
    )


def test_small_texts_are_drawn_more_often_than_their_share(texts) -> None:
    own = read_texts(texts, 20, seed=1)
    assert [len(text.sentences) for text in own] == [380, 80]
    assert not set(own[0].dev) & set(own[0].sentences)
    weights = shares(own, 0.7)
    assert weights.tolist() == pytest.approx([380**0.7 / (380**0.7 + 80**0.7), 80**0.7 / (380**0.7 + 80**0.7)])
    drawn = draw(own, weights, 4000, np.random.default_rng(1))
    small = set(own[1].sentences)
    assert sum(text in small for text in drawn) / 4000 == pytest.approx(weights[1], abs=0.03)
    assert len(set(drawn)) > 440, "any place of a text"


def test_mistakes_are_one_sentence(texts, tmp_path, capsys) -> None:
    short = tmp_path / "short.txt"
    short.write_text("one\ntwo\ntwo\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / texts[0].name).write_text("one\n")
    for files, arguments, message in (
        ([short], (), "short.txt has 2 different sentences"),
        ([tmp_path / "none.txt"], (), "none.txt"),
        ([texts[0], tmp_path / "other" / texts[0].name], (), "two texts are called xa.txt"),
        (texts, ("--set", "model.heads=3"), "model.hidden is 32: expected a multiple of model.heads"),
        (texts, ("--set", "model.vocabulary=10"), "expected at least 300"),
        (texts, ("--set", "data.masked=1.0"), "expected a share between 0 and 1"),
    ):
        assert run(files, tmp_path / "out", *arguments) == 2
        error = capsys.readouterr().err
        assert message in error
        assert "Traceback" not in error
    assert run(texts, tmp_path / "out") == 0
    capsys.readouterr()
    assert run(texts, tmp_path / "out", "--set", "training.seed=2") == 2
    assert "holds a run with other settings or data" in capsys.readouterr().err


def test_lines_that_cannot_be_read_are_counted(tmp_path, caplog) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(b"one two\n\xff\xfe\nthree  four \n\nfive\n")
    (text,) = read_texts([path], 1, seed=1)
    assert sorted([*text.sentences, *text.dev]) == ["five", "one two", "three four"]
    assert "skipped 1 lines" in caplog.text
    with pytest.raises(UserError, match="3 different sentences"):
        read_texts([path], 3, seed=1)
