"""The `rag-mt` command: help, index commands and their mistakes."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rag_mt.cli import main as cli
from rag_mt.cli.main import main

ENGLISH = [
    "The central bank raised interest rates for the third time this year.",
    "Firefighters worked through the night to stop the forest fire.",
    "The museum is closed on Mondays.",
    "Please restart the printer and try again.",
]
COMMANDS = [
    [],
    ["translate"],
    ["index"],
    ["index", "build"],
    ["index", "add"],
    ["index", "remove"],
    ["index", "label"],
    ["index", "compress"],
    ["index", "info"],
    ["index", "verify"],
    ["index", "calibrate"],
    ["search"],
    ["mine"],
]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    (folder / "news.txt").write_text("\n".join([*ENGLISH, "12 %", ENGLISH[0]]) + "\n", encoding="utf-8")
    arguments = ["index", "build", str(folder / "index"), str(folder / "news.txt"), "--lang", "en", "--quiet"]
    arguments += ["--retriever", "sentence"]
    assert main(arguments) == 0, "a line without a letter is left out and no fault"
    return folder / "index"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_names_every_option(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*command, "--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert "usage: rag-mt" in out
    assert "python -m" not in out


def test_info_and_verify(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", "info", str(index), "--json"]) == 0
    manifest = json.loads(capsys.readouterr().out)
    assert manifest["units"] == len(ENGLISH)
    assert manifest["counts"]["duplicates"] == 1
    assert manifest["settings"]["encoder"] == "embedded:e5-small"
    assert main(["index", "info", str(index)]) == 0
    assert "4 sentence vectors" in capsys.readouterr().out
    assert main(["index", "verify", str(index)]) == 0
    assert "sha256" in capsys.readouterr().out


def test_what_needs_no_model_imports_none(index: Path, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    shutil.copytree(index, copy)
    code = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None; from rag_mt.cli.main import main; "
        f"folder = {copy!r}; commands = ('info', folder), ('verify', folder), "
        "('label', folder, '*', '--domain', 'law'), ('copy', folder, 'lance:' + folder + '.lance', '--quiet'); "
        "sys.exit(any(main(['index', *command]) for command in commands))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_index_grows_and_shrinks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, one, other = (str(tmp_path / name) for name in ("index", "one.txt", "other.txt"))
    Path(one).write_text("\n".join(ENGLISH), encoding="utf-8")
    Path(other).write_text(f"{ENGLISH[0]}\nThe harbour is frozen.\n12\n", encoding="utf-8")
    assert main(["index", "build", folder, one, "--lang", "en", "--retriever", "memory", "--quiet"]) == 0
    assert main(["index", "add", folder, other, "--quiet"]) == 0
    err = capsys.readouterr().err
    assert "5 memory vectors" in err and "4 sentences before" in err and "no letters" in err
    assert main(["index", "info", folder, "--files"]) == 0
    assert capsys.readouterr().out.endswith(f"4\t{one}\n1\t{other}\n")
    assert main(["index", "remove", folder, one, "--quiet"]) == 0
    assert main(["index", "verify", folder]) == 0 and main(["index", "info", folder, "--files"]) == 0
    assert capsys.readouterr().out.endswith(f"1\t{other}\n")


def test_some_files_of_an_index_are_searched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, old, new = (str(tmp_path / name) for name in ("index", "2023.txt", "2024.txt"))
    Path(old).write_text("The museum is closed on Mondays.\n", "utf-8")
    Path(new).write_text("The museum is closed on Tuesdays.\n", "utf-8")
    build = ["index", "build", folder, old, "--lang", "en", "--retriever", "bm25", "--quiet"]
    assert main([*build, "--domain", "law", "--date", "2023-13-01"]) == 2 and not Path(folder).exists()
    assert main([*build, "--domain", "law", "--date", "2023-05-01"]) == 0
    assert main(["index", "add", folder, new, "--quiet", "--domain", "museums"]) == 0
    assert main(["index", "label", folder, "2024*", "--date", "2024-05-01"]) == 0
    assert capsys.readouterr().err.endswith(f"{folder}: date 2024-05-01 for 1 of 2 files\n")
    assert main(["index", "info", folder, "--files"]) == 0
    described = capsys.readouterr().out
    assert "domains law, museums; dates 2023-05-01 to 2024-05-01" in described
    assert described.endswith(f"1\t{old}\tlaw\t2023-05-01\n1\t{new}\tmuseums\t2024-05-01\n")

    def searched(*options: str) -> tuple[int, set[str], str]:
        code = main(["search", "--index", folder, "--src", "de", *options, "Das Museum ist montags geschlossen."])
        told = capsys.readouterr()
        return code, {name for name in (old, new) if name in told.out}, told.err

    assert searched()[:2] == (0, {old})
    for options, files in (
        (["--only-files", "2024.txt"], {new}),
        (["--only-domain", "law", "--only-domain", "museums"], {old}),
        (["--since", "2024-01-01"], {new}),
        (["--until", "2023-12-31", "--only-domain", "law"], {old}),
    ):
        assert searched(*options)[:2] == (0, files)
    code, _, error = searched("--only-domain", "sport")
    there = f"it has files {old}, {new}; domains law, museums; dates 2023-05-01 to 2024-05-01"
    assert (code, error) == (2, f"rag-mt: index {folder} has no file of the domain sport: {there}\n")
    assert main(["translate", "--src", "de", "--index", folder, "--only-files", "x", "--quiet", "Ja."]) == 2
    assert "has no file named x" in capsys.readouterr().err
    assert main(["translate", "--src", "de", "--since", "2024-01-01", "--quiet", "Ja."]) == 2
    assert "but no index is given: give one (--index DIR)" in capsys.readouterr().err
    assert main(["index", "label", folder, "*", "--domain", "", "--date", ""]) == 0
    assert "domain none and date none for 2 of 2 files" in capsys.readouterr().err
    assert searched("--only-domain", "law")[2].endswith("FILE --domain DOMAIN` tells\n")


def test_an_index_is_compressed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, text = str(tmp_path / "index"), tmp_path / "text.txt"
    lines = [f"Press {key} to open page {n} of the manual." for n in range(90) for key in ("Enter", "Tab", "Escape")]
    text.write_text("\n".join([*ENGLISH, *lines]), encoding="utf-8")
    assert main(["index", "build", folder, str(text), "--lang", "en", "--retriever", "memory", "--quiet"]) == 0
    search = ["search", "--index", folder, "--src", "de", "Das Museum ist montags geschlossen."]
    assert main(search) == 0
    best = capsys.readouterr().out.splitlines()[0].split("\t")[1:]
    for bits, told in ((["2", "--rerank"], "2 bits a number, re-ranked;"), (["8"], "8 bits a number;")):
        assert main(["index", "compress", folder, "--quiet", "--bits", *bits]) == 0
        assert told in capsys.readouterr().err
        assert main(search) == 0
        assert capsys.readouterr().out.splitlines()[0].split("\t")[1:] == best
        assert main(["index", "verify", folder]) == 0
    assert main(["index", "compress", folder, "--bits", "16"]) == 2
    assert "build it again with `rag-mt index build --replace`" in capsys.readouterr().err


def test_parts_of_an_index_are_made_one_by_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(f"Line number {n} of the text." for n in range(1500)), encoding="utf-8")
    command = ["index", "build", str(tmp_path / "index"), str(text), "--lang", "en", "--retriever", "bm25"]
    command += ["--quiet", "--no-split"]
    for options, reason in (
        (["--shard", "3/2"], "is no part such as 2/8"),
        (["--shard", "1/2", "--restart"], "index.building"),
        (["--workers", "2"], "give --ray, or leave them out"),
        (["--shard", "1/2", "--ray", "local"], "give one of the two"),
    ):
        with contextlib.suppress(SystemExit):
            assert main([*command, *options]) == 2
        assert reason in capsys.readouterr().err
    assert main([*command, "--shard", "2/2"]) == 0
    assert "part 2 of 2: 476 sentences are encoded, 0 of them before" in capsys.readouterr().err
    assert main(command) == 0
    assert "1500 passages (1500 read" in capsys.readouterr().err


def test_search_and_calibrate(index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    question = "Die Zentralbank hat die Zinsen erhöht."
    assert main(["search", "--index", str(index), "--src", "de", question]) == 0
    score, source, phrase, context, origin = capsys.readouterr().out.strip().split("\t")
    assert 0.5 < float(score) <= 1.01
    assert source == question
    assert phrase == ENGLISH[0]
    assert context == f"[[{ENGLISH[0]}]]"
    assert origin.endswith("news.txt:1")
    dev = tmp_path / "dev.txt"
    dev.write_text(f"{question}\nWo ist der Hund?\nDas Museum ist montags geschlossen.\n", encoding="utf-8")
    assert main(["index", "calibrate", str(index), str(dev), "--src", "de", "--drop", "0.5"]) == 0
    capsys.readouterr()
    assert main(["search", "--index", str(index), "--src", "de", "Wo ist der Hund?", question]) == 0
    captured = capsys.readouterr()
    assert "no hint is trusted for: Wo ist der Hund?" in captured.err
    assert ENGLISH[0] in captured.out
    dev.write_bytes(dev.read_bytes() + b"\xff\n")
    assert main(["index", "calibrate", str(index), str(dev), "--src", "de"]) == 1
    assert "skipped 1 lines: 1 not valid UTF-8" in capsys.readouterr().err


def test_a_calibration_that_trusts_less_than_the_confidence_model_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "news.txt").write_text("".join(f"{line}\n" for line in ENGLISH), encoding="utf-8")
    (tmp_path / "dev.txt").write_text("Die Katze schläft.\nEin Fahrrad steht vor dem Haus.\n", encoding="utf-8")
    index = str(tmp_path / "index")
    assert main(["index", "build", index, str(tmp_path / "news.txt"), "--lang", "en", "--retriever", "ccpr"]) == 0
    assert main(["index", "calibrate", index, str(tmp_path / "dev.txt"), "--src", "de"]) == 0
    assert f"`rag-mt index calibrate {index} --src de --confidence 0.65`" in capsys.readouterr().err
    assert main(["index", "calibrate", index, "--src", "de", "--confidence", "0.65"]) == 0
    assert "goes back" not in capsys.readouterr().err


MISTAKES = [
    (["index", "info", "nowhere"], "nowhere"),
    (["index", "build", "INDEX", "README.md", "--lang", "en"], "--replace"),
    (["index", "build", "NEW", "nothing.txt", "--lang", "en"], "nothing.txt"),
    (["index", "build", "NEW", "README.md", "--lang", "qq"], "'qq'"),
    (["index", "build", "NEW", "README.md", "--lang", "en", "--retriever", "none"], "'none'"),
    (["index", "add", "nowhere", "README.md"], "nowhere"),
    (["index", "add", "INDEX", "nothing.txt"], "nothing.txt"),
    (["index", "remove", "INDEX", "other.txt"], "other.txt"),
    (["index", "compress", "INDEX", "--bits", "3"], "invalid choice: 3"),
    (["index", "compress", "INDEX", "--bits", "4"], "an index of 256 or more"),
    (["index", "compress", "lance:nowhere", "--bits", "4"], "lance:nowhere"),
    (["index", "calibrate", "INDEX", "README.md", "--src", "de", "--drop", "2"], "'2'"),
    (["search", "--index", "INDEX", "--src", "de", "--encoder", "embedded:nothing", "Hund"], "embedded:nothing"),
    (["index", "build", "NEW", "hf:no/such-data", "--lang", "en"], "hf:no/such-data"),
    (["translate"], "--src"),
    ([], "COMMAND"),
]


@pytest.mark.parametrize(("arguments", "told"), MISTAKES, ids=[" ".join(a) for a, _ in MISTAKES])
def test_mistakes_are_one_sentence(
    arguments: list[str], told: str, index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = Path(cli.__file__).parents[2] / "README.md"
    places = {"INDEX": str(index), "NEW": str(tmp_path / "new"), "README.md": str(readme)}
    try:
        code = main([places.get(a, a) for a in arguments])
    except SystemExit as stop:
        code = int(stop.code or 0)
    err = capsys.readouterr().err
    assert code == 2
    assert told in err.strip().splitlines()[-1]
    assert "Traceback" not in err
    assert not (tmp_path / "new").exists()
