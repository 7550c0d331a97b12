"""Estimates of quality come with the translations, decide what is to be reviewed, and are told in files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rag_mt.base.quality import Estimate, is_faulty, is_sure
from rag_mt.base.types import Skips, TranslatedText
from rag_mt.cli.main import main
from rag_mt.formats.format import Side
from rag_mt.formats.registry import format_of
from rag_mt.translation.jobs import Counts, split_segments, translate_segments
from rag_mt.translation.review import HEAD, Review
from rag_mt.translation.translator import Translator
from tests.rag_mt.translation.test_findings import XLIFF, AnsweringLLM, filled, written

SCORES = {"The council meets.": 81.5, "Yes.": 62.0, "All is well.": 34.0}
TEXTS = ["Der Stadtrat tagt.", "Ja.", "Alles ist gut.", "Ja. Alles ist gut.", "Guten Tag, {name}!"]
XLIFF_2 = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="de" trgLang="en">
<file id="f"><unit id="u">
{}
</unit></file></xliff>
"""


class KnownEstimator:
    """Gives translations the scores of SCORES, and remembers how many it was asked for at once."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def estimate(self, pairs: Sequence[tuple[str, str]], said: object = None) -> list[Estimate]:
        self.asked.append(len(pairs))
        return [Estimate(SCORES.get(target, 90.0)) for _, target in pairs]


@pytest.fixture
def estimator(monkeypatch: pytest.MonkeyPatch) -> KnownEstimator:
    known = KnownEstimator()
    monkeypatch.setattr("rag_mt.quality.estimator.open_estimator", lambda **named: known)
    monkeypatch.setattr("rag_mt.quality.estimator.shared_estimator", lambda device, dtype: known)
    return known


def translator_of(min_quality: float | None = 70.0) -> Translator:
    return Translator("de", retriever="none", llm=AnsweringLLM(), wrapper="compact", max_new_tokens=24,
                      min_quality=min_quality)  # fmt: skip


def job(file: Path, min_quality: float | None = 70.0) -> tuple[list[TranslatedText], str, Counts]:
    form, counts = format_of(file), Counts()
    segments = split_segments(form.segments(file, Side("de", target="en"), Skips()), "de")
    texts = list(translate_segments(translator_of(min_quality), segments, counts))
    return texts, filled(file, texts, form).decode(), counts


def test_a_text_is_as_good_as_its_worst_sentence(estimator: KnownEstimator) -> None:
    texts = translator_of().translate_batch([*TEXTS, " \n"])
    scores = [None if text.estimate is None else text.estimate.score for text in texts]
    assert scores == [81.5, 62.0, 34.0, 34.0, 90.0, None]
    assert estimator.asked == [6], "all sentences are judged at once"
    found = [[f.message for f in text.findings if f.rule == "quality"] for text in texts]
    assert found == [
        [],
        *[[f"quality estimated as {told}"] for told in ("fair, 62 of 100", *["poor, 34 of 100"] * 2)],
        [],
        [],
    ]
    assert [is_sure(text) for text in texts] == [True, False, False, False, False, False]
    assert [is_faulty(text) for text in texts] == [False, True, True, True, True, False], "the last lost {name}"


def test_without_a_bound_nothing_is_judged(estimator: KnownEstimator) -> None:
    (text,) = translator_of(None).translate_batch(["Ja."])
    assert text.estimate is None and not estimator.asked and not text.findings
    assert not is_sure(text) and not is_faulty(text)


def test_a_stream_is_judged_too(estimator: KnownEstimator) -> None:
    pieces = translator_of().stream("Ja. Alles ist gut.")
    with pytest.raises(StopIteration) as end:
        while True:
            next(pieces)
    assert end.value.value.estimate == Estimate(34.0)


def test_what_failed_has_no_estimate(estimator: KnownEstimator) -> None:
    translator = translator_of()
    (made,) = translator.translate_batch(["Ja."])
    failed = replace(made.sentences[0], ok=False, estimate=None)
    assert translator.estimated([failed]) == [failed]


def test_json_lines_tell_the_lowest_estimate(estimator: KnownEstimator, tmp_path: Path) -> None:
    _, data, counts = job(written(tmp_path / "a.jsonl", TEXTS))
    records = [json.loads(line) for line in data.splitlines()]
    assert [record["quality"]["grade"] for record in records] == ["good", "fair", "poor", "poor", "good"]
    assert records[0]["quality"] == {"score": 81.5, "grade": "good"}
    assert counts.estimates == "estimated quality: 2 good, 1 fair, 2 poor"
    assert "quality" not in job(written(tmp_path / "b.jsonl", TEXTS), None)[1]


def test_states_of_xliff_1_tell_what_is_to_be_reviewed(estimator: KnownEstimator, tmp_path: Path) -> None:
    file = tmp_path / "a.xlf"
    units = [f'<trans-unit id="{n}"><source>{text}</source></trans-unit>' for n, text in enumerate(TEXTS)]
    file.write_text(XLIFF.format("\n".join(units)), encoding="utf-8")
    data = job(file)[1]
    states = [part.partition('"')[0] for part in data.split(' state="')[1:]]
    assert states == ["translated", *["needs-review-translation"] * 4]
    assert "quality estimated as poor, 34 of 100 [quality]</note>" in data
    assert 'state="translated"' not in job(file, None)[1]


def test_states_of_xliff_2_tell_what_is_to_be_reviewed(estimator: KnownEstimator, tmp_path: Path) -> None:
    file = tmp_path / "a.xlf"
    units = [f'<segment id="{n}"><source>{text}</source></segment>' for n, text in enumerate(TEXTS)]
    file.write_text(XLIFF_2.format("\n".join(units)), encoding="utf-8")
    data = job(file)[1]
    review = [line.count('subState="rag-mt:needs-review"') for line in data.splitlines() if "<segment" in line]
    assert review == [0, 1, 1, 1, 1] and data.count('state="translated"') == 5


def test_the_review_begins_with_the_worst(estimator: KnownEstimator, tmp_path: Path) -> None:
    file, form, review = written(tmp_path / "a.jsonl", TEXTS), format_of(tmp_path / "a.jsonl"), Review()
    segments = split_segments(form.segments(file, Side("de", target="en"), Skips()), "de")
    texts = list(review.watch(segments, translate_segments(translator_of(), segments, Counts())))
    assert len(texts) == len(TEXTS)
    review.write(tmp_path / "review.tsv")
    rows = list(csv.reader(io.StringIO((tmp_path / "review.tsv").read_text("utf-8")), "excel-tab"))
    assert rows[0] == list(HEAD)
    assert [row[1] for row in rows[1:]] == ["34.0", "34.0", "62.0", "90.0"]
    assert rows[1] == [f"{file}:3", "34.0", "poor", "quality estimated as poor, 34 of 100", TEXTS[2], "All is well."]
    assert rows[4][3] == "placeholder lost: {name}"


@pytest.mark.parametrize("wrong", ["great", "101", "-1", "nan"])
@pytest.mark.parametrize("command", [["translate", "--retriever", "none", "Ja."], ["check", "a.tsv"]])
def test_a_bound_that_is_none(
    wrong: str, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.tsv").write_text("Ja.\tYes.\n", encoding="utf-8")
    assert main([*command, "--src", "de", f"--min-quality={wrong}"]) == 2
    assert f"{wrong!r} is no quality: give good, fair or a number from 0 to 100" in capsys.readouterr().err


def test_a_check_finds_low_estimates(
    estimator: KnownEstimator, tmp_path: Path, capsys: pytest.CaptureFixture[str], make_pairs: Callable[[Path], None]
) -> None:
    make_pairs(tmp_path / "a.tsv")
    page = tmp_path / "page.html"
    command = ["check", str(tmp_path / "a.tsv"), "--src", "de", "--min-quality", "good", "--html", str(page)]
    assert main([*command, "--fail-on", "warning", "--column", "1", "--target-column", "2"]) == 1
    assert capsys.readouterr().out == (
        f"{tmp_path / 'a.tsv'}:2: warning: quality estimated as fair, 62 of 100 [quality]\n"
        f"{tmp_path / 'a.tsv'}:3: warning: quality estimated as poor, 34 of 100 [quality]\n"
    )
    assert "below what was asked for" in page.read_text("utf-8")


@pytest.fixture
def make_pairs() -> Callable[[Path], None]:
    pairs = [("Der Rat tagt.", "The council meets."), ("Ja.", "Yes."), ("Alles ist gut.", "All is well.")]
    return lambda path: path.write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8") and None
