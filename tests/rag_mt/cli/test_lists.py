"""`rag-mt list`, `cache`, `examples`, `train` and `eval`: what there is, what is kept, and where commands are."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from rag_mt import Index
from rag_mt.base.files import locked, release
from rag_mt.cli import cache, examples, listing, modules
from rag_mt.cli.main import main
from rag_mt.models.weights import shipped_models
from retrievers.index.places import KINDS
from retrievers.registry import RETRIEVERS

MODEL, INDEX, TRIAL = "models/e5-0123abcd-2", "indexes/ccpr-en-0123456789ab", "trials/lora-0123abcd"


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with something of every kind, and folders beside that are not the program's."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("RAG_MT_CACHE", str(folder))
    mine = ["models/mine", "indexes/mine", "trials/mine"]
    others = ["bitext/de-en", "passage-runs/xquad", "server/indexes/uploads"]
    for place in [MODEL, INDEX, TRIAL, *others, *mine]:
        (folder / place).mkdir(parents=True)
        file = folder / place / "file"
        file.write_bytes(b"x" * 1000)
        for path in (file, file.parent):
            os.utime(path, (0, time.time() - 2 * cache.RECENT))
    (folder / "hashes.sqlite").touch()
    return folder


def test_the_cache_is_listed(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "list"]) == 0
    assert str(kept) in capsys.readouterr().out
    assert main(["cache", "list", "--json"]) == 0
    rows = {row["kind"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows.keys() == cache.KINDS.keys()
    assert rows["models"]["number"] == 1 and rows["models"]["bytes"] == 1000 and rows["evaluations"]["number"] == 2


def test_what_can_be_made_again_is_cleared_and_uploads_only_by_name(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cache", "clear", "models"]) == 0
    assert capsys.readouterr().out == "models: 1 removed, 1.0 kB\n"
    assert not (kept / MODEL).exists() and (kept / INDEX).exists()
    assert main(["cache", "clear"]) == 0
    out = capsys.readouterr()
    assert "models: nothing to remove" in out.out and "rag-mt cache clear server" in out.err
    left = sorted(str(path.parent.relative_to(kept)) for path in kept.rglob("file"))
    assert left == ["indexes/mine", "models/mine", "server/indexes/uploads", "trials/mine"], "mine is not the program's"
    assert main(["cache", "clear", "server"]) == 0
    assert not (kept / "server" / "indexes" / "uploads").exists() and (kept / "indexes" / "mine").exists()
    assert main(["cache", "clear", "modles"]) == 2
    assert "no kind 'modles'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "place", "lock"),
    [
        ("indexes", INDEX, ".ccpr-en-0123456789ab.lock"),
        ("indexes", INDEX, ".ccpr-en-0123456789ab.unfinished.lock"),
        ("server", "server/indexes/uploads", "..uploads-abc.lock"),
    ],
)
def test_what_another_process_works_on_stays(
    kind: str, place: str, lock: str, kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = locked((kept / place).with_name(lock))
    assert held
    try:
        assert main(["cache", "clear", kind]) == 1
        assert f"{place} stays: process {os.getpid()} is working on it" in capsys.readouterr().err
        assert (kept / place).exists()
    finally:
        release(held)
    assert main(["cache", "clear", kind]) == 0
    assert not (kept / place).exists()


def test_a_training_has_no_lock_and_stays_while_it_writes(kept: Path) -> None:
    (kept / TRIAL / "checkpoint").touch()
    assert main(["cache", "clear", "trials"]) == 1
    assert (kept / TRIAL).exists()


@pytest.mark.parametrize("what", ["models", "retrievers", "languages", "configs", "indexes"])
def test_every_list_is_a_table_and_json(what: str, kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = [str(kept)] if what == "indexes" else []
    assert main(["list", what, *where, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert main(["list", what, *where]) == 0
    lines = capsys.readouterr().out.splitlines()
    if what == "indexes":
        assert rows == [] and "rag-mt index build" in lines[0]
    else:
        assert len(lines) == len(rows) + 1
        assert all(line.startswith(next(iter(row.values()))) for line, row in zip(lines[1:], rows, strict=True))


def test_lists_hold_what_the_code_has(kept: Path) -> None:
    assert [name for name, _, _ in listing.RETRIEVERS] == list(RETRIEVERS)
    for name, _, model in listing.RETRIEVERS:
        assert model == (RETRIEVERS[name].encoder if RETRIEVERS[name].needs_index and name != "bm25" else "")
    rows = {row["name"]: row for row in listing.models()}
    assert shipped_models().keys() < rows.keys()
    assert rows["ccpr-e5-small"]["installed"] and rows["ccpr-e5-small"]["bytes"] > 1_000_000
    assert rows["embedded:e5-small"]["unpacked"] is False
    assert all(row["purpose"] for row in listing.configs())


def test_own_indexes_are_found_where_they_are_and_below(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = {"retriever": "ccpr", "language": "en", "sentences": 7}
    for place, contents in (("own/news", manifest), ("own/pairs", {"pairs": 3})):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "manifest.json").write_text(json.dumps(contents))
    for folder in ("own", "own/news"):
        rows = listing.indexes([tmp_path / folder])
        assert [(row["index"], row["sentences"]) for row in rows] == [(str(tmp_path / "own" / "news"), 7)]
    assert main(["list", "indexes", str(tmp_path / "gone")]) == 2
    assert main(["list", "models", "here"]) == 2


def test_examples_are_written_and_none_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "examples"
    assert main(["examples", str(folder)]) == 0
    assert "news.de.txt" in capsys.readouterr().out
    train = [line.split("\t") for line in (folder / "data/train/de-en.tsv").read_text("utf-8").splitlines()]
    dev = [line.split("\t") for line in (folder / "data/dev/de-en.tsv").read_text("utf-8").splitlines()]
    assert {len(row) for row in train} == {3} and {len(row) for row in dev} == {2}
    assert not {row[0] for row in train} & {row[0] for row in dev} and len(train) > 5 * len(dev)
    assert main(["examples", str(folder)]) == 0, "the same files may be there"
    (folder / "news.de.txt").write_text("Mein Text.\n", "utf-8")
    (folder / "news.en.txt").unlink()
    assert main(["examples", str(folder)]) == 2
    assert "news.de.txt is there and differs" in capsys.readouterr().err
    assert not (folder / "news.en.txt").exists(), "nothing is written if one file is refused"
    assert main(["examples", str(folder), "--replace"]) == 0
    assert (folder / "news.de.txt").read_text("utf-8") == examples.example_files()["news.de.txt"]


def test_commands_of_training_and_evaluation_are_named_and_called(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train"]) == 0
    assert "\n  lora.data " in capsys.readouterr().out
    assert {"translation", "report", "speed.llm"} <= modules.commands(modules.ROOMS["eval"]).keys()
    assert main(["train", "lorra"]) == 2
    assert "did you mean lora" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["train", "held_out", "--data", "x"])
    assert capsys.readouterr().err.startswith("rag-mt train held_out: the following arguments are required: --output")
    assert main(["train", "held_out", "--data", "/nowhere", "--output", "x"]) == 2


def test_without_a_command_there_is_an_overview(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().err.count("\n  rag-mt ") == 3


def test_an_index_in_an_engine_is_listed_by_its_place(
    tmp_path: Path, kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("lancedb")
    Index.build(tmp_path / "i", texts=["The museum is closed."], language="en", retriever="sentence", show=False)
    place = f"lance:{tmp_path}/copy"
    Index.open(tmp_path / "i").copy(place)
    assert main(["list", "indexes", place, str(tmp_path / "i"), "--json"]) == 0
    listed = [row for row in json.loads(capsys.readouterr().out) if row["kind"] == "own"]
    assert [row["index"] for row in listed] == [place, str(tmp_path / "i")]
    assert {**listed[0], "index": "", "bytes": 0} == {**listed[1], "index": "", "bytes": 0}
    assert listed[0]["bytes"] is None and main(["list", "indexes", place]) == 0
    assert main(["list", "indexes", "lance:/none/x"]) == 2
    assert "index lance:/none/x does not exist: copy one there" in capsys.readouterr().err
    assert tuple(f"{name}:" for name in KINDS) == listing.ENGINES
