"""An index in Qdrant: what a folder gives, it gives, in the local mode and from a server, after every change too."""

from __future__ import annotations

import json
import pickle
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_mt import Index, Only
from rag_mt.base.errors import UserError
from rag_mt.base.types import Encoder, Origin, Sentence, TranslatedSentence
from rag_mt.cli.main import main
from retrievers.calibration import set_confidence
from retrievers.ccpr.confidence import FILE
from retrievers.index.beside import local_files
from retrievers.index.build import build_index
from retrievers.index.compression import compress_index
from retrievers.index.copying import copy_index
from retrievers.index.manifest import change_manifest, read_manifest
from retrievers.index.opening import open_index
from retrievers.index.places import KINDS
from retrievers.index.vectors import tune_nprobe
from retrievers.index.verifying import verify_index
from retrievers.memory.units import MemoryUnits
from tests.retrievers.index.stored import NEW, OLD, TERMS, build, refuses, same, same_hints
from tests.retrievers.index.test_build import StopHereError, stopping
from tests.retrievers.index.test_index import build_fixed, unit_rows

pytest.importorskip("qdrant_client")

from retrievers.index.qdrant import copying, place
from retrievers.index.qdrant.place import connected, place_of
from tests.retrievers.index.qdrant_server import Server, running

pytestmark = pytest.mark.usefixtures("unsynced")
Fake = Callable[..., Any]


def qdrant(where: Path | str) -> Path:
    return Path(f"qdrant:{where}")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Server, str]]:
    """A server, and the place of an index there."""
    for _ in range(20):  # the ports of HTTP and gRPC follow each other
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        try:
            socket.create_server(("127.0.0.1", port + 1)).close()
            break
        except OSError:
            continue
    monkeypatch.setattr(place, "_CLIENTS", {})
    monkeypatch.setattr(place, "WAITS", (0.01, 0.01))
    monkeypatch.setattr(copying, "POLL", 0.01)
    with running(port + 1) as stand_in:
        yield stand_in, f"qdrant:http://127.0.0.1:{port}/letters"


@pytest.fixture(params=["folder", "server"])
def pair(request: pytest.FixtureRequest, tmp_path: Path, fake: Fake) -> tuple[Path, Path]:
    """A folder with a phrase index, and its copy."""
    copy = qdrant(tmp_path / "copy") if request.param == "folder" else Path(request.getfixturevalue("server")[1])
    build(tmp_path / "i", fake(), OLD)
    copy_index(tmp_path / "i", copy)
    return tmp_path / "i", copy


def test_a_copy_holds_and_finds_the_same(pair: tuple[Path, Path]) -> None:
    assert same(*pair)
    assert verify_index(pair[1])[-1] == f"{len(open_index(pair[0]))} vectors have length 1"
    old, new = (read_manifest(folder) for folder in pair)
    assert replace(new, files=old.files) == old
    assert open_index(pair[1]).search(np.zeros((0, 16), np.float32), 3)[1].shape == (0, 3)


def test_equal_scores_come_by_number(tmp_path: Path, server: tuple[Server, str]) -> None:
    rng = np.random.default_rng(3)
    different = unit_rows(rng, 4, 8)
    build_fixed(tmp_path / "i", different[rng.integers(0, 4, 60)])
    for copy in (qdrant(":memory:"), Path(server[1])):
        copy_index(tmp_path / "i", copy, replace=True)
        assert same(tmp_path / "i", copy)
        for k in (1, 3, 10, 40):
            ours, theirs = (open_index(folder).search(different, k)[1] for folder in (tmp_path / "i", copy))
            np.testing.assert_array_equal(theirs, ours)


