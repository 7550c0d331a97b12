"""The command line from end to end with the embedded models, and every user mistake as one sentence."""

from __future__ import annotations

import functools
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import polib
import pytest

from rag_mt.base.errors import UserError
from rag_mt.base.files import EXAMPLES
from rag_mt.base.types import Completion, Prompt, Translation
from rag_mt.cli import main as cli
from rag_mt.cli import places, translate
from rag_mt.llm.opening import open_llm
from rag_mt.translation import translator
from rag_mt.translation.journal import Journal
from rag_mt.translation.tasks import SentenceTask

ROOT = Path(__file__).parents[3]
KILLED = """
import os, signal, sys
from rag_mt import translate
from rag_mt.translation.journal import Journal
add, kept = Journal.add, int(sys.argv[1])
def counted(self, numbers, translations):
    add(self, numbers, translations)
    if self.finished == kept:
        os.kill(os.getpid(), signal.SIGKILL)
Journal.add = counted
translate.main(sys.argv[2:])
"""
LINES = [
    "Der Stadtrat hat den Bau einer neuen Brücke beschlossen.",
    "",
    "  Die Feuerwehr war die ganze Nacht im Einsatz. Verletzt wurde niemand.  ",
    "Das Museum öffnet um zehn Uhr.",
    "Die Preise für Strom sind im März gestiegen.",
    "Wo ist der Bahnhof?",
]


def command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a run in this process."""
    try:
        code = translate.main(arguments)
    except SystemExit as stop:
        code = int(stop.code or 0)
    out = capsys.readouterr()
    return code, out.out, out.err


@pytest.fixture(scope="module", autouse=True)
def models_stay_loaded() -> Iterator[None]:
    """Commands of this process share their language models: loading takes longer than most of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translator, "open_llm", functools.lru_cache(maxsize=2)(open_llm))
        yield


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.de.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


