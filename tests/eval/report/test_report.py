"""Reports: every system is in them, the page is sound and closed, marks and texts are where they belong."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from eval.metrics.formulas import open_chrf
from eval.report.__main__ import contents, main
from eval.report.blocks import Bullets, Code, Figure, Heading, Table, Text, as_html, as_markdown
from eval.report.plots import own_ids
from eval.report.reading import read_runs
from eval.translation.__main__ import main as translate
from eval.translation.records import RECORDS, read_records, scored
from rag_mt.base.errors import UserError

VOID = {"meta", "br", "hr", "img", "link", "input"}
SYSTEMS = ("plain", "sentence", "phrases", "shuffled", "oracle")


class Balanced(HTMLParser):
    """Checks that every element is closed in its place; collects the text and the ids."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += data


def parsed(page: str) -> Balanced:
    parser = Balanced()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


@pytest.fixture(scope="module")
def runs(parallel_data: Path, systems_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report-runs")
    data = ["--suite", "wmt16", "--data", str(parallel_data), "--config", str(systems_file), "--quiet"]
    options = ["--directions", "de-en", "--systems", ",".join(SYSTEMS), "--output", str(folder)]
    assert translate([*data, *options]) == 0
    options = ["--directions", "en-de", "--systems", "plain", "--output", str(folder)]
    assert translate([*data, *options]) == 0
    return folder


def test_the_report_has_every_system_and_the_page_is_sound(runs: Path, tmp_path: Path) -> None:
    markdown, page = tmp_path / "r.md", tmp_path / "r.html"
    assert main([str(runs), "--output", str(markdown), "--html", str(page)]) == 0
    text, found = markdown.read_text("utf-8"), parsed(page.read_text("utf-8"))
    for name in SYSTEMS:
        assert f"| {name} |" in text
        assert name in found.text
    for told in ("chrF++", "tok:13a", "approximate randomization", "CCPR", "75.96", "sha256", "python -m eval.report"):
        assert told.replace("_", r"\_") in text and told in found.text
    assert page.read_text("utf-8").count("<svg") == 4
    assert len(found.ids) == len(set(found.ids))
    assert not re.search(r'(?:src|href)="(?!#)', page.read_text("utf-8")), "it needs no other file"
    rows = [line for line in text.splitlines() if line.startswith("| oracle |")]
    assert len(rows[0].split("|")) == len(next(line for line in text.splitlines() if "de-en" in line).split("|"))
    records = read_records(runs / "phrases" / f"de-en{RECORDS}")
    for said in (text, found.text):
        assert not any(r.source in said or r.reference in said for r in records), "no text of the suite"
        assert str(runs) not in said and "/tmp" not in said
    again = tmp_path / "again.html"
    assert main([str(runs), "--output", str(markdown), "--html", str(again)]) == 0
    assert again.read_text("utf-8").replace("again.html", "r.html") == page.read_text("utf-8")


def test_examples_are_shown_when_they_are_asked_for(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(runs), "--examples", "2", "--systems", "plain,phrases"]) == 0
    text = capsys.readouterr().out
    assert "where hints" in text and "| oracle" not in text
    records = read_records(runs / "phrases" / f"de-en{RECORDS}")
    assert any(f"source: {r.source}" in text for r in records)
    assert text.count("source: ") <= 4


def test_the_baseline_comes_first_and_can_be_chosen(runs: Path) -> None:
    found = read_runs(runs)
    assert found.baseline == "plain" and set(found.systems) == set(SYSTEMS)
    assert found.directions == ["de-en", "en-de"]
    assert found.comparison("plain", ["de-en"], "chrF") is None
    gain = found.comparison("phrases", ["de-en", "en-de"], "chrF")
    alone = found.comparison("phrases", ["de-en"], "chrF")
    assert gain == alone, "only the direction that both have"
    other = read_runs(runs, ["phrases", "plain"], "phrases").comparison("plain", ["de-en"], "chrF")
    assert alone is not None and other is not None and other.value == pytest.approx(-alone.value)
    assert ("phrases", "en-de") not in found.by_place


def test_a_system_is_called_as_its_folder(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "plain", tmp_path / "plain")
    shutil.copytree(runs / "phrases", tmp_path / "renamed")
    assert read_runs(tmp_path).systems == ("plain", "renamed")


