"""Settings of LoRA tuning."""

from __future__ import annotations

import pytest

from finetune.lora.config import Config
from rag_mt.base.errors import UserError
from rag_mt.base.settings import SHIPPED, changes_of


def test_the_defaults_are_those_of_the_paper(tmp_path):
    (tmp_path / "empty.toml").write_text("")
    for path in (tmp_path / "empty.toml", SHIPPED / "lora-llama2.toml"):
        config = Config.read(path)
        model, data, training = config.model, config.data, config.training
        assert (model.rank, model.alpha, model.dropout) == (16, 16, 0.05)
        assert model.modules == ("gate_proj", "up_proj", "down_proj")
        assert (training.steps, training.batch, training.micro, training.cutoff) == (100, 16, 2, 4096)
        assert (training.learning_rate, training.warm_up) == (4e-4, 10)
        assert (data.pairs, len(data.languages), data.no_hints) == (300, 6, 0)
    assert model.llm == "meta-llama/Llama-2-7b-hf"


def test_the_committed_configurations_are_valid():
    made = {path.stem: Config.read(path).model for path in SHIPPED.glob("lora-*.toml")}
    assert {"lora-embedded", "lora-memory", "lora-llama2"} <= made.keys()
    assert made["lora-embedded"].llm == made["lora-memory"].llm == "embedded:gemma-3-270m"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model.rank=0", "sets model.rank to 0: expected at least 1"),
        ("model.alpha=0", "sets model.alpha to 0: expected at least 1"),
        ("training.learning_rate=-1.0", "sets training.learning_rate to -1.0: expected a number above 0"),
        ("training.learning_rate=nan", "sets training.learning_rate to nan: expected a number above 0"),
        ("training.clip=0.0", "sets training.clip to 0.0: expected a number above 0"),
        ("training.weight_decay=-3.0", "sets training.weight_decay to -3.0: expected at least 0"),
        ("training.warm_up=-1", "sets training.warm_up to -1: expected at least 0"),
        ("data.fewest_words=-1", "sets data.fewest_words to -1: expected at least 0"),
        ("data.domain_weights={news=-1.0}", "expected weights of at least 0"),
        ("model.modules=[]", r"sets model.modules to \(\): expected names of layers"),
        ("training.batch=0", "sets training.batch to 0: expected at least 1"),
        ("training.steps=2.5", "sets training.steps to 2.5: expected a whole number, such as 100"),
        ("training.seed=true", "sets training.seed to True: expected a whole number, such as 1"),
        ("training.seed=-1", "sets training.seed to -1: expected 0 to 4294967295"),
        ("model.dropout=1", "sets model.dropout to 1: expected a share from 0 to below 1"),
        ("model.modules=['a', 1]", r"sets model.modules\[1\] to 1: expected a text$"),
        ('model.modules="a"', "sets model.modules to 'a': expected a list, such as"),
        ('model.quantization="2bit"', "sets model.quantization to '2bit': expected one of none, 8bit, 4bit, such as"),
        ('data.domain_weights={news="x"}', "sets data.domain_weights.news to 'x': expected a number$"),
        ("data.domain_weights=1", "sets data.domain_weights to 1: expected a table"),
        ("data.least_confidence=[true]", r"sets data.least_confidence\[0\] to True: expected a number$"),
        ("data.no_hints=2", "sets data.no_hints to 2: expected a share"),
        ("data.least_confidence=[0.9, 0.2]", "sets data.least_confidence to .*: expected two numbers"),
        ('data.languages=["en"]', "expected codes beside en"),
        ("data.magic=1", "sets data.magic, which does not exist: expected one of languages, held_out"),
        ("magic.data=1", r"no section \[magic\]"),
    ],
)
def test_impossible_settings(change, message):
    with pytest.raises(UserError, match=message):
        Config.read(SHIPPED / "lora-llama2.toml", changes_of([change]))


@pytest.mark.parametrize("text", ["training.steps", "steps=3"])
def test_a_change_of_another_form(text):
    with pytest.raises(UserError, match=r"expected SECTION.KEY=VALUE, such as training.steps=100"):
        changes_of([text])


def test_a_section_must_be_one(tmp_path):
    (tmp_path / "bad.toml").write_text("model = 3")
    with pytest.raises(UserError, match=r"no section \[model\]"):
        Config.read(tmp_path / "bad.toml")
    with pytest.raises(UserError, match=r"no configuration .*try --config lora-embedded"):
        Config.read(tmp_path / "none.toml")
