"""A translator's file through glossary, checks, estimates and review, by the models that come with rag_mt."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from lxml import etree

from rag_mt.base.files import SAMPLE_CORPUS
from rag_mt.cli.main import main

pytestmark = pytest.mark.slow

SEGMENTS = 60
NAMESPACE = "{urn:oasis:names:tc:xliff:document:1.2}"
TERMS = "de,en\nStadtrat,town assembly\nBrücke,overpass\nMuseum,gallery\nKrankenhaus,clinic\nBahnhof,railway stop\n"
HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<!-- exported by hand -->
<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" xmlns:x="urn:x" version="1.2">
<file original="town.html" source-language="de" target-language="en" datatype="html" x:project="7"><body>
"""


def document(path: Path) -> Path:
    """SEGMENTS units of the sample corpus; every tenth has an inline code, the last is approved."""
    lines = (SAMPLE_CORPUS / "de.txt").read_text("utf-8").splitlines()[:SEGMENTS]
    units = []
    for number, line in enumerate(lines):
        text = line.replace("&", "&amp;").replace("<", "&lt;")
        if number % 10 == 0:
            first, _, rest = text.partition(" ")
            text = f'<g id="{number}">{first}</g> {rest}'
        units.append(f'<trans-unit id="u{number}" resname="r{number}"><source>{text}</source></trans-unit>')
    units[-1] = re.sub("<trans-unit", '<trans-unit approved="yes"', units[-1])
    units[-1] = units[-1].replace("</source>", "</source><target>Done by hand.</target>")
    path.write_text(HEAD + "\n".join(units) + "\n</body></file></xliff>\n", encoding="utf-8")
    return path


def untranslated(path: Path) -> bytes:
    """The document without what a translation adds."""
    root = etree.parse(path).getroot()
    for unit in root.iter(f"{NAMESPACE}trans-unit"):
        for added in unit.findall(f"{NAMESPACE}target") + unit.findall(f"{NAMESPACE}note"):
            unit.remove(added)
    return etree.tostring(root)


def test_a_file_through_glossary_checks_and_review(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, output, review = document(tmp_path / "town.xlf"), tmp_path / "town.en.xlf", tmp_path / "review.tsv"
    terms = tmp_path / "terms.csv"
    terms.write_text(TERMS, encoding="utf-8")
    options = ["--src", "de", "--glossary", str(terms)]
    asked = ["--min-quality", "good", "--review", str(review), "--retriever", "none", "--quiet"]
    assert main(["translate", *options, *asked, str(source), "-o", str(output)]) in (0, 1)
    summary = capsys.readouterr().err
    kept, there = map(int, re.findall(r"terms of the glossary: (\d+) of (\d+)", summary)[0])
    assert there >= 5 and kept >= 0.9 * there
    good, *_ = map(int, re.findall(r"estimated quality: (\d+) good", summary))
    assert 0 < good < SEGMENTS

    # The file is the same but for its translations, and what was approved is untouched.
    assert untranslated(output) == untranslated(source)
    units = list(etree.parse(output).getroot().iter(f"{NAMESPACE}trans-unit"))
    assert units[-1].find(f"{NAMESPACE}target").text == "Done by hand."
    targets = [unit.find(f"{NAMESPACE}target") for unit in units[:-1]]
    assert all("".join(target.itertext()).strip() for target in targets)
    assert sum(len(target.findall(f"{NAMESPACE}g")) for target in targets) == SEGMENTS // 10
    states = [target.get("state") for target in targets]
    assert set(states) == {"translated", "needs-review-translation"}

    # What is marked for review stands in the review, the worst first, and nothing that is wrong is missing.
    rows = list(csv.DictReader(review.open(encoding="utf-8"), dialect="excel-tab"))
    scores = [float(row["quality"]) for row in rows]
    assert scores == sorted(scores)
    assert len(rows) <= states.count("needs-review-translation")
    reviewed = {int(row["place"].rpartition(":")[2]) for row in rows}
    told = {unit.sourceline for unit in units if any("error" in n.text or "quality" in n.text for n in notes_of(unit))}
    assert told == reviewed

    # A check of the file finds what its notes tell; estimates are of whole units there, here of the worst sentence.
    main(["check", *options, str(output)])
    lines = [line.split(": ", 1) for line in capsys.readouterr().out.splitlines()]
    approved = f"{output}:{units[-1].find(f'{NAMESPACE}target').sourceline}"
    noted = [note.text for unit in units[:-1] for note in notes_of(unit) if "[quality]" not in note.text]
    assert sorted(text for place, text in lines if place != approved) == sorted(noted)

    # There is nothing left to translate, and the file stays as it is.
    again = tmp_path / "again.xlf"
    main(["translate", *options, "--retriever", "none", "--quiet", str(output), "-o", str(again)])
    assert again.read_bytes() == output.read_bytes()


def notes_of(unit: etree._Element) -> list[etree._Element]:
    return [note for note in unit.findall(f"{NAMESPACE}note") if note.get("from") == "rag-mt check"]
