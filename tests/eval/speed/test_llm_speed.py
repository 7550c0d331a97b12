"""`eval.speed.llm`: engines in processes of their own, their ratios, and what is written."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from eval.figures import speeds
from eval.speed.engines import DECODER, ENGINES, GENERATE, LLAMACPP, System, Worker
from eval.speed.llm import adapter_of, batch_sizes, engine_names, main, ratios, translation_prompts
from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json
from rag_mt.base.types import Prompt
from tests.rag_mt.llama_server import save_tiny


@pytest.mark.slow
def test_engines_are_compared(random_llm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--llm", str(random_llm), "--engines", "generate,transformers", "--batch", "2", "--prompts", "2"]
    options += ["--rounds", "1", "--max-new-tokens", "3", "--dtype", "float32", "--output", str(tmp_path / "out.json")]
    assert main(options) == 0
    told = capsys.readouterr().out
    assert re.search(r"generate, batch 1 +float32 +[\d.]+ +[\d.]+ +1\.00 x +- +[\d.]+ x", told)
    assert re.search(r"by transformers, batch 2 .* 1\.00 x +1\.00 x .* 2 of 2$", told, re.MULTILINE)
    written = read_json(tmp_path / "out.json")
    weights = sum(file.stat().st_size for file in random_llm.iterdir())
    for row in written["results"]:
        assert row["tokens"] == 6 and row["file_bytes"] == weights and row["as_first"] == 2
        assert row["peak_bytes"] > 100e6 and row["load_seconds"] > 0
        assert row["tokens_per_cpu_second"] > 0
    assert "rag_mt by transformers, batch 2" in speeds.draw(written)


def test_llama_cpp_answers_in_its_own_process(tmp_path: Path) -> None:
    gguf = save_tiny(tmp_path)
    prompts = [Prompt("Wir gehen."), Prompt("Das Haus ist alt.")]
    with Worker(System(LLAMACPP, 2, str(gguf)), prompts, 5) as worker:
        answers = worker.answer()
        assert [0 < answer.tokens <= 5 for answer in answers] == [True, True]
        assert worker.loaded.file_bytes == gguf.stat().st_size
        assert worker.loaded.prompt_tokens == [len(prompt.text) for prompt in prompts], "its tokens are bytes"
        assert worker.peak() > 10e6


def test_what_cannot_be_opened_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.gguf"):
        Worker(System(LLAMACPP, 1, str(tmp_path / "none.gguf")), [Prompt("Wir gehen.")], 1)


def test_ratios_are_to_generate_and_to_the_decoder_at_this_and_its_best_batch() -> None:
    measured = [(GENERATE, 1, 10.0), (DECODER, 1, 20.0), (DECODER, 16, 80.0), (LLAMACPP, 1, 40.0), (LLAMACPP, 8, 60.0)]
    rows = [{"engine": ENGINES[engine], "batch": n, "tokens_per_second": rate} for engine, n, rate in measured]
    assert ratios(rows, rows[3]) == [4, 2, 0.5]
    assert ratios(rows, rows[4]) == [6, None, 0.75]


def test_lists_and_adapters_that_do_not_exist_are_refused() -> None:
    assert batch_sizes("1,16") == [1, 16] and engine_names("llamacpp, generate") == [LLAMACPP, GENERATE]
    with pytest.raises(argparse.ArgumentTypeError, match="'1,x' is no list of batch sizes"):
        batch_sizes("1,x")
    with pytest.raises(argparse.ArgumentTypeError, match="'vllm' is no engine: choose from generate"):
        engine_names("generate,vllm")
    with pytest.raises(UserError, match="no adapter comes with some-model"):
        adapter_of("auto", "some-model")
    assert adapter_of("folder", "some-model") == "folder" and adapter_of(None, "some-model") is None


def test_the_shipped_adapter_has_prompts_of_its_own() -> None:
    folder = adapter_of("auto", "embedded:gemma-3-270m")
    assert folder is not None and Path(folder).name == "gemma-3-270m"
    few_shot, compact = translation_prompts(1), translation_prompts(1, "compact")
    assert len(compact[0].text) < len(few_shot[0].text)