@pytest.mark.parametrize("terms", [None, TERMS])
def test_added_and_removed_files_give_what_a_folder_gives(pair: tuple[Path, Path], fake: Fake, terms: Any) -> None:
    if terms:
        build(pair[0], fake(), OLD, terms=terms, replace=True)
        copy_index(pair[0], pair[1], replace=True)
    before = open_index(pair[1])
    nearest = before.search(before.reconstruct(np.arange(5)), 3)[1]
    for number, (sentences, without) in enumerate(
        ((NEW + OLD[:3], []), ((), ["f'1.txt"]), (NEW[3:5] + OLD[:9], ["new.txt", "f'0.txt"]))
    ):
        encoders = [fake(), fake()]
        for folder, encoder in zip(pair, encoders, strict=True):
            build(folder, encoder, sentences, without=without, terms=terms)
        assert same(*pair) and encoders[0].encoded == encoders[1].encoded
        if not number:  # who had it open goes on with it as it was
            assert np.array_equal(before.search(before.reconstruct(np.arange(5)), 3)[1], nearest)
        if terms:
            ours, theirs = (open_index(folder).terms for folder in pair)
            assert np.array_equal(ours.scores([{"word1": 1}]), theirs.scores([{"word1": 1}]))
    assert verify_index(pair[1])
    with pytest.raises(UserError, match="was replaced meanwhile: open it again"):
        before.search(np.ones((1, 16), np.float32), 1)


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(str.strip)
origin = st.builds(Origin, st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 2**40), st.integers(0, 9))


@settings(max_examples=15, deadline=None)
@given(sentences=st.lists(st.tuples(texts, origin), min_size=1, max_size=6))
def test_any_text_comes_back_as_it_was(fake: Fake, sentences: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder) / "i", fake(), [Sentence(f"{text} word", "en", origin) for text, origin in sentences])
        copy_index(Path(folder) / "i", qdrant(":memory:"), replace=True)
        assert same(Path(folder) / "i", qdrant(":memory:"))


def test_odd_text_comes_back_from_a_server(tmp_path: Path, server: tuple[Server, str], fake: Fake) -> None:
    odd = ["a\0b c", "line\u2028end \U0001f600", "e\u0301 \u202e right", '\'; DROP "x" {}$']
    build(tmp_path / "i", fake(), [Sentence(text, "en", Origin(text, 2**40, 3)) for text in odd])
    copy_index(tmp_path / "i", Path(server[1]))
    assert same(tmp_path / "i", Path(server[1]))


def test_hints_of_every_dense_retriever_are_the_same(
    tmp_path: Path, e5: Encoder, parallel: dict[str, list[Sentence]]
) -> None:
    same_hints(tmp_path, "qdrant:", e5, parallel)


def test_an_index_of_phrases_with_its_own_confidence(
    tmp_path: Path, server: tuple[Server, str], capsys: pytest.CaptureFixture[str]
) -> None:
    sentences = ["The city council meets on Monday.", "The museum is closed on public holidays."]
    index = Index.build(tmp_path / "i", texts=sentences, language="en", retriever="ccpr")
    confidence = local_files(Path(index.folder)) / FILE
    shutil.copy2(next(Path(sys.modules["rag_mt"].__path__[0]).glob(f"models/weights/ccpr-e5-small/{FILE}")), confidence)
    copy = index.copy(server[1])
    assert (local_files(copy.folder) / FILE).read_bytes() == confidence.read_bytes()
    asked = "Das Museum ist an Feiertagen geschlossen."
    shown = [(hint.phrase, round(hint.hit.score, 4)) for hint in index.search(asked, "de")]
    assert shown and [(h.phrase, round(h.hit.score, 4)) for h in Index.open(server[1]).search(asked, "de")] == shown
    set_confidence(open_index(copy.folder), 0.999, "de")
    assert read_manifest(copy.folder).cut_off("de", "confidence") == 0.999
    (tmp_path / "new.txt").write_text("The library opens at nine.\n", encoding="utf-8")
    copy.add(tmp_path / "new.txt")
    assert copy.sentences == 3 and read_manifest(copy.folder).cut_off("de", "confidence") == 0.999
    copy.remove(tmp_path / "new.txt")
    assert main(["index", "info", server[1], "--files"]) == 0
    assert "2\ttexts" in capsys.readouterr().out
    assert main(["search", "--index", server[1], "--src", "de", asked]) == 0