def test_what_cannot_be_reported_is_said(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none")]) == 2
    assert "has no finished run" in capsys.readouterr().err
    assert main([str(runs), "--baseline", "magic"]) == 2
    assert "'magic'" in capsys.readouterr().err
    assert main([str(runs), "--output", "x", "--html", "x"]) == 2
    with pytest.raises(UserError, match="other de-en sentences"):
        _with_other_facts(runs, tmp_path / "sample", "sample", "sha256", "0")
    with pytest.raises(UserError, match="on de-en were translated by different versions of prompts or decoding"):
        _with_other_facts(runs, tmp_path / "decoding", "decoding", "algorithm", -1)


def test_runs_of_one_system_have_the_same_settings(runs: Path, tmp_path: Path) -> None:
    """Not some from before a setting changed, or was there, and some from after."""
    for name in ("changed", "missing"):
        shutil.copytree(runs / "plain", tmp_path / name / "plain")
        path = tmp_path / name / "plain" / "en-de.json"
        facts = json.loads(path.read_text())
        if name == "changed":
            facts["settings"]["cut_off"] = 0.123
        else:
            del facts["settings"]["consensus"]
        path.write_text(json.dumps(facts))
        setting = "cut_off" if name == "changed" else "consensus"
        with pytest.raises(UserError, match=rf"plain on de-en and en-de differ in {setting}: .* --restart"):
            read_runs(tmp_path / name)
    path = tmp_path / "changed" / "plain" / "en-de.json"
    facts["settings"] = json.loads((runs / "plain" / "en-de.json").read_text())["settings"]
    facts["settings"] |= {"batch_size": 99, "plain_adapter": "none"}  # of another machine, and an older version
    path.write_text(json.dumps(facts))
    assert read_runs(tmp_path / "changed").systems == ("plain",)


def test_systems_are_compared_on_the_sentences_that_all_have(
    runs: Path, parallel_data: Path, systems_file: Path, tmp_path: Path
) -> None:
    """A bound on fewer sentences stands beside systems on more."""
    shutil.copytree(runs, tmp_path / "runs")
    data = ["--suite", "wmt16", "--data", str(parallel_data), "--config", str(systems_file), "--quiet"]
    options = ["--directions", "de-en", "--systems", "dropped", "--limit", "5", "--output", str(tmp_path / "runs")]
    assert translate([*data, *options]) == 0
    found = read_runs(tmp_path / "runs", ["plain", "dropped"])
    whole, part = read_runs(runs).by_place["plain", "de-en"], found.by_place["plain", "de-en"]
    own = found.by_place["dropped", "de-en"]
    assert [r.line for r in part.records] == [r.line for r in own.records] and len(own.records) == 5
    assert set(part.records) < set(whole.records) and part.translated == len(whole.records) == whole.translated
    again = scored(open_chrf(), part.records)
    assert part.scores["chrF"].corpus == again.corpus != whole.scores["chrF"].corpus
    assert part.facts["sample"] == own.facts["sample"]
    text = as_markdown(list(contents(found, "title", 0, [], "x")))
    assert "| de-en | 5 |" in text and "| en-de | 12 |" in text
    assert "Of the 24 sentences of plain the 17 count that all systems of a direction have." in text
    assert re.search(r"\| plain \| 24 \|", text) and re.search(r"\| dropped \| 5 \|", text)
    other = ["--directions", "de-en", "--systems", "strict", "--limit", "4", "--seed", "7"]
    assert translate([*data, *other, "--output", str(tmp_path / "runs")]) == 0
    with pytest.raises(UserError, match=r"other de-en sentences: run them with the same --suite and --seed"):
        read_runs(tmp_path / "runs", ["dropped", "strict"])


def test_pairs_on_one_line_are_cut_by_their_number(
    systems_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A translation memory in one line, with a pair that it has twice."""
    unit = '<tu><tuv xml:lang="de"><seg>{}</seg></tuv><tuv xml:lang="en"><seg>{}</seg></tuv></tu>'
    units = "".join(unit.format(a, b) for a, b in [("Hund", "dog"), ("Hund", "dog"), ("Maus", "mouse")])
    memory = tmp_path / "memory.tmx"
    memory.write_text(f'<?xml version="1.0"?><tmx version="1.4"><header/><body>{units}</body></tmx>')
    data = ["--suite", str(memory), "--src", "de", "--tgt", "en", "--config", str(systems_file), "--quiet"]
    assert translate([*data, "--systems", "plain", "--output", str(tmp_path / "runs")]) == 0
    assert translate([*data, "--systems", "dropped", "--limit", "2", "--output", str(tmp_path / "runs")]) == 0
    found = read_runs(tmp_path / "runs", ["plain", "dropped"])
    lines = [[r.source for r in found.by_place[name, "de-en"].records] for name in ("plain", "dropped")]
    assert lines[0] == lines[1] and len(lines[0]) == 2


def test_gains_in_some_directions_say_so(runs: Path) -> None:
    text = as_markdown(list(contents(read_runs(runs), "title", 0, [], "x")))
    assert re.search(r"\| phrases \| all directions, 1 of 2 directions \|", text)


def _with_other_facts(runs: Path, folder: Path, group: str, key: str, value: object) -> None:
    for name in ("plain", "phrases"):
        (folder / name).mkdir(parents=True)
        for file in (runs / name).glob("de-en.*"):
            (folder / name / file.name).write_bytes(file.read_bytes())
    path = folder / "plain" / "de-en.json"
    facts = json.loads(path.read_text())
    facts[group][key] = value
    path.write_text(json.dumps(facts))
    read_runs(folder)


def test_blocks_are_escaped() -> None:
    nasty = '<script>alert("x")</script> | a_b `c` [d](e)\nf'
    blocks = [
        Heading(nasty, 1),
        Text(nasty),
        Bullets((nasty,)),
        Table(("a", nasty), ((nasty, "1"),)),
        Code("```\n</pre><b>"),
        Figure(nasty, "<svg></svg>"),
    ]
    page = parsed(as_html(blocks, nasty))
    assert page.text.count("alert") == 7 and "<script" not in as_html(blocks, nasty)
    text = as_markdown(blocks)
    assert "<script" not in text.replace(r"\<script", "")
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {3}
    assert "````\n```\n</pre><b>\n````" in text
    assert "svg" not in text


def test_ids_of_pictures_are_their_own() -> None:
    svg = '<svg><g id="a"/><use xlink:href="#a"/><path clip-path="url(#a)"/></svg>'
    assert own_ids(svg, "p") == '<svg><g id="p-a"/><use xlink:href="#p-a"/><path clip-path="url(#p-a)"/></svg>'
