"""Copying an index out of an engine, and from one engine to another: what the folder had, the copy has."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_mt import Index
from rag_mt.base.errors import UserError
from rag_mt.base.types import Encoder, Sentence
from rag_mt.cli.main import main
from retrievers.index.build import build_index
from retrievers.index.compression import compress_index
from retrievers.index.copying import copy_index
from retrievers.index.manifest import change_manifest, read_manifest
from retrievers.index.opening import open_index
from retrievers.index.replacing import REPLACED, building_place, copying_place
from retrievers.index.verifying import verify_index
from retrievers.registry import build_for, open_retriever
from tests.retrievers.index.stored import NEW, OLD, TERMS, build, same
from tests.retrievers.index.test_index import FixedUnits, build_fixed, unit_rows

pytest.importorskip("lancedb")
pytest.importorskip("qdrant_client")

pytestmark = pytest.mark.usefixtures("unsynced")
Fake = Callable[..., Any]
WRITTEN = ("sentences.arrow", "manifest.json")
"""Files whose bytes tell in what portions sentences were written."""
ENGINES = ["lance", "qdrant"]


@pytest.fixture(params=ENGINES)
def pair(request: pytest.FixtureRequest, tmp_path: Path, fake: Fake) -> tuple[Path, Path]:
    """A folder with an index that has a cut-off, terms and an adapter, and its copy in an engine."""
    build(tmp_path / "i", fake(), OLD, terms=TERMS)
    cut_off = {"de": {"score": 0.25, "drop": 0.5, "sentences": 3}}
    change_manifest(tmp_path / "i", read_manifest(tmp_path / "i"), "x", lambda m: replace(m, thresholds=cut_off))
    (tmp_path / "i/adapters/de").mkdir(parents=True)
    (tmp_path / "i/adapters/de/empty.json").touch()
    copy = Path(f"{request.param}:{tmp_path}/copy")
    copy_index(tmp_path / "i", copy)
    return tmp_path / "i", copy


def test_a_copy_of_a_copy_has_the_same_files(pair: tuple[Path, Path], tmp_path: Path) -> None:
    copy_index(pair[1], tmp_path / "back")
    assert same(pair[0], tmp_path / "back") and verify_index(tmp_path / "back")
    names = sorted(path.relative_to(pair[0]) for path in pair[0].rglob("*"))
    assert names == sorted(path.relative_to(tmp_path / "back") for path in (tmp_path / "back").rglob("*"))
    for name in names:
        if (pair[0] / name).is_file() and name.name not in WRITTEN:
            assert (tmp_path / "back" / name).read_bytes() == (pair[0] / name).read_bytes(), name
    assert not copying_place(tmp_path / "back").exists()


def test_what_was_changed_in_an_engine_comes_back(pair: tuple[Path, Path], tmp_path: Path, fake: Fake) -> None:
    for sentences, without in ((NEW + OLD[:3], []), ((), ["f'1.txt"]), (NEW[3:5], ["new.txt"])):
        for folder in pair:
            build(folder, fake(), sentences, without=without, terms=TERMS)
    copy_index(pair[1], tmp_path / "back")
    assert same(pair[0], tmp_path / "back") and verify_index(tmp_path / "back")
    manifests = [read_manifest(folder) for folder in (pair[0], tmp_path / "back")]
    ours, theirs = (replace(m, files={n: f for n, f in m.files.items() if n not in WRITTEN}) for m in manifests)
    assert ours == theirs
    for folder in (pair[0], tmp_path / "back"):  # it goes on as the folder does
        build(folder, fake(), OLD[:9], without=["f'0.txt"], terms=TERMS)
    assert same(pair[0], tmp_path / "back")


def test_hints_are_those_of_the_first_folder(tmp_path: Path, e5: Encoder, parallel: dict[str, list[Sentence]]) -> None:
    build_for("memory", tmp_path / "i", parallel["en"][:9], e5, "en", show=False)
    places = [tmp_path / "i", Path(f"lance:{tmp_path}/l"), Path(f"qdrant:{tmp_path}/q"), tmp_path / "back"]
    for source, target in pairwise(places):
        copy_index(source, target)
    hints = []
    for folder in places:
        retriever = open_retriever("memory", folder, e5, source_language="de", target_language="en")
        hints.append(retriever.retrieve(parallel["de"]))
    assert hints[-1] == hints[0] and any(hints[0])
    for ours, theirs in zip(hints[0], hints[2], strict=True):
        assert [hint.hit.sentence for hint in ours] == [hint.hit.sentence for hint in theirs]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("bits", "rerank"), [(8, True), (8, False), (4, False)])
def test_compressed_vectors(tmp_path: Path, engine: str, bits: int, rerank: bool) -> None:
    build_fixed(tmp_path / "i", unit_rows(np.random.default_rng(2), 300, 8))
    compress_index(tmp_path / "i", bits, rerank, None)
    copy = Path(f"{engine}:{tmp_path}/copy")
    assert copy_index(tmp_path / "i", copy).rerank is False
    manifest = copy_index(copy, tmp_path / "back")
    assert verify_index(tmp_path / "back") and manifest == read_manifest(tmp_path / "back")
    ours, theirs = open_index(tmp_path / "i"), open_index(tmp_path / "back")
    assert theirs.manifest.codes == (None if rerank else {"bits": bits, "rerank": False})
    vectors = ours.reconstruct(np.arange(300))
    if rerank:
        np.testing.assert_array_equal(theirs.reconstruct(np.arange(300)), vectors)
    else:
        assert np.abs(theirs.reconstruct(np.arange(300)) - vectors).mean() < 0.01


def test_many_units_are_put_into_lists(tmp_path: Path) -> None:
    vectors = unit_rows(np.random.default_rng(2), 2000, 8)
    sentences = [Sentence(str(n), "en") for n in range(len(vectors))]
    options: dict[str, Any] = {"retriever": "x", "language": "en", "show": False, "form": "ivf"}
    build_index(tmp_path / "i", sentences, FixedUnits(vectors), **options)
    copy_index(tmp_path / "i", Path(f"lance:{tmp_path}/copy"))
    copy_index(Path(f"lance:{tmp_path}/copy"), tmp_path / "back", form="ivf")
    ours, theirs = open_index(tmp_path / "i"), open_index(tmp_path / "back")
    assert theirs.manifest.ivf == ours.manifest.ivf
    np.testing.assert_array_equal(theirs.search(vectors[:50], 3)[1], ours.search(vectors[:50], 3)[1])


def test_a_folder_is_replaced_on_request_alone(pair: tuple[Path, Path], tmp_path: Path, fake: Fake) -> None:
    build(tmp_path / "other", fake(), NEW)
    before = open_index(tmp_path / "other")
    with pytest.raises(UserError, match="exists already: give another folder, or --replace"):
        copy_index(pair[1], tmp_path / "other")
    assert len(open_index(tmp_path / "other")) == len(before)
    assert main(["index", "copy", str(pair[1]), str(tmp_path / "other"), "--replace", "--quiet"]) == 0
    assert same(pair[0], tmp_path / "other") and before.sentence(0).text == NEW[0].text
    (tmp_path / "files").mkdir()
    (tmp_path / "files/a.txt").touch()
    with pytest.raises(UserError, match="holds other files and no index"):
        copy_index(pair[1], tmp_path / "files", replace=True)
    with pytest.raises(UserError, match="is no place in LanceDB or Qdrant"):
        copy_index(pair[0], tmp_path / "second")


@pytest.mark.parametrize("when", ["_write_vectors", "write_manifest", "sync", "rename"])
def test_a_copy_that_is_killed_starts_again(tmp_path: Path, fake: Fake, when: str) -> None:
    pair, target = (tmp_path / "i", Path(f"lance:{tmp_path}/copy")), tmp_path / "back"
    build(pair[0], fake(), OLD)
    copy_index(*pair)
    copy_index(pair[1], target)
    stop = "os.kill(os.getpid(), signal.SIGKILL)"
    code = (
        "import os, signal, sys; from pathlib import Path; from retrievers.index import folder, copying\n"
        f"def die(*a): {stop}\n"
        f"if {when!r} == 'rename':\n"
        "    real = Path.rename\n"
        f"    Path.rename = lambda self, to: real(self, to) if to.name == {REPLACED!r} else die()\n"
        f"else: setattr(folder, {when!r}, die)\n"
        "copying.copy_index(Path(sys.argv[1]), Path(sys.argv[2]), replace=True)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(pair[1]), str(target)], env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL
    assert target.exists() == (when != "rename") and copying_place(target).is_dir()
    if target.exists():
        assert same(pair[0], target)
    copy_index(pair[1], target, replace=True)
    assert same(pair[0], target) and not copying_place(target).exists()


@pytest.mark.parametrize("place", [copying_place, building_place])
def test_an_index_that_a_kill_left_aside_is_read(
    tmp_path: Path, fake: Fake, place: Callable[[Path], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    build(tmp_path / "b", fake(), OLD)
    first = open_index(tmp_path / "b").reconstruct(np.arange(1))
    tries: list[Callable[[], object]] = [
        lambda: main(["index", "info", str(tmp_path / "b")]),
        lambda: open_index(tmp_path / "b").search(first, 1)[1].item(),
        lambda: build(tmp_path / "b", fake(), NEW, without=["f'1.txt"]).resumed,
    ]
    for again in tries:
        work = place(tmp_path / "b")
        work.mkdir(exist_ok=True)
        (tmp_path / "b").rename(work / REPLACED)
        assert again() == 0, capsys.readouterr().err
        assert (tmp_path / "b").is_dir() and not (work / REPLACED).exists()


def test_an_index_that_cannot_be_put_back_is_told(tmp_path: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path / "b", fake(), OLD)
    copying_place(tmp_path / "b").mkdir()
    (tmp_path / "b").rename(copying_place(tmp_path / "b") / REPLACED)
    monkeypatch.setattr(Path, "rename", refusing)
    with pytest.raises(UserError, match=r"^a copy that was killed left index .*b in .*replaced, .*disk error 5"):
        read_manifest(tmp_path / "b")


def refusing(path: Path, to: Path) -> None:
    raise OSError(5, "disk error 5", str(path))


@pytest.mark.parametrize("job", ["copy", "build"])
def test_an_error_while_an_index_is_replaced_leaves_it(
    pair: tuple[Path, Path], tmp_path: Path, fake: Fake, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path / "b", fake(), NEW)
    before, rename = read_manifest(tmp_path / "b"), Path.rename
    new = {"copy": "index", "build": "merged"}[job]
    monkeypatch.setattr(Path, "rename", lambda path, to: (refusing if path.name == new else rename)(path, to))
    with pytest.raises(UserError, match=r"b cannot be written \(disk error 5\)"):
        if job == "copy":
            copy_index(pair[1], tmp_path / "b", replace=True)
        else:
            build(tmp_path / "b", fake(), OLD, replace=True)
    monkeypatch.undo()
    assert (tmp_path / "b").is_dir() and read_manifest(tmp_path / "b") == before


@pytest.mark.parametrize("target", [".", "..", "../here"])
def test_the_current_folder_is_no_place_for_a_copy(
    pair: tuple[Path, Path], tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "around/here").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "around/here")
    assert main(["index", "copy", str(pair[1]), target, "--quiet"]) == 2
    said = capsys.readouterr().err
    assert "is the current folder or above it" in said and said.count("\n") == 1
    assert main(["index", "info", target]) == 2 and "is no index" in capsys.readouterr().err
    assert main(["index", "copy", str(pair[1]), "new/../back", "--quiet"]) == 0 and same(pair[0], Path("back"))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("what", ["vectors", "sentences", "files"])
def test_what_is_wrong_with_the_source_is_told_of_it(
    tmp_path: Path, fake: Fake, engine: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path / "i", fake(), OLD, terms=TERMS)
    index, target = open_index(tmp_path / "i"), Path(f"{engine}:{tmp_path}/copy")

    def broken(*_: Any, **__: Any) -> Any:
        raise OSError("disk error 5")

    if what == "files":
        monkeypatch.setattr("retrievers.index.copying.pieces_of", lambda *_: iter(map(broken, [0])))
    else:
        monkeypatch.setattr(type(index), "reconstruct" if what == "vectors" else "sentences", broken)
    if what == "sentences":
        monkeypatch.setattr(type(index), "sentences", property(broken))
    with pytest.raises(UserError, match=rf"^index {tmp_path}/i cannot be read \(disk error 5\): `rag-mt index verify"):
        copy_index(tmp_path / "i", target)


def test_damage_of_an_engine_is_told_of_it(pair: tuple[Path, Path], tmp_path: Path) -> None:
    index = open_index(pair[1])
    if "lance" in str(pair[1]):
        index._units.checkout_latest()  # type: ignore[attr-defined]
        index._units.delete("unit = 3")  # type: ignore[attr-defined]
        monkey = {"units": {**read_manifest(pair[1]).files["units"], "version": index._units.version}}  # type: ignore[attr-defined]
        change_manifest(pair[1], read_manifest(pair[1]), "x", lambda m: replace(m, files={**m.files, **monkey}))
    else:
        index._client.delete(index._collection, [3])  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=rf"^index {pair[1]} is damaged"):
        copy_index(pair[1], tmp_path / "back")
    assert not (tmp_path / "back").exists() and not copying_place(tmp_path / "back").exists()


def test_by_python(pair: tuple[Path, Path], tmp_path: Path) -> None:
    back = Index.open(pair[1]).copy(tmp_path / "back")
    assert back.folder == tmp_path / "back" and back.describe() == Index.open(pair[0]).describe().replace(
        str(pair[0]), str(back.folder)
    )