def test_a_server_looks_at_some_files_alone(tmp_path: Path, server: tuple[Server, str], fake: Fake) -> None:
    """Its conditions of numbers, files and what is empty arrive."""
    sentences = [
        TranslatedSentence(f"word{n} is here", "en", Origin(f"{n // 4 % 3}.txt", n), f"Wort{n}" if n < 4 else "")
        for n in range(40)
    ]
    build_index(
        tmp_path / "i", sentences, MemoryUnits(fake()), retriever="memory", language="en", show=False, terms=TERMS
    )
    place = Path(server[1])
    copy_index(tmp_path / "i", place)
    vectors = unit_rows(np.random.default_rng(1), 6, 16)
    for files, known in ((("0.txt",), True), (("1.txt", "2.txt"), False)):
        ours, theirs = (open_index(index).within(Only(files)) for index in (tmp_path / "i", place))
        assert theirs.searched == ours.searched and theirs.has_originals == ours.has_originals == known
        np.testing.assert_array_equal(theirs.chosen, ours.chosen)
        for k, without in ((3, None), (40, [0, 5])):
            np.testing.assert_array_equal(theirs.search(vectors, k, without)[1], ours.search(vectors, k, without)[1])


def test_a_server_searches_a_graph_and_its_ef_is_tuned(tmp_path: Path, server: tuple[Server, str]) -> None:
    from qdrant_client import grpc as services

    rng = np.random.default_rng(5)
    vectors = unit_rows(rng, 300, 8)
    build_fixed(tmp_path / "i", vectors)
    compress_index(tmp_path / "i", 8, True, None)
    manifest = copy_index(tmp_path / "i", Path(server[1]), form="ivf")
    assert manifest.ivf is not None and manifest.ivf["measured"]["own vectors"]["recall"] >= 0.99
    assert "HNSW search with ef 2 (recall@1 1.000 on own vectors)" in manifest.describe() and manifest.codes is None
    created = next(request for name, request in server[0].requests if name == "Create")
    config = created.vectors_config.params_map.map["unit"]
    assert config.datatype == services.Datatype.Float16
    assert config.quantization_config.scalar.type == services.QuantizationType.Int8
    index = open_index(Path(server[1]))
    assert np.array_equal(index.search(vectors[:40], 5)[1], open_index(tmp_path / "i").search(vectors[:40], 5)[1])
    searches = [request.query_points[0].params for name, request in server[0].requests if name == "QueryBatch"]
    assert not searches[-1].exact and searches[-1].hnsw_ef == 2
    probes = tune_nprobe(index, vectors[:40], source="de")
    assert read_manifest(index.folder).ivf["measured"]["de"]["nprobe"] == probes and index.manifest.ivf["graph"]
    with pytest.raises(UserError, match="looks at all vectors: leave --form out"):
        copy_index(tmp_path / "i", qdrant(tmp_path / "copy"), form="ivf")
    assert "hnsw" in index.manifest.describe().lower() and not (tmp_path / "copy").exists()


def test_vectors_in_8_bits_stay_when_an_index_is_changed_or_copied(
    tmp_path: Path, server: tuple[Server, str], fake: Fake
) -> None:
    build(tmp_path / "i", fake(), OLD)
    compress_index(tmp_path / "i", 8, True, None)
    copy, second = Path(server[1]), Path(f"{server[1]}-2")
    copy_index(tmp_path / "i", copy, form="ivf")
    build(copy, fake(), NEW, without=[], form="ivf")
    build(copy, fake(), (), without=["f'1.txt"], form="ivf")
    copy_index(copy, second, form="ivf")
    made = [request.vectors_config.params_map.map["unit"] for name, request in server[0].requests if name == "Create"]
    assert [config.HasField("quantization_config") for config in made] == [True] * 4
    assert read_manifest(copy).codes is None and verify_index(copy)
    copy_index(tmp_path / "i", qdrant(tmp_path / "copy"))
    copy_index(qdrant(tmp_path / "copy"), copy, form="exact", replace=True)
    build(copy, fake(), NEW, without=[], form="ivf")
    made = [request.vectors_config.params_map.map["unit"] for name, request in server[0].requests if name == "Create"]
    assert [config.HasField("quantization_config") for config in made[4:]] == [False, True]


