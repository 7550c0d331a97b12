"""The figures of the documentation: the committed ones are those of the committed numbers, and numbers become what is
drawn."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from eval.figures import architecture, gains, speeds
from eval.figures.__main__ import FIGURES, MEASURED, NUMBERS, drawn, main
from eval.report.runs import ReportRun, Runs
from eval.translation.records import Record
from rag_mt.base.errors import UserError
from rag_mt.base.types import Completion, Hint, Hit, Sentence, Span, Translation

ROOT = Path(__file__).parents[3]
SPEEDS = {
    "llm": "small",
    "dtype": "float32",
    "device": "cpu",
    "threads": 2,
    "results": [
        {"engine": "Hugging Face generate", "batch": 1, "tokens_per_second": 10.0},
        {"engine": "rag_mt", "batch": 16, "tokens_per_second": 80.0},
    ],
}


def texts(svg: str) -> list[str]:
    """All that can be read in a figure."""
    return [text for element in ElementTree.fromstring(svg).iter() if (text := (element.text or "").strip())]


def parts(svg: str) -> list[tuple[str, int]]:
    """The elements of a figure, each with how many attributes it has."""
    return [(element.tag, len(element.attrib)) for element in ElementTree.fromstring(svg).iter()]


def test_the_committed_figures_are_those_of_the_committed_numbers() -> None:
    figures = drawn(ROOT / NUMBERS)
    committed = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / FIGURES).glob("*.svg")}
    assert figures.keys() == committed.keys(), "draw them again: python -m eval.figures"
    for name, svg in figures.items():
        assert texts(svg) == texts(committed[name]), f"draw {name} again: python -m eval.figures"
        assert parts(svg) == parts(committed[name]), f"draw {name} again: python -m eval.figures"


def test_the_same_numbers_give_the_same_bytes_and_other_numbers_others() -> None:
    assert speeds.draw(SPEEDS) == speeds.draw(SPEEDS)
    results = [SPEEDS["results"][0], {**SPEEDS["results"][1], "tokens_per_second": 40.0}]  # type: ignore[index]
    assert speeds.draw(SPEEDS | {"results": results}) != speeds.draw(SPEEDS)
    assert "80  (8.0 x)" in texts(speeds.draw(SPEEDS))


def test_a_figure_has_the_colour_of_its_page() -> None:
    for svg in (architecture.draw(), speeds.draw(SPEEDS), gains.draw(gains.gains_of(runs_of(40)))):
        assert "prefers-color-scheme:dark" in svg and not re.search(r"fill: #(fff|ffffff)\b", svg), "no background"
        lines = re.findall(r"<text [^>]*>", svg)
        assert lines and all("fill: currentColor" in line for line in lines), "no text in a colour of its own"
    assert {title for title, _, _ in architecture.STEPS} <= {*texts(architecture.draw())}


def test_the_architecture_names_folders_that_exist() -> None:
    for _, _, folder in architecture.STEPS:
        assert (ROOT / folder).is_dir(), folder


def run(system: str, outputs: list[str], scores: list[float | None]) -> ReportRun:
    records = []
    for output, score in zip(outputs, scores, strict=True):
        hit = Hit(Sentence("the bridge", "en"), Span(0, 10), score or 0)
        hints = () if score is None else (Hint(Span(0, 5), hit),)
        translation = Translation(Sentence("Die Brücke", "de"), output, hints, used=(False,) * len(hints))
        records.append(Record(translation, "the old bridge", 1, Completion(output, 3, True)))
    settings = {"retriever": "none" if system == "plain" else "ccpr", "llm": "embedded:small"}
    facts = {"suite": "sample", "label": "", "settings": settings}
    return ReportRun(system, "de-en", "en", facts, tuple(records), {}, len(records), len(records))


def runs_of(number: int) -> Runs:
    """Hints of a low score make outputs worse, those of a high one make them right."""
    scores: list[float | None] = [n / number for n in range(number)]
    better = ["the old bridge" if n >= number // 2 else "none" for n in range(number)]
    both = (run("plain", ["the old ridge"] * (number + 5), [None] * (number + 5)),)
    both += (run("ccpr", [*better, *["the old ridge"] * 5], [*scores, *[None] * 5]),)
    places = {(own.system, own.direction): own for own in both}
    commands = [{"command": "python -m eval.translation", "seconds": 1}]
    return Runs(("plain", "ccpr"), {"to_en": ["de-en"]}, (), places, commands)


def test_gains_go_by_the_score_of_the_best_hint() -> None:
    numbers = gains.gains_of(runs_of(40))
    system = numbers["systems"]["ccpr"]
    bins = system["bins"]
    assert system["scores"] == "confidence" and numbers["sentences"] == 45
    assert [own["sentences"] for own in bins] == [10] * 4, "sentences without hints are in none"
    assert all(own["gain"] < 0 for own in bins[:2]) and all(own["gain"] > 0 for own in bins[2:])
    assert all(own["low"] <= own["gain"] <= own["high"] and own["from"] <= own["score"] <= own["to"] for own in bins)
    shown = texts(gains.draw(json.loads(json.dumps(numbers))))
    assert "ccpr" in shown and shown.count("n=10") == 4 and "confidence of the best hint" in shown


def test_too_few_sentences_have_no_gain() -> None:
    with pytest.raises(UserError, match="no 10 sentences with hints"):
        gains.gains_of(runs_of(9))


def test_only_what_has_numbers_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "numbers"
    folder.mkdir()
    options = ["--numbers", str(folder), "--output", str(tmp_path / "figures")]
    (folder / "speed-by-engine.json").write_text(json.dumps(SPEEDS))
    assert main(options) == 0
    assert {path.stem for path in (tmp_path / "figures").iterdir()} == {"architecture", "speed-by-engine"}
    assert "gain-by-similarity is not drawn" in capsys.readouterr().err
    (folder / "speed-by-engine.json").write_text("{}")
    assert main(options) == 2
    assert "speed-by-engine.json has no numbers" in capsys.readouterr().err
    assert MEASURED.keys() == {"speed-by-engine", "gain-by-similarity"}