def test_text_keeps_blank_lines_order_and_spacing(text: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert translate.main(["--src", "de", "--show-hints", "--quiet", str(text)]) == 0
    captured = capfdbinary.readouterr()
    lines = captured.out.decode().split("\n")
    assert len(lines) == len(LINES) + 1
    assert lines[1] == ""
    assert lines[2].startswith("  ")
    assert lines[2].endswith("  ")
    assert "bridge" in lines[0].casefold()
    report = captured.err.decode()
    assert "hints: " in report
    assert "rag_mt/sample_corpus/en.txt:" in report or "en.txt:" in report


def test_phrases_by_their_sentences(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """XPR from text to hints, by the model that comes with rag_mt."""
    own, index = tmp_path / "own.txt", tmp_path / "own-index"
    own.write_text(
        "The city council met on Monday.\nThe fire brigade came at once.\nA new bridge stands there.\n"
        "Who crosses the new bridge?\nElectricity prices rose again.\nHe waits at the railway station.\n",
        encoding="utf-8",
    )
    assert cli.main(["index", "build", str(index), str(own), "--lang", "en", "--retriever", "xpr"]) == 0
    capsys.readouterr()
    options = ["--src", "de", "--retriever", "xpr", "--index", str(index), "--show-hints", "--max-new-tokens", "8"]
    code, out, error = command([*options, "--quiet", str(text)], capsys)
    assert code == 0 and len(out.splitlines()) == len(LINES)
    assert "new bridge" in error and "own.txt:3" in error, "a phrase points to its first sentence"


def test_standard_input_and_no_retriever(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    source = SimpleNamespace(buffer=io.BytesIO(b"Guten Morgen.\n"), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", source)
    assert translate.main(["--src", "de", "--retriever", "none", "--quiet"]) == 0
    assert "morning" in capfdbinary.readouterr().out.decode().casefold()


def test_text_is_translated_line_by_line(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    options = ["--src", "de", "--retriever", "none", "--quiet", "--max-new-tokens", "12"]
    assert translate.main([*options, "Guten Morgen.", "Das Haus ist alt.\n\nWo ist der Bahnhof?\n"]) == 0
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert len(lines) == 4 and "morning" in lines[0].casefold() and not lines[2] and all(lines[n] for n in (0, 1, 3))


def test_what_is_a_file_and_what_is_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Guten Morgen").touch()
    for name in ("Guten Morgen", "-", "gone.txt", "gone.tmx.gz", "gone/file", "gone.html"):
        assert places.names_file(name), name
    for text in (
        "Guten Tag",
        "Hallo",
        "Ende.",
        "",
        "Siehe README.md",
        "und/oder nicht",
        "x" * 5000,
        "a\0b",
        "zwei\nZeilen",
    ):
        assert not places.names_file(text), text


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["Guten Morgen", "-"], "'Guten Morgen' is text and - names a file"),
        (["gone.txt"], "input file gone.txt does not exist: expected a path"),
        (["Guten Morgen", "-o", "."], "the text has no name for a file"),
        (["\udcff\udcfe"], "the text looks like UTF-16"),
    ],
)
def test_mistakes_with_text_are_one_sentence(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = command(["--src", "de", *arguments], capsys)
    assert code == 2 and told in err and "rag-mt-" not in err and len(err.splitlines()) == 1


def test_jsonl_has_hints_with_provenance(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    rows = [{"id": i, "text": line} for i, line in enumerate(LINES) if line]
    source.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows) + "not json\n", encoding="utf-8")
    options = ["--src", "de", "--retriever", "ccpr", "--quiet", "--max-new-tokens", "8"]
    assert translate.main([*options, "-o", str(out), str(source)]) == 1
    lines = out.read_text(encoding="utf-8").splitlines()
    assert lines[-1] == "not json"
    made = [json.loads(line) for line in lines[:-1]]
    assert [r["id"] for r in made] == [r["id"] for r in rows]
    hints = [h for r in made for h in r["hints"]]
    assert hints
    for hint in hints:
        assert hint["file"].endswith("en.txt")
        assert hint["line"] > 0
        assert hint["phrase"]
        assert 0 < hint["score"] <= 1.01


def test_po_is_filled_in_place(tmp_path: Path) -> None:
    source, out = tmp_path / "in.po", tmp_path / "out.po"
    source.write_text(
        'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
        '#: a.c:1\nmsgid "The printer is switched off."\n'
        'msgstr ""\n\nmsgid "Save"\nmsgstr "Speichern"\n',
        encoding="utf-8",
    )
    assert (
        translate.main(["--src", "en", "--tgt", "de", "--retriever", "none", "--quiet", "-o", str(out), str(source)])
        == 0
    )
    entries = {e.msgid: e for e in polib.pofile(str(out))}
    assert entries["Save"].msgstr == "Speichern"
    assert entries["The printer is switched off."].msgstr not in ("", "The printer is switched off.")
    assert "fuzzy" in entries["The printer is switched off."].flags


MISTAKES = [
    (["--src", "xx", "TEXT"], "'xx'"),
    (["--src", "en", "TEXT"], "both English"),
    (["--src", "de", "no-such-file.txt"], "no-such-file.txt"),
    (["--src", "de", "BINARY"], "PNG image"),
    (["--src", "de", "--format", "docx", "TEXT"], "'docx'"),
    (["--src", "de", "--retriever", "magic", "TEXT"], "'magic'"),
    (["--src", "de", "--index", "no-such-index", "TEXT"], "no-such-index"),
    (["--src", "de", "--llm", "no/such/model", "TEXT"], "no/such/model"),
    (["--src", "de", "--retriever", "ccpr", "--encoder", "embedded:nothing", "TEXT"], "embedded:nothing"),
    (["--src", "de", "--wrapper", "poem", "TEXT"], "'poem'"),
    (["--src", "de", "--tgt", "is", "--retriever", "ccpr", "TEXT"], "Icelandic"),
    (["--src", "de", "--retriever", "none", "--llm", "openai:m@http://127.0.0.1:9/v1", "TEXT"], "127.0.0.1:9"),
    (["--src", "de", "-o", "no-such-folder/out.txt", "TEXT"], "no-such-folder"),
    (["--src", "de", "-o", "TEXT", "TEXT"], "overwrite"),
    (["--src", "de", "-o", "/dev/null", "TEXT"], "/dev/null"),
    (["--src", "de", "TEXT", "TEXT"], "-o DIR"),
    (["--src", "de", "--batch-size", "0", "TEXT"], "'0'"),
    (["--src", "de", "--context", "-1", "TEXT"], "'-1' is not a whole number from 0 on"),
    (["--src", "de", "--formality", "polite", "TEXT"], "'polite'"),
    (["--src", "de", "--formality", "more", "TEXT"], "formality cannot be asked of embedded:gemma-3-270m"),
    (["--src", "de", "--instruction", "en=gone.txt", "TEXT"], "the instruction gone.txt cannot be read"),
    (["TEXT"], "--src"),
]


@pytest.mark.parametrize(("arguments", "told"), MISTAKES, ids=[told for _, told in MISTAKES])
def test_mistakes_are_one_sentence(
    arguments: list[str], told: str, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    binary = tmp_path / "picture.txt"
    binary.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    places = {"TEXT": str(text), "BINARY": str(binary)}
    code, out, err = command([*(places.get(a, a) for a in arguments), "--quiet"], capsys)
    assert code == 2
    assert out == ""
    assert told in err
    last = err.strip().splitlines()[-1]
    assert told in last
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("options", "data", "told"),
    [
        ([], b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "PNG image"),
        (["--format", "xliff"], b"no xml", "not well-formed"),
        (["--format", "tmx"], b'<tmx a="\n\n" a=""/>', "not well-formed"),
    ],
)
def test_standard_input_is_named_in_errors(
    options: list[str], data: bytes, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data), isatty=lambda: False))
    code, _, err = command(["--src", "de", *options], capsys)
    assert code == 2
    assert told in err
    assert "standard input" in err and "rag-mt-" not in err and len(err.splitlines()) == 1


