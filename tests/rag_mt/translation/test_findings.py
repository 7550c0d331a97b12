"""What the checks find in translations is told with them, and is what `rag-mt check` finds in the written file."""

from __future__ import annotations

import io
import json
import re
from contextlib import closing
from pathlib import Path

import pytest

from rag_mt.base.findings import Finding
from rag_mt.base.terms import Term
from rag_mt.base.types import Prompt, Skips, TranslatedText
from rag_mt.cli.main import main
from rag_mt.formats.format import Format, Side
from rag_mt.formats.registry import format_of
from rag_mt.glossary.glossary import Glossary
from rag_mt.translation.jobs import Counts, Echo, split_segments, stream_segments, translate_segments
from rag_mt.translation.journal import Journal
from rag_mt.translation.translator import Translator
from tests.ui.conftest import RuleLLM

ANSWERS = {
    "Das Museum öffnet um 19.30 Uhr.": "The museum opens at 9.30 <pm>.",
    "Wo ist der Bahnhof?": "Where is the the station.",
    "Guten Tag, {name}!": "Good day!",
    "Der Stadtrat tagt.": "The council meets.",
    "Ja.": "Yes.",
    "ja.": "Yeah.",
    "Alles ist gut.": "All is well.",
}
TEXTS = [*ANSWERS, "Ja. Alles ist gut.", "Das Museum öffnet um 19.30 Uhr."]
XLIFF = """<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2">
<file original="a" source-language="de" target-language="en" datatype="plaintext"><body>
{}
</body></file></xliff>
"""
GLOSSARY = "de,en\nStadtrat,assembly\n"


class AnsweringLLM(RuleLLM):
    """Answers with ANSWERS, also where it is asked again; stops for good after so many answers."""

    def __init__(self, stops_after: int = 100) -> None:
        super().__init__()
        self.left = stops_after

    def _answer(self, prompt: Prompt) -> list[str]:
        self.left -= 1
        if self.left < 0:
            raise StoppedError
        if prompt.begun:
            return [" 77 {more} council"]
        (source,) = re.findall(r"German: (.*)\nEnglish:\Z", prompt.text)
        return [f" {ANSWERS[source]}"]


class StoppedError(Exception):
    """The model says no more."""


def translator_of(llm: RuleLLM | None = None) -> Translator:
    terms = Glossary("de", "en", (Term("Stadtrat", "de", "en", ("assembly",)),))
    return Translator("de", retriever="none", llm=llm or AnsweringLLM(), wrapper="compact", glossary=terms,
                      max_new_tokens=24)  # fmt: skip


def written(file: Path, texts: list[str]) -> Path:
    """A file of some format with the texts."""
    if file.suffix == ".jsonl":
        file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    else:
        units = [f'<trans-unit id="{n}"><source>{text}</source></trans-unit>' for n, text in enumerate(texts)]
        file.write_text(XLIFF.format("\n".join(units)), encoding="utf-8")
    return file


def filled(file: Path, texts: list[TranslatedText], form: Format) -> bytes:
    out = io.BytesIO()
    form.fill(file, Side("de", target="en"), iter(texts), out)
    return out.getvalue()


def job(
    translator: Translator, file: Path, journal: Journal | None = None
) -> tuple[list[TranslatedText], bytes, Counts]:
    """The translations of a file, the file with them, and what was counted."""
    form, counts = format_of(file), Counts()
    segments = split_segments(form.segments(file, Side("de", target="en"), Skips()), "de")
    texts = list(translate_segments(translator, segments, counts, journal))
    return texts, filled(file, texts, form), counts


def test_findings_are_about_the_whole_text() -> None:
    one, two, three = translator_of().translate_batch(["Wo ist der Bahnhof?", "Ja. Alles ist gut.", " \n"])
    assert one.findings == (
        Finding("repeated", "warning", "said twice: the"),
        Finding("ends", "warning", "ends with a full stop, the source with a question mark"),
    )
    assert two.findings == three.findings == ()
    (none,) = translator_of().translate_batch(["Ja."])
    assert none.sentences[0].notes == ()


@pytest.mark.parametrize("suffix", ["jsonl", "xlf"])
def test_a_check_of_the_written_file_finds_the_same(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = written(tmp_path / f"a.{suffix}", TEXTS), tmp_path / f"out.{suffix}"
    texts, data, counts = job(translator_of(), source)
    output.write_bytes(data)
    (tmp_path / "terms.csv").write_text(GLOSSARY, encoding="utf-8")
    assert main(["check", str(output), "--src", "de", "--tgt", "en", "--glossary", str(tmp_path / "terms.csv")]) == 1
    told = [line.split(": ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    expected = [str(finding) for text in texts for finding in text.findings]
    assert re.sub(r"\(\S+:\d+\)", "()", "\n".join(told)) == re.sub(r"\(\S+:\d+\)", "()", "\n".join(expected))
    assert {finding.rule for text in texts for finding in text.findings} == {
        "numbers", "placeholders", "repeated", "ends", "terms", "inconsistent",
    }  # fmt: skip
    assert counts.found.total() == len(expected) and counts.wrong == 5
    assert counts.errors[0] == f"{source}:{texts[0].sentences[0].source.source.line}: {expected[0]}"


def test_json_lines_and_notes_tell_them(tmp_path: Path) -> None:
    lines = written(tmp_path / "a.jsonl", TEXTS)
    records = [json.loads(line) for line in job(translator_of(), lines)[1].decode().splitlines()]
    assert records[0]["findings"][0] == {
        "rule": "numbers",
        "severity": "error",
        "message": "number changed: 19.30 → 9.30",
    }
    assert "findings" not in records[4] and records[0]["notes"] == []
    (again,) = records[5]["findings"]
    assert again["message"] == "translated before as 'Yes.' (a.jsonl:5)", "a file tells no folder"
    units = written(tmp_path / "a.xlf", TEXTS)
    told = job(translator_of(), units)[1].decode()
    assert '<note from="rag-mt check" annotates="target">error: number changed: 19.30 → 9.30 [numbers]</note>' in told


@pytest.mark.parametrize("stop", [3, 5, 8])
def test_an_interrupted_job_tells_the_same(stop: int, tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", TEXTS)
    whole = job(translator_of(), file)[1]
    with closing(Journal(tmp_path / "journal", {})) as journal, pytest.raises(StoppedError):
        job(translator_of(Single(stop)), file, journal)
    with closing(Journal(tmp_path / "journal", {})) as journal:
        assert 0 < journal.resumed < len(ANSWERS)
        assert job(translator_of(Single()), file, journal)[1] == whole


class Single(AnsweringLLM):
    """Answers one prompt after the other."""

    def answer(self, queue, max_new_tokens=256):  # type: ignore[no-untyped-def]
        first = 0
        while prompts := queue.take(1):
            for _ in self.round(queue, prompts, first, max_new_tokens):
                yield
            first += 1


def test_streams_tell_the_same(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", TEXTS)
    segments = split_segments(format_of(file).segments(file, Side("de", target="en"), Skips()), "de")
    counts, expected = Counts(), job(translator_of(), file)
    texts = list(stream_segments(translator_of(), segments, Echo(io.BytesIO()), counts))
    assert [text.findings for text in texts] == [text.findings for text in expected[0]]
    assert counts == expected[2]
