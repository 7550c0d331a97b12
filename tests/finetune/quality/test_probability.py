"""The factors of what the language model says: those that made the data, and a folder with them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from eval.data.judgements import TENTHS, tenth
from finetune.quality.probability import main
from rag_mt.base.quality import Said
from rag_mt.quality.estimator import open_estimator


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    """Translations whose chrF is 0.4 of the estimate and 60 of the probability, more in one direction; of another
    direction there are too few, and in the test part the chrF is another one."""
    rng, rows = np.random.default_rng(1), []
    targets = ["Die Katze schläft.", "Das Haus ist alt und groß.", "Er kommt.", "Morgen wird es regnen.", "Die Datei"]
    for number in range(240):
        direction = ["en-de", "en-cs", "en-fi"][number % 3 if number < 30 else number % 2]
        source = f"The cat sleeps {'in the old house ' * (number % 4)}{number}."
        rows.append({"direction": direction, "source": source, "target": str(rng.choice(targets))})
    scores = [e.score for e in open_estimator(dtype="float32").estimate([(r["source"], r["target"]) for r in rows])]
    for row, score in zip(rows, scores, strict=True):
        probability = float(rng.uniform(0.4, 1))
        row["logprob"] = math.log(probability)
        row["chrf"] = 0.4 * score + 60 * probability - (20 if row["direction"] == "en-de" else 0)
        if tenth(row["source"]) not in TENTHS["train"]:
            row["chrf"] = float(rng.uniform(0, 100))
    path = tmp_path / "outputs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_the_factors_are_those_of_the_data(outputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "fitted"
    command = ["--outputs", str(outputs), "--output", str(output), "--dtype", "float32"]
    assert main(command) == 0
    fitted = json.loads((output / "quality.json").read_text())["probability"]
    assert sorted(fitted["means"]) == ["en-cs", "en-de"] and fitted["llm"] == "embedded:gemma-3-270m"
    assert (1 + fitted["per_score"]) / fitted["per_probability"] == pytest.approx(0.4 / 60, rel=0.02)
    estimator = open_estimator(str(output))
    pair = ("The cat sleeps.", "Die Katze schläft.")
    sure, unsure = estimator.estimate([pair] * 2, Said(fitted["llm"], "en-de", [math.log(0.9), math.log(0.5)]))
    assert sure.score > unsure.score
    assert main(command) == 2
    assert "is there already: give another folder" in capsys.readouterr().err


def test_outputs_without_it_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "outputs.jsonl"
    path.write_text('{"direction": "en-de", "source": "a", "target": "b", "chrf": 1.0}\n', encoding="utf-8")
    assert main(["--outputs", str(path), "--output", str(tmp_path / "x")]) == 2
    assert "no direction has 20 translations with a logprob" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