def test_a_guessed_column_of_standard_input_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"id\twording\n7\tHallo\n"), isatty=bool))
    monkeypatch.setattr(translate, "_translator", lambda options: None)
    monkeypatch.setattr(translate, "_translate_file", lambda *_: None)
    code, _, err = command(["--src", "de", "--format", "tsv"], capsys)
    assert code == 0 and "standard input: none of its 2 columns is named de, so column 1 (id) is read" in err


@pytest.mark.parametrize(("data", "told"), [(b"", "is empty"), (b"a\r\nb\n", "has mixed line ends")])
def test_notes_on_standard_input_name_no_folder(
    data: bytes, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data), isatty=bool))
    monkeypatch.setattr(translate, "_translator", lambda options: None)
    monkeypatch.setattr(translate, "_translate_file", lambda *_: None)
    code, _, err = command(["--src", "de"], capsys)
    assert code == 0 and err.startswith(f"standard input {told}")


def test_a_cache_that_cannot_be_made_is_named(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("RAG_MT_CACHE", str(tmp_path / "file" / "cache"))
    code, _, err = command(["--src", "de", "--retriever", "ccpr", "--quiet", str(text)], capsys)
    assert code == 2
    assert "file/cache cannot be made (Not a directory)" in err and "RAG_MT_CACHE" in err.splitlines()[-1]


def test_a_file_that_cannot_be_read_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad, out = tmp_path / "good.txt", tmp_path / "bad.txt", tmp_path / "out"
    good.write_text("Guten Morgen.\n")
    bad.write_bytes("Guten Morgen.\n".encode("utf-16"))
    out.mkdir()
    names = [str(bad), str(good)]
    code, _, err = command(["--src", "de", "--retriever", "none", "--quiet", "-o", str(out), *names], capsys)
    assert code == 1 and [path.name for path in out.iterdir()] == ["good.txt"]
    assert f"left out: {bad} looks like UTF-16" in err and "1 of 2 files could not be read" in err
    code, _, err = command(["--src", "de", "--retriever", "none", "--quiet", "-o", str(out), str(bad)], capsys)
    assert code == 2 and "looks like UTF-16" in err


def test_bad_lines_are_reported_and_passed_through(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "in.txt", tmp_path / "out.txt"
    long = b"wort " * 210_000  # 1 MB on one line
    source.write_bytes(b"Guten Morgen.\r\n\xff\xfe kaputt\n" + long + b"\nGute Nacht.\n")
    code, _, err = command(["--src", "de", "--retriever", "none", "--quiet", "-o", str(out), str(source)], capsys)
    assert code == 1
    lines = out.read_bytes().split(b"\n")
    assert lines[0].endswith(b"\r")
    assert lines[1] == b"\xff\xfe kaputt"
    assert lines[2] == long
    assert lines[3].strip()
    for told in (f"{source}:2", f"{source}:3", "skipped 2 lines", "line ends"):
        assert told in err


def test_an_empty_file_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.txt").touch()
    out = tmp_path / "out.txt"
    code, _, err = command(["--src", "de", "--retriever", "none", "-o", str(out), str(tmp_path / "empty.txt")], capsys)
    assert code == 0
    assert out.read_bytes() == b""
    assert "nothing to translate" in err


def test_a_damaged_index_is_refused(tmp_path: Path, text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = tmp_path / "index"
    assert cli.main(["index", "build", str(index), str(EXAMPLES / "news.en.txt"), "--lang", "en", "--quiet"]) == 0
    with (index / "spans.npy").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x07")
    code, _, err = command(["--src", "de", "--index", str(index), "--quiet", str(text)], capsys)
    assert code == 2
    assert "spans.npy" in err


@pytest.mark.parametrize(
    ("kept", "more", "answers", "answers_left"),
    [
        pytest.param(1, [], 8, 7, marks=pytest.mark.slow),
        pytest.param(5, [], 8, 3, marks=pytest.mark.slow),
        (3, ["--context", "2"], 16, 10),
    ],
)
def test_a_killed_job_goes_on_with_equal_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    kept: int, more: list[str], answers: int, answers_left: int,
) -> None:  # fmt: skip
    """kill -9 after so many sentences; the resumed run asks the model for all the others.

    In float32: what bfloat16 gives hangs on the number of threads too, and the killed process has its own.
    """
    source = tmp_path / "long.txt"
    places = ("Bonn", "Köln", "Trier", "Mainz", "Kiel", "Ulm", "Jena", "Halle")
    source.write_text("".join(f"Der Zug nach {place} kommt.\n" for place in places), "utf-8")
    asked: list[str] = []
    read = SentenceTask.read

    def counted(self: SentenceTask, prompt: Prompt, completion: Completion) -> None:
        asked.append(self.sentence.text)
        read(self, prompt, completion)

    monkeypatch.setattr(SentenceTask, "read", counted)
    options = ["--src", "de", "--retriever", "none", "--quiet", "--batch-size", "4", "--max-new-tokens", "4"]
    options += ["--dtype", "float32", *more]
    whole, killed = tmp_path / "whole.txt", tmp_path / "killed.txt"
    assert translate.main([*options, "-o", str(whole), str(source)]) in (0, 1)
    assert len(asked) == answers

    command_line = [sys.executable, "-c", KILLED, str(kept), *options, "-o", str(killed), str(source)]
    process = subprocess.run(command_line, cwd=ROOT, capture_output=True, check=False)
    assert process.returncode == -signal.SIGKILL, process.stderr.decode()
    journal = tmp_path / "killed.txt.rag-mt-journal"
    assert journal.exists()
    assert not killed.exists()

    asked.clear()
    capsys.readouterr()
    assert translate.main([*options, "-o", str(killed), str(source)]) in (0, 1)
    assert f"kept {kept} of 8 sentences" in capsys.readouterr().err
    assert len(asked) == answers_left
    assert killed.read_bytes() == whole.read_bytes()
    assert not list(tmp_path.glob(".*")), "what the killed process left is gone"
    assert not list(tmp_path.glob("*journal*"))


def test_of_several_files_those_that_were_finished_are_not_translated_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C within the second file."""
    names, out = [tmp_path / "one.txt", tmp_path / "two.txt"], tmp_path / "out"
    names[0].write_text("Der Zug kommt.\n", "utf-8")
    names[1].write_text("Der Bus kommt.\nDas Schiff kommt.\n", "utf-8")
    options = ["--src", "de", "--retriever", "none", "--quiet", "--batch-size", "1", "--max-new-tokens", "4"]
    options += ["-o", f"{out}/", "--review", str(tmp_path / "review.tsv"), *map(str, names)]
    asked: list[str] = []
    add = Journal.add

    def interrupted(self: Journal, numbers: Sequence[int], translations: Sequence[Translation]) -> None:
        add(self, numbers, translations)
        asked.extend(translation.source.text for translation in translations)
        if len(asked) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Journal, "add", interrupted)
    code, _, err = command(options, capsys)
    assert code == 130 and "1 of 2 sentences are kept" in err and (out / "one.txt").exists()
    code, _, err = command(options, capsys)
    assert code in (0, 1) and "kept 1 of 1 sentences" in err and "kept 1 of 2 sentences" in err
    assert len(asked) == 3 and len(set(asked)) == 3
    assert sorted(path.name for path in out.iterdir()) == ["one.txt", "two.txt"], "no journal is left"
    assert "of 3 texts" in err, "the review is of all files"


def test_a_slash_at_the_end_of_an_output_means_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "out"
    for name in ("one.txt", "two.txt"):
        (tmp_path / name).write_text("Guten Tag.\n", "utf-8")
        options = ["--src", "de", "--retriever", "none", "--quiet", "--max-new-tokens", "4", "-o", f"{out}/"]
        assert command([*options, str(tmp_path / name)], capsys)[0] in (0, 1)
    assert sorted(path.name for path in out.iterdir()) == ["one.txt", "two.txt"]


@pytest.mark.parametrize(
    ("output", "names", "message"),
    [
        ("file/", ["a.txt"], "file is a file or cannot be written"),
        ("file/new/", ["a.txt"], "file is a file or cannot be written"),
        ("new", ["a.txt", "b.txt"], "end its name with / to have it made"),
        ("folder/", ["-"], "standard input has no name"),
    ],
)
def test_outputs_that_cannot_be_are_refused(tmp_path: Path, output: str, names: list[str], message: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=message):
        places.outputs_for(f"{tmp_path}/{output}", names)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--review", "text.de.txt"], "--review text.de.txt would overwrite the input text.de.txt"),
        (["--review", "terms.csv", "--glossary", "terms.csv"], "would overwrite the input terms.csv"),
        (["--review", "out.txt", "-o", "out.txt"], "--review out.txt is where the translation is written"),
        (["--review", "."], "--review . is no file"),
        (["--review", "text.de.txt/review.tsv"], "--review text.de.txt/review.tsv cannot be written"),
        (["-o", "terms.csv", "--glossary", "terms.csv"], "would overwrite the input terms.csv"),
        (["-o", "text.de.txt/out.txt"], "does not exist or cannot be written"),
    ],
)
def test_what_is_read_is_not_written_over(
    options: list[str], told: str, text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before a model is loaded."""
    monkeypatch.setattr(translate, "_translator", lambda options: pytest.fail("a model is loaded"))
    monkeypatch.chdir(text.parent)
    Path("terms.csv").write_text("de,en\nStadtrat,assembly\n", encoding="utf-8")
    before = {path: path.read_bytes() for path in text.parent.iterdir()}
    code, _, err = command(["--src", "de", "--quiet", *options, text.name], capsys)
    assert code == 2 and told in err.replace(f"{text.parent}/", "") and len(err.splitlines()) == 1
    assert {path: path.read_bytes() for path in text.parent.iterdir()} == before


def test_a_journal_of_other_settings_is_refused(tmp_path: Path, text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.txt"
    Journal(Path(f"{out}.rag-mt-journal"), {"llm": "another"}).close()
    options = ["--src", "de", "--retriever", "none", "--quiet", "-o", str(out), str(text)]
    code, _, err = command(options, capsys)
    assert code == 2
    assert "--restart" in err
    assert command([*options, "--restart"], capsys)[0] == 0
    assert out.exists()