@pytest.mark.parametrize("point", ["sentences", "manifest", "alias"])
def test_nothing_half_made_is_served(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    def killed(*_: Any) -> None:
        raise StopHereError

    target = Path(f"{pair[1]}-new") if "http" in str(pair[1]) else pair[1].with_name("copy-new")
    where = {"sentences": "_write_sentences", "manifest": "manifest_point", "alias": "read_stored"}[point]
    for copy, replacing in ((target, False), (pair[1], True)):
        with monkeypatch.context() as context:
            if point == "alias":
                context.setattr(type(connected(copy, new=True)), "update_collection_aliases", killed)
            else:
                context.setattr(copying, where, killed)
            with pytest.raises((StopHereError, UserError)):
                copy_index(pair[0], copy, replace=replacing)
    with pytest.raises(UserError, match="is not complete, its copy was interrupted: copy one there"):
        read_manifest(target)
    assert same(*pair)
    copy_index(pair[0], target)
    assert same(pair[0], target)
    copy_index(pair[0], pair[1], replace=True)
    copy_index(pair[0], pair[1], replace=True)
    names = [entry.name for entry in connected(pair[1]).get_collections().collections]
    own = f"{place_of(pair[1]).name}."
    assert len([name for name in names if name.startswith(own)]) == 2  # this one and the one before


def test_a_change_that_was_killed_has_changed_nothing(pair: tuple[Path, Path], fake: Fake) -> None:
    for sentences in (stopping(NEW, 1), stopping(NEW, 11)):
        with pytest.raises(StopHereError):
            build(pair[1], fake(), sentences, without=["f'0.txt"])
        assert same(*pair)


def test_a_change_of_others_meanwhile_is_not_lost(pair: tuple[Path, Path], fake: Fake) -> None:
    def meanwhile() -> Any:
        yield from NEW[:5]
        build(pair[1], fake(), NEW[5:], without=[])

    with pytest.raises(UserError, match="changed by others during its change"):
        build(pair[1], fake(), meanwhile(), without=[])
    known = read_manifest(pair[1])

    def cut(manifest: Any) -> Any:
        change_manifest(pair[1], known, "calibration", lambda m: replace(m, thresholds={"fr": {"score": 0.1}}))
        return replace(manifest, thresholds={"de": {"score": 0.2}})

    with pytest.raises(UserError, match="changed by others during its calibration"):
        change_manifest(pair[1], known, "calibration", cut)
    assert list(read_manifest(pair[1]).thresholds) == ["fr"]
    build(pair[0], fake(), NEW[5:], without=[])
    assert same(*pair)


def test_a_copy_that_was_overtaken_does_not_delete_what_is_there_now(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = copying.collections_of

    def overtaken(*args: Any) -> list[str]:
        monkeypatch.setattr(copying, "collections_of", listed)
        copy_index(*pair, replace=True)
        return listed(*args)

    monkeypatch.setattr(copying, "collections_of", overtaken)
    with pytest.raises(UserError, match="changed by others during its copy"):
        copy_index(*pair, replace=True)
    assert same(*pair)


def test_a_copy_that_is_gone_at_once_is_refused(tmp_path: Path, fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    build(tmp_path / "i", fake(), OLD[:3])
    assert main(["index", "copy", str(tmp_path / "i"), "qdrant::memory:", "--replace"]) == 2
    assert "would be gone with this command: give qdrant:FOLDER" in capsys.readouterr().err


def test_what_cannot_be_is_refused_with_a_sentence(
    pair: tuple[Path, Path], tmp_path: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"is no index \(it has no meta.json\)"):
        read_manifest(qdrant(tmp_path / "empty"))
    refuses(*pair, tmp_path, fake, monkeypatch)


@pytest.mark.parametrize(
    "name",
    ["", "http://", "http://host", "http://host:6333/", "http://host:x/a", "http://host:99999999/a", "ftp://host/a",
     "http://host/a%2Fb", "http://host/a:b", "http://host/a*", "http://host/" + "a" * 300, "https://user:secret@host/a",
     "http://host/a?key=1", "s3://bucket/a"],
)  # fmt: skip
def test_hostile_places_are_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", "info", f"qdrant:{name}"]) == 2
    said = capsys.readouterr().err
    assert KINDS["qdrant"].places in said or "give a key in the environment" in said
    assert "Traceback" not in said


def test_places() -> None:
    found = place_of(Path("qdrant:http://[::1]:7000/prefix/a"))
    assert found == place.Place("http://[::1]:7000/prefix", "a", "::1", 7001)
    assert place_of("qdrant:https://host/a") == place.Place("https://host:6333", "a", "host", 6334)
    assert place_of("qdrant:../x").folder == Path("../x") and place_of("qdrant::memory:").folder is None


def test_damage_and_collections_of_others_are_told(pair: tuple[Path, Path]) -> None:
    from qdrant_client import models

    index, copy = pair
    client, found = connected(copy), open_index(copy)
    client.delete(found._collection, [3])
    with pytest.raises(UserError, match="is damaged: its collection has"):
        open_index(copy)
    with pytest.raises(UserError, match="is damaged: of 1 points 0 are there"):
        found.reconstruct(np.array([3]))
    for text in ("no JSON", "{}", "[]"):
        point = models.PointStruct(id=1 << 60, vector={}, payload={"manifest": text, "revision": 1})
        client.upsert(found._collection, [point])
        with pytest.raises(UserError, match="is damaged"):
            read_manifest(copy)
    copy_index(index, copy, replace=True)
    assert same(index, copy)
    other = copy.with_name("others")
    if "http" in str(copy):
        client.create_collection("others", vectors_config=models.VectorParams(size=2, distance=models.Distance.DOT))
        with pytest.raises(UserError, match="is a collection of others: give another name"):
            copy_index(index, other)


@pytest.mark.parametrize("contents", ["../../out", "0123456789ab"])
def test_files_that_are_not_those_of_the_manifest_are_refused(
    tmp_path: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch, contents: str
) -> None:
    copy = qdrant(":memory:")
    build(tmp_path / "i", fake(), OLD[:3], terms=TERMS)
    monkeypatch.setattr("retrievers.index.copying.contents_of", lambda files: contents)
    copy_index(tmp_path / "i", copy, replace=True)
    monkeypatch.setattr("retrievers.index.beside.cache_dir", lambda: tmp_path / "cache")
    with pytest.raises(UserError, match=r"is damaged: its .* hash"):
        local_files(copy)
    assert not any((tmp_path / "cache").glob("indexes/*"))


@pytest.mark.parametrize("payload", [None, {}, {"name": "x"}, {"name": 3, "data": ""}, {"name": "x", "data": "a"}])
def test_pieces_of_files_that_are_none_are_told(tmp_path: Path, fake: Fake, payload: Any) -> None:
    from qdrant_client import models

    copy = qdrant(tmp_path / "copy")
    build(tmp_path / "i", fake(), OLD[:3], terms=TERMS)
    copy_index(tmp_path / "i", copy)
    point = models.PointStruct(id=1 << 50, vector={}, payload=payload)
    connected(copy).upsert(open_index(copy)._collection, [point])
    with pytest.raises(UserError, match="is damaged: "):
        local_files(copy)


def killed_copy(tmp_path: Path, fake: Fake) -> Path:
    """The folder of an index in Qdrant that no client has open, in which there is the one before it, too."""
    build(tmp_path / "i", fake(), OLD)
    copy_index(tmp_path / "i", qdrant(tmp_path / "copy"))
    copy_index(tmp_path / "i", qdrant(tmp_path / "copy"), replace=True)
    return Path(shutil.copytree(tmp_path / "copy", tmp_path / "killed"))


def goes_on(tmp_path: Path, killed: Path) -> None:
    """Assert that an index that was killed can be read and copied anew."""
    assert main(["index", "info", f"qdrant:{killed}"]) == 0
    assert same(tmp_path / "i", qdrant(killed))
    assert main(["index", "copy", str(tmp_path / "i"), f"qdrant:{killed}", "--replace", "--quiet"]) == 0
    assert same(tmp_path / "i", qdrant(killed))


def test_a_write_that_was_killed_is_rolled_back(tmp_path: Path, fake: Fake) -> None:
    killed = killed_copy(tmp_path, fake)
    code = (
        "import os, signal, sqlite3, sys; database = sqlite3.connect(sys.argv[1]); "
        "database.execute('PRAGMA cache_size=1'); database.execute('UPDATE points SET point = zeroblob(length(point))')"
        "; os.kill(os.getpid(), signal.SIGKILL)"
    )
    for storage in killed.glob("collection/*/storage.sqlite"):
        assert subprocess.run([sys.executable, "-c", code, storage], check=False).returncode == -signal.SIGKILL
        assert storage.with_name("storage.sqlite-journal").stat().st_size > 512
    hostile = shutil.copytree(killed, tmp_path / "hostile")
    goes_on(tmp_path, killed)
    others = tmp_path / "others"
    others.write_text("/no/journal\0", encoding="utf-8")
    for journal in hostile.glob("collection/*/*-journal"):  # sqlite would delete the file that is named there
        name = bytes(others)
        size, total = len(name).to_bytes(4, "big"), sum(name).to_bytes(4, "big")
        with journal.open("ab") as end:
            end.write(bytes(4) + name + size + total + bytes.fromhex("d9d505f920a163d7"))
    with pytest.raises(UserError, match="is damaged or not safe to read"):
        read_manifest(qdrant(hostile))
    assert others.exists()


@pytest.mark.parametrize("left", ["nothing", "folder", "empty"])
def test_a_deletion_that_was_killed_is_no_damage(tmp_path: Path, fake: Fake, left: str) -> None:
    killed = killed_copy(tmp_path, fake)
    meta = json.loads((killed / "meta.json").read_text("utf-8"))
    [old] = meta["collections"].keys() - set(meta["aliases"].values())
    shutil.rmtree(killed / "collection" / old)
    if left != "nothing":
        (killed / "collection" / old).mkdir()
    if left == "empty":
        (killed / "collection" / old / "storage.sqlite").touch()
    goes_on(tmp_path, killed)


@pytest.mark.parametrize("sql", ["VIEW points AS SELECT id, data AS point FROM t", "TRIGGER a AFTER INSERT ON t BEGIN "
                                 "SELECT 1; END", "TABLE points2 (id TEXT)", "INDEX more ON t (data)"])  # fmt: skip
def test_a_folder_with_more_than_a_table_of_points_is_refused(tmp_path: Path, fake: Fake, sql: str) -> None:
    evil = killed_copy(tmp_path, fake)
    storage = next(evil.glob("collection/*/storage.sqlite"))
    with sqlite3.connect(storage) as database:
        database.execute("ALTER TABLE points RENAME TO t")
        database.execute("ALTER TABLE t RENAME COLUMN point TO data")
        database.execute(f"CREATE {sql}")
        if "VIEW" not in sql:
            database.execute("ALTER TABLE t RENAME COLUMN data TO point")
            database.execute("ALTER TABLE t RENAME TO points")
    with pytest.raises(UserError, match=r"is damaged or not safe to read: storage\.sqlite has more than a table"):
        read_manifest(qdrant(evil))


def test_a_folder_that_would_run_code_is_refused(tmp_path: Path, fake: Fake) -> None:
    build(tmp_path / "i", fake(), OLD[:3])
    copy_index(tmp_path / "i", qdrant(tmp_path / "copy"))
    evil = tmp_path / "evil"
    shutil.copytree(tmp_path / "copy", evil)
    [storage] = evil.glob("collection/*/storage.sqlite")
    marker = tmp_path / "marker"

    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (marker,)

    with sqlite3.connect(storage) as database:
        database.execute("INSERT INTO points VALUES ('x', ?)", (pickle.dumps(Evil()),))
    with pytest.raises(UserError, match="is damaged or not safe to read"):
        read_manifest(qdrant(evil))
    assert not marker.exists()
    outside = tmp_path / "outside"
    shutil.move(storage.parent, outside)  # the list of collections names a folder elsewhere
    meta = json.loads((evil / "meta.json").read_text("utf-8"))
    meta["collections"] = {"../../outside": next(iter(meta["collections"].values()))}
    (evil / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    with pytest.raises(UserError, match="is damaged or not safe to read"):
        read_manifest(qdrant(evil))
    assert not marker.exists()
    (outside / "storage.sqlite").write_bytes(b"x" * 5000)
    with pytest.raises(UserError, match="is damaged or not safe to read"):
        read_manifest(qdrant(evil))
    (tmp_path / "copy" / "meta.json").write_text("{", encoding="utf-8")
    shutil.copytree(tmp_path / "copy", tmp_path / "broken")
    for text in ("{", "{}", "[]", '{"collections": 3}'):
        (tmp_path / "broken" / "meta.json").write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match=r"meta\.json is damaged: delete .*, and `rag-mt index copy DIR qdrant:"):
            read_manifest(qdrant(tmp_path / "broken"))


def test_a_folder_is_for_one_process_and_many_threads(tmp_path: Path, fake: Fake) -> None:
    build(tmp_path / "i", fake(), OLD)
    copy = qdrant(tmp_path / "copy")
    copy_index(tmp_path / "i", copy)
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda seed: same(tmp_path / "i", copy, seed), range(8)))
    other = subprocess.run(
        [sys.executable, "-m", "rag_mt", "index", "info", str(copy)], capture_output=True, text=True, check=False
    )
    assert other.returncode == 2 and "Traceback" not in other.stderr
    assert "is in use by another process" in other.stderr and "copy the index to a server" in other.stderr


def test_a_server_that_is_away_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    begin = time.monotonic()
    assert main(["index", "info", f"qdrant:http://127.0.0.1:{port - 1}/a"]) == 2
    said = capsys.readouterr().err
    assert f"port {port} of gRPC" in said and "Traceback" not in said and time.monotonic() - begin < 5


def test_a_server_is_asked_again_but_not_for_ever(
    tmp_path: Path, fake: Fake, server: tuple[Server, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from grpc import StatusCode

    build(tmp_path / "i", fake(), OLD[:5])
    copy_index(tmp_path / "i", Path(server[1]))
    server[0].faults += [StatusCode.UNAVAILABLE, StatusCode.RESOURCE_EXHAUSTED]
    assert same(tmp_path / "i", Path(server[1]))
    for faults, said in (
        ([StatusCode.UNAVAILABLE] * 3, "does not answer"),
        ([StatusCode.UNAUTHENTICATED], "cannot be read or written"),
        ([StatusCode.DEADLINE_EXCEEDED], "does not answer"),
    ):
        server[0].faults += faults
        with pytest.raises(UserError, match=rf"{said} \(planned by the test\)"):
            read_manifest(Path(server[1]))
        assert not server[0].faults


def test_a_key_goes_only_where_others_cannot_read_it(
    tmp_path: Path, fake: Fake, server: tuple[Server, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path / "i", fake(), OLD[:5])
    monkeypatch.setenv(place.KEY, "secret")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copy_index(tmp_path / "i", Path(server[1]))
    monkeypatch.setattr(socket, "create_connection", None)  # nothing is asked
    for host in ("192.0.2.1", "example.org", "localhost.example.org"):
        with pytest.raises(UserError, match=f"the key of {place.KEY} would go unencrypted .* https://"):
            read_manifest(Path(f"qdrant:http://{host}/a"))


@pytest.mark.parametrize("version", ["1.15.5", "1.9.12", "0.11.0"])
def test_a_server_that_is_too_old_is_told(server: tuple[Server, str], version: str) -> None:
    server[0].version = version
    with pytest.raises(UserError, match=f"needs Qdrant 1.16 or newer, this is {version}"):
        read_manifest(Path(server[1]))
    server[0].version = "1.16.0"
    with pytest.raises(UserError, match="does not exist"):
        read_manifest(Path(server[1]))
