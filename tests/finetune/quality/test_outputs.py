"""Translations that the estimator learns from: all directions, scored by their reference, gone on with after a stop."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from eval.data.domains import DOMAINS
from finetune.quality import outputs
from rag_mt.base.console import INTERRUPTED
from rag_mt.base.types import Prompt
from tests.finetune.conftest import WORDS
from tests.ui.conftest import RuleLLM


class Counted(RuleLLM):
    """Answers in capitals; `left` prompts at most are answered before it stops."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left, self.asked = left, 0

    def _answer(self, prompt: Prompt) -> list[str]:
        self.asked += 1
        if self.asked > self.left:
            raise KeyboardInterrupt
        return super()._answer(prompt)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "train").mkdir()
    (tmp_path / "domains").mkdir()
    rng, lines = random.Random(1), []
    for number in range(300):
        words = [rng.choice(WORDS) for _ in range(5)]
        lines.append(f"{' '.join(words)} {number}\t{' '.join(word[::-1] for word in words)} {number}\tnews\tmade")
    (tmp_path / "train" / "de-en.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for domain in DOMAINS:
        (tmp_path / "domains" / f"{domain}.excluded.txt").write_text("left out\n", encoding="utf-8")
    return tmp_path


def test_a_stopped_run_goes_on_and_every_pair_is_scored(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = data / "out.jsonl"
    command = ["--config", "lora-memory", "--data", str(data), "--pairs", "4", "--output", str(output)]
    command += ["--set", 'data.languages=["de"]']
    stopped = Counted(6)
    monkeypatch.setattr(outputs, "DEFAULT_LLM", stopped)
    assert outputs.main(command) == INTERRUPTED and not output.exists()
    again = Counted(99)
    monkeypatch.setattr(outputs, "DEFAULT_LLM", again)
    assert outputs.main(command) == 0
    rows = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert [row["direction"] for row in rows] == ["de-en"] * 4 + ["en-de"] * 4
    assert all(row["target"] == row["source"].upper() and 0 <= row["chrf"] < 100 for row in rows)
    assert again.asked <= 4 and not list(data.glob("*.rag-mt-journal")), "the first direction was kept"
