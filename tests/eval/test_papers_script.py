"""`reports/papers.sh` and `hub.sh` with an interpreter that only notes what it is asked: the program takes every
command, finished ones are not asked again, and the settings files name systems and runs that are there."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from eval.translation.systems import read_systems
from finetune.training import settings as training_settings
from rag_mt.base.settings import config_file
from rag_mt.cli.main import parser
from rag_mt.models.weights import FOLDER

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / "reports"
STUB = """#!/bin/bash
[ "$1" = -c ] && { echo "%s"; exit; }
printf '%%s\\x1f' "$@" >> "%s"; echo >> "%s"
while [ $# -gt 0 ]; do case "$1" in
  --output) case "$2" in
    *.txt) echo text > "$2" ;;
    TYDI) mkdir -p TYDI/texts ;;
    ccpr-xlmr | ccpr-labse) cp -r "%s/ccpr-e5-small" "$2" ;;
  esac ;;
  indexes/memory.*) mkdir -p "$1"; touch "$1/manifest.json"; code=1 ;;
  indexes/*) mkdir -p "$1" ;;
esac; shift; done
exit ${code:-0}
"""
"""It notes its arguments. Of the text of memories it cannot use some lines, and says so by the exit code."""


Noted = tuple[Path, list[list[str]]]
"""The folder of all runs, and the commands in their order."""


@pytest.fixture(scope="module")
def noted(tmp_path_factory: pytest.TempPathFactory) -> Noted:
    return commands(tmp_path_factory.mktemp("papers"), "papers.sh")


@pytest.fixture(scope="module")
def with_hub(tmp_path_factory: pytest.TempPathFactory) -> Noted:
    return commands(tmp_path_factory.mktemp("hub"), "hub.sh")


def commands(folder: Path, script: str) -> Noted:
    """What a script asks for when it is called twice."""
    data, log, python = folder / "data", folder / "log", folder / "python"
    for name in ("lexicon", "train", "dev", "test", "align"):
        (data / name).mkdir(parents=True)
    for name in ("pycountry", "cldr-babel", "osm-tags", "omw-wikt"):
        path = data / f"lexicon/{name}.de-en.tsv"
        path.write_text("one\teins\ntwo words\tzwei Worte\n")
        subprocess.run(["xz", str(path)], check=True)
    for code in ("ru", "sw", "te", "th"):
        (data / "mrtydi" / code).mkdir(parents=True)
        (data / "mrtydi" / code / "passages.tsv").write_text(f"1\tone {code}\n2\ttwo {code}\n")
    python.write_text(STUB % (FOLDER, log, log, FOLDER))
    python.chmod(0o755)
    call = ["bash", str(REPORTS / script), str(data), str(folder / "work")]
    made = subprocess.run(
        call, env={**os.environ, "PYTHON": str(python)}, capture_output=True, text=True, timeout=120, check=False
    )
    assert made.returncode == 0, made.stderr[-2000:]
    calls = [line.split("\x1f")[:-1] for line in log.read_text().splitlines()]
    log.unlink()
    again = subprocess.run(
        call, env={**os.environ, "PYTHON": str(python)}, capture_output=True, timeout=120, check=False
    )
    assert again.returncode == 0
    once_more = [line.split("\x1f")[1] for line in log.read_text().splitlines()]
    assert set(once_more) == {"eval.translation", "finetune.mdpr.runs"}, (
        "what goes on by itself, and no finished command"
    )
    return folder / "work", calls


def test_a_mark_has_the_name_of_its_command(noted) -> None:
    assert (noted[0] / "done/phrase-models").exists()


@pytest.mark.parametrize("script", ["noted", "with_hub"])
def test_every_command_is_one_that_the_program_takes(script, request, monkeypatch) -> None:
    work, calls = request.getfixturevalue(script)
    assert len(calls) > 100
    monkeypatch.chdir(work)
    taken: list[Any] = []

    def take(*given: Any) -> int:
        taken.append(given)
        return 0

    for _, name, *arguments in calls:
        if name == "accelerate.commands.launch":
            name, *arguments = arguments[arguments.index("-m") + 1 :]
        if name == "rag_mt":
            assert parser().parse_args(arguments).run
            continue
        module = importlib.import_module(name)
        if not hasattr(module, "main"):
            module = importlib.import_module(f"{name}.__main__")
        before = len(taken)
        with monkeypatch.context() as patch:
            if "run_training" in vars(module):  # settings are read, and nothing is trained
                patch.setattr(module, "tune" if hasattr(module, "tune") else "train", take)
                patch.setattr(training_settings, "run", lambda function, options: function(options))
            else:
                patch.setattr(module, "run", take)
            assert module.main(arguments) == 0, (name, arguments)
        assert len(taken) == before + 1, (name, arguments)


@pytest.mark.parametrize("script", ["noted", "with_hub"])
def test_plans_and_systems_are_there(script, request, monkeypatch) -> None:
    work, calls = request.getfixturevalue(script)
    monkeypatch.chdir(work)
    for _, name, *arguments in calls:
        if name == "eval.translation":
            config = arguments[arguments.index("--config") + 1]
            wanted = arguments[arguments.index("--systems") + 1]
            assert [system.name for system in read_systems(config_file(config), wanted)] == wanted.split(",")
        if name == "finetune.mdpr.runs":
            (work / arguments[arguments.index("--prepared") + 1]).mkdir(exist_ok=True)
            assert importlib.import_module(name).main([*arguments, "--list"]) == 0


def test_the_phrase_models_of_the_paper(noted) -> None:
    work, _ = noted
    shipped = (FOLDER / "ccpr-e5-small/ccpr.json").read_text()
    assert (work / "ccpr-paper/ccpr.json").read_text() == shipped.replace(
        '"query_threshold": 0.5', '"query_threshold": 0.9'
    )
    ngrams = (work / "ccpr-ngrams/ccpr.json").read_text()
    for part in ('"query_threshold": 0.0', '"index_threshold": 0.0', '"max_words": 4'):
        assert part in ngrams
    assert not (work / "ccpr-ngrams/confidence.json").exists()
    assert (work / "NAMES/lexicon/osm-tags.de-en.tsv").read_text() == "two words\tzwei Worte\n"


def test_models_and_texts_for_the_hub(with_hub) -> None:
    work, calls = with_hub
    shipped = (FOLDER / "ccpr-e5-small/ccpr.json").read_text()
    paper = shipped.replace('"query_threshold": 0.5', '"query_threshold": 0.9')
    assert paper != shipped and (work / "ccpr-labse/ccpr.json").read_text() == paper
    ngrams = (work / "ngrams-labse/ccpr.json").read_text()
    for part in ('"query_threshold": 0.0', '"index_threshold": 0.0', '"max_words": 4'):
        assert part in ngrams
    assert (work / "TYDI/texts/mrtydi-te.txt").read_text() == "one te\ntwo te\n"
    passages = [arguments for _, name, *arguments in calls if name == "eval.passages"]
    assert len(passages) == 11 + 6 and all("--lang" in arguments for arguments in passages)


def test_the_plan_for_mr_tydi_takes_what_is_made_for_it(with_hub) -> None:
    _, calls = with_hub
    made = next(arguments for _, name, *arguments in calls if name == "finetune.mdpr.data" and "TYDI" in arguments)
    languages, connections = (made[made.index(option) + 1].split(",") for option in ("--languages", "--connections"))
    plan = tomllib.loads((REPORTS / "mrtydi.toml").read_text())
    runs = [run for group in plan["groups"].values() for run in group.values()]
    assert len(runs) == 22
    for run in runs:
        assert set(run["data.pairs"]) <= {*(f"{code}-en" for code in languages), *connections}
        assert {text.removeprefix("mrtydi-") for text in run.get("data.texts", [])} <= {"ru", "sw", "te", "th"}


def test_an_unknown_step_is_told(tmp_path) -> None:
    made = subprocess.run(
        ["bash", str(REPORTS / "papers.sh"), str(tmp_path), str(tmp_path / "work"), "nothing"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 2
    assert "there is no step nothing" in made.stderr
    assert shutil.which("bash")
