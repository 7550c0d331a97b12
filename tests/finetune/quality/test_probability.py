"""The factors of what the language model says: those that made the data, and a folder with them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from eval.data.judgements import TENTHS, Judged, tenth
from finetune.quality import probability
from finetune.quality.probability import fitted, given, main
from rag_mt.base.errors import UserError
from rag_mt.base.quality import Said
from rag_mt.base.types import Sentence
from rag_mt.quality.estimator import open_estimator
from rag_mt.translation.translator import Translator

MEANS = {"en-de": (70.0, 0.6)}
TARGETS = ["Die Katze schläft.", "Das Haus ist alt und groß.", "Er kommt.", "Morgen wird es regnen.", "Die Datei"]


def test_the_factors_are_those_of_the_data() -> None:
    rng = np.random.default_rng(1)
    s, g = rng.normal(70, 10, 4000), rng.uniform(0.3, 0.9, 4000)
    columns = np.stack([s, g, 0.6 * s + 24 * g], axis=1)
    found = fitted([columns[:2000], columns[2000:] - [0, 0, 30]], MEANS)  # sets may differ in their means
    assert (found.llm, found.means) == ("embedded:gemma-3-270m", MEANS)
    assert found.per_probability == pytest.approx(24 / 0.6, rel=0.02) and found.per_score == pytest.approx(0, abs=0.02)
    with pytest.raises(UserError, match="there are 49 assessments and 1 directions of 50 outputs with a logprob"):
        fitted([columns[:49]], MEANS)
    with pytest.raises(UserError, match="the estimates do not rise with what people gave"):
        fitted([columns * [-1, 1, 1]], MEANS)


def test_translations_by_others_are_as_likely_as_the_model_finds_them(tiny_llm: Callable[..., Path]) -> None:
    translator = Translator("de", "en", retriever="none", llm=str(tiny_llm()), engine="transformers", dtype="float32")
    rows = [Judged("Das Haus ist alt.", "The house is old.", 1.0), Judged("Ja", "Yes, that is how it is", 1.0)]
    llm, model = translator.llm, translator.llm.model  # type: ignore[attr-defined]
    for row, likely in zip(rows, given(translator, rows), strict=True):
        prompt = translator.prompts.build(Sentence(row.source, "de"), ())
        asked, whole = llm.encode(prompt), llm.encode(prompt, row.target)  # type: ignore[attr-defined]
        ids = torch.tensor([whole])
        with torch.no_grad():
            told = model(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[len(asked) - 1 :]
        assert likely == pytest.approx(float(told.mean()), abs=1e-4)


@pytest.mark.slow
def test_an_estimator_is_written_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(probability, "Translator", lambda *settings, llm, **loading: SimpleNamespace(llm=llm))
    monkeypatch.setattr(probability, "given", lambda translator, rows: [row.mean / 100 - 1 for row in rows])
    (tmp_path / "quality").mkdir()
    sources = [f"The cat sleeps {'in the old house ' * (number % 4)}{number}." for number in range(90)]
    pairs = [(source, TARGETS[number % 5]) for number, source in enumerate(sources)]
    scores = [estimate.score for estimate in open_estimator(dtype="float32").estimate(pairs)]
    lines = [f"{source}\t{target}\t0.0\t{score}" for (source, target), score in zip(pairs, scores, strict=True)]
    judged = "\n".join(["src\tmt\tz_mean\tmean", *lines])
    (tmp_path / "quality" / "mlqe-da.en-de.dev.tsv").write_text(judged + "\n", encoding="utf-8")
    rows = [{"direction": "en-de", "source": s, "target": t, "chrf": 1.0, "logprob": math.log(0.5)} for s, t in pairs]
    outputs, output = tmp_path / "outputs.jsonl", tmp_path / "fitted"
    outputs.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    command = ["--data", str(tmp_path), "--outputs", str(outputs), "--output", str(output), "--dtype", "float32"]
    assert main(command) == 0
    assert "da.en-de.dev: 90 translations, r 1.000 alone, 1.000 with probability" in capsys.readouterr().out
    written = json.loads((output / "quality.json").read_text())["probability"]
    learnt = [score for (source, _), score in zip(pairs, scores, strict=True) if tenth(source) in TENTHS["train"]]
    assert written["means"] == {"en-de": [pytest.approx(np.mean(learnt), abs=0.01), 0.5]}
    sure, unsure = open_estimator(str(output)).estimate(pairs[:1] * 2, Said(written["llm"], "en-de", [-0.1, -0.9]))
    assert (sure.score > unsure.score) == (written["per_probability"] > 0)
    assert main(command) == 2
    assert "is there already: give another folder" in capsys.readouterr().err
