"""Errors that are put into translations, and the report of how many are found."""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from eval.checks import judged, words
from eval.checks.__main__ import main
from eval.checks.errors import ERRORS
from eval.checks.pairs import NO_TEXT, PARTS, TrainingPairs
from eval.checks.repair import Asked, report
from eval.report.blocks import Table
from rag_mt.checks.number_sides import numbers
from rag_mt.checks.rules import RULES, Pair

PAIR = Pair(
    "On 3 March 2015 he paid $25 (in cash). He said: “Thank you, where is the next train?”",
    "Am 3. März 2015 zahlte er 25 $ (in bar). Er sagte: „Danke, wo ist der nächste Zug?“",
    "en",
    "de",
)


@pytest.mark.parametrize("name", ERRORS)
def test_each_error_is_one_that_its_rule_finds(name: str) -> None:
    assert ERRORS.keys() == RULES.keys() and not RULES[name].found(PAIR)
    pair = {"ends": Pair("Where is he?", "Wo ist er?", "en", "de"), "stops": Pair("Yes.", "Ja.", "en", "de")}.get(
        name, PAIR
    )
    made = [ERRORS[name](pair, random.Random(seed)) for seed in range(20)]
    assert all(damaged not in (None, pair) for damaged in made)
    assert sum(bool(RULES[name].found(damaged)) for damaged in made if damaged) >= 18


def test_a_pair_without_a_place_has_no_error() -> None:
    bare = Pair("Yes", "Ja", "en", "de")
    without = [name for name, error in ERRORS.items() if error(bare, random.Random(1)) is None]
    assert without == [n for n in ERRORS if n not in ("empty", "placeholders", "repeated")]


def test_an_added_number_leaves_the_others() -> None:
    made = {ERRORS["numbers"](PAIR, random.Random(seed)) for seed in range(30)}
    counts = {len(numbers(damaged.target)) for damaged in made if damaged}
    assert counts == {2, 3, 4}


def test_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, report = tmp_path / "data", tmp_path / "checks.json"
    (data / "dev").mkdir(parents=True)
    for code in ("de", "cs", "fi", "ru", "ro", "tr"):
        rows = [f"{PAIR.source}\t{PAIR.target}", "Page 12\tSeite 21", "Yes\tJa"]
        (data / "dev" / f"{code}-en.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    command = ["--data", str(data), "--part", "dev", "--errors", "2", "--output", str(report)]
    assert main(command) == 2 and "no train/de-en.tsv" in capsys.readouterr().err
    _write_training(data, [f"It weighs {n} kg.\tEs wiegt {n} kg.\ttech-docs" for n in range(40)])
    assert main(command) == 0
    facts = json.loads(report.read_text(encoding="utf-8"))
    assert facts["errors"]["units de"] == [2, 2] and facts["errors in training pairs"]["units de"] == [1, 1]
    assert facts["errors"]["brackets de"] == [1, 1] and "brackets de" not in facts["errors in training pairs"]
    assert facts["pairs"]["news"] == 36 and facts["alarms"]["numbers news"] == 12
    assert facts["errors"]["empty de"] == [2, 2] and "numbers" in capsys.readouterr().out
    assert main(["--data", str(data), "--part", "dev", "--lengths"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 6
    assert main(["--data", str(tmp_path), "--part", "dev"]) == 2
    assert "give --data DIR" in capsys.readouterr().err


def _write_training(data: Path, rows: list[str]) -> None:
    (data / "train").mkdir()
    for code in ("de", "cs", "fi", "ru", "ro", "tr"):
        (data / "train" / f"{code}-en.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def test_training_pairs_of_the_parts_share_no_sentence(tmp_path: Path) -> None:
    rows = [f"Page {n}\tSeite {n}\tnews" for n in range(100)]
    _write_training(tmp_path, [*rows, *(f"Word {n}\tWort {n}\t{domain}" for n in range(100) for domain in NO_TEXT)])
    (tmp_path / "domains").mkdir()
    (tmp_path / "domains" / "help.de-en.test.tsv").write_text("Page 7\tSeite 7\n", encoding="utf-8")
    (tmp_path / "domains" / "help.excluded.txt").write_text("page 7\n", encoding="utf-8")
    parts = [TrainingPairs(tmp_path, part) for part in PARTS]
    texts = [{pair.target for pair in rows.into("en", random.Random(1))} for rows in parts]
    assert not texts[0] & texts[1] and texts[0] | texts[1] == {f"Page {n}" for n in range(100) if n != 7}
    assert all(len(of_part) > 30 for of_part in texts)
    german = [pair.texts for pair in parts[0].into("de", random.Random(1))]
    assert {source for source, *_ in german} == texts[0] and german[0][2:] == ("en", "de")
    assert [pair.texts for pair in parts[0].into("de", random.Random(1))] == german


def test_words_that_stand_in_the_same_pairs_translate_each_other(tmp_path: Path) -> None:
    nouns = [("house", "haus"), ("bridges", "brücke"), ("garden", "garten"), ("water", "wasser"), ("winter", "winter")]
    nouns += [(f"{a}{b}thing", f"{b}{a}ding") for a in "bcdfg" for b in "klmnp"]
    rows = [f"It is a {noun} {n}\tEs ist {other} {n}\tnews" for n in range(40) for noun, other in nouns]
    _write_training(tmp_path, [*rows, *["zebra\tzebra\tnews"] * 3])
    file = tmp_path / "meanings.tsv"
    assert words.main(["--data", str(tmp_path), "--output", str(file)]) == 0
    head, *lines = file.read_text(encoding="utf-8").splitlines()
    assert head.split("\t") == ["en", "de", "cs", "fi", "ru", "ro", "tr"]
    table = {line.split("\t")[0]: line.split("\t")[1:] for line in lines}
    assert table["bridg"] == ["brück"] * 6 and table["house"] == ["haus"] * 6 and len(table) == len(nouns)
    assert words.main(["--data", str(tmp_path), "--output", str(file), "--words", "3"]) == 0
    assert len(file.read_text(encoding="utf-8").splitlines()) == 4
    assert words.most_frequent(Counter({"c": 2, "b": 2, "a": 2, "d": 3}), 2) == {"d", "a"}
    assert words.main(["--data", str(tmp_path / "none"), "--output", str(file)]) == 2


def test_alarms_are_counted_by_their_verdicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, report = tmp_path / "data", tmp_path / "judged.json"
    (data / "dev").mkdir(parents=True)
    rows = ["Page 12\tSeite 21", "Yes\tJa.", *(f"No. {n}\tNr. {n}" for n in range(298))]
    for code in ("de", "cs", "fi", "ru", "ro", "tr"):
        (data / "dev" / f"{code}-en.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    assert judged.main(["--data", str(data), "--output", str(report)]) == 0
    facts = json.loads(report.read_text(encoding="utf-8"))
    assert facts["pairs"] == 300 and facts["now"] == {"numbers not read": 1, "stops not read": 1}
    assert facts["before"]["numbers false"] == 22 and "73.33 (" in capsys.readouterr().out
    assert judged.main(["--data", str(tmp_path)]) == 2
    assert "give --data DIR" in capsys.readouterr().err


def test_verdicts_are_found_by_the_pair_whatever_its_direction() -> None:
    pair = Pair("Page 12", "Seite 21", "en", "de")
    assert judged.key_of(pair) == judged.key_of(Pair(pair.target, pair.source, "de", "en"))
    assert judged.key_of(pair) != judged.key_of(Pair("Page 12", "Seite 2", "en", "de"))
    known = judged.verdicts()
    assert {rule for rule, _ in known} == {"numbers", "months", "units", "sentences", "ends"}
    assert {verdict for verdict, _ in known.values()} == set(judged.VERDICTS)
    lines = judged.FILE.read_text(encoding="utf-8").splitlines()
    assert len(known) == len(lines) - 1 and all(re.fullmatch(r"[0-9a-f]{16}", key) for _, key in known)


def test_what_was_asked_for_again_is_counted(tmp_path: Path) -> None:
    asked, other = Asked("en-de"), Asked("de-en")
    pair = Pair("He paid $25 for %s.", "Er zahlte 25 $ für %s.", "en", "de")
    asked.add(pair, "Er zahlte für %s.", "Er zahlte 25 für %s.")
    asked.add(pair, "Er zahlte 25 $ für.", "Er zahlte 25 $ für.")
    asked.add(pair, pair.target, pair.target)
    other.add(Pair("Drei", "Three", "de", "en"), "Three", "Three")
    assert (asked.sentences, len(asked.first), asked.still) == (3, 2, 1)
    blocks, facts = report([asked, other], argparse.Namespace(part="dev", limit=9))
    assert facts["sentences"] == 4 and facts["wrong at first"] == 2 and facts["wrong in the end"] == 1
    table = blocks[-1]
    assert isinstance(table, Table) and [row[:4] for row in table.rows] == [
        ["en-de", "3", "2", "1"],
        ["de-en", "1", "0", "0"],
    ]
    assert float(table.rows[0][5]) > float(table.rows[0][4]) and table.rows[1][4:] == ["", ""]
