"""An index in LanceDB: what a folder gives, it gives, after every change too."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_mt import Index
from rag_mt.base.errors import AwayError, UserError
from rag_mt.base.sizes import bytes_below
from rag_mt.base.types import Encoder, Origin, Sentence
from rag_mt.cli.main import main
from retrievers.calibration import set_confidence
from retrievers.ccpr.confidence import FILE
from retrievers.index import stored
from retrievers.index.beside import local_files
from retrievers.index.build import build_index
from retrievers.index.compression import compress_index
from retrievers.index.copying import copy_index
from retrievers.index.lance import place, tables
from retrievers.index.lance.files import stored_files
from retrievers.index.lance.lists import lists_for
from retrievers.index.lance.numbering import Numbering, condition, runs_of
from retrievers.index.lance.place import local_folder, uri_of
from retrievers.index.lance.search import LanceIndex
from retrievers.index.manifest import read_manifest
from retrievers.index.opening import open_index
from retrievers.index.places import TIMEOUT
from retrievers.index.vectors import tune_nprobe
from retrievers.index.verifying import verify_index
from tests.retrievers.index.stored import NEW, OLD, TERMS, build, refuses, same, same_hints
from tests.retrievers.index.test_build import StopHereError, stopping
from tests.retrievers.index.test_index import FixedUnits, build_fixed, unit_rows

pytest.importorskip("lancedb")

Fake = Callable[..., Any]


def lance(folder: Path) -> Path:
    return Path(f"lance:{folder}")


@pytest.fixture
def pair(tmp_path: Path, fake: Fake) -> tuple[Path, Path]:
    """A folder with a phrase index, and its copy."""
    build(tmp_path / "i", fake(), OLD)
    copy_index(tmp_path / "i", lance(tmp_path / "copy"))
    return tmp_path / "i", lance(tmp_path / "copy")


def test_a_copy_holds_and_finds_the_same(pair: tuple[Path, Path]) -> None:
    assert same(*pair)
    assert verify_index(pair[1])[-1] == f"{len(open_index(pair[0]))} vectors have length 1"
    old, new = (read_manifest(folder) for folder in pair)
    assert replace(new, files=old.files) == old
    assert pair[1].name == "copy" and open_index(pair[1]).search(np.zeros((0, 16), np.float32), 3)[1].shape == (0, 3)


def test_equal_scores_come_by_number(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    different = unit_rows(rng, 4, 8)
    build_fixed(tmp_path / "i", different[rng.integers(0, 4, 60)])
    copy_index(tmp_path / "i", lance(tmp_path / "copy"))
    assert same(tmp_path / "i", lance(tmp_path / "copy"))
    for k in (1, 3, 10, 40):
        ours, theirs = (open_index(f).search(different, k)[1] for f in (tmp_path / "i", lance(tmp_path / "copy")))
        np.testing.assert_array_equal(theirs, ours)


@pytest.mark.parametrize(("terms", "pieces"), [(None, 0), (None, 16), (TERMS, 16)])
def test_added_and_removed_files_give_what_a_folder_gives(
    pair: tuple[Path, Path], fake: Fake, terms: Any, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "PIECES", pieces)  # 0: tables are compacted each time
    if terms:
        build(pair[0], fake(), OLD, terms=terms, replace=True)
        copy_index(pair[0], pair[1], replace=True)
    before = open_index(pair[1])
    nearest = before.search(before.reconstruct(np.arange(5)), 3)[1]
    for sentences, without in ((NEW + OLD[:3], []), ((), ["f'1.txt"]), (NEW[3:5] + OLD[:9], ["new.txt", "f'0.txt"])):
        encoders = [fake(), fake()]
        for folder, encoder in zip(pair, encoders, strict=True):
            build(folder, encoder, sentences, without=without, terms=terms)
        assert same(*pair) and encoders[0].encoded == encoders[1].encoded
        assert verify_index(pair[1])
        if terms:
            ours, theirs = (open_index(folder).terms for folder in pair)
            assert np.array_equal(ours.scores([{"word1": 1}]), theirs.scores([{"word1": 1}]))
    # Who had it open goes on with it as it was.
    assert np.array_equal(before.search(before.reconstruct(np.arange(5)), 3)[1], nearest) and len(before.texts([200]))


step = st.tuples(st.lists(st.integers(0, 40), max_size=6), st.sets(st.integers(0, 3), max_size=2))


@settings(max_examples=6, deadline=None)
@given(steps=st.lists(step, max_size=3))
def test_any_changes_give_what_a_folder_gives(fake: Fake, steps: Any) -> None:
    def sentences(numbers: Any) -> list[Sentence]:
        return [Sentence(f"number {n} of {n % 3}", "en", Origin(f"{n % 4}.txt", n)) for n in numbers]

    with tempfile.TemporaryDirectory() as folder:
        one, other = Path(folder) / "i", lance(Path(folder) / "copy")
        build(one, fake(), sentences(range(0, 40, 7)))
        copy_index(one, other)
        for added, removed in steps:
            refused = []
            for index in (one, other):
                try:
                    build(index, fake(), sentences(added), without=[f"{n}.txt" for n in removed])
                except UserError as error:
                    refused.append(str(error).partition(":")[0])
            assert len(refused) in (0, 2)
            assert same(one, other)


def test_a_change_that_was_killed_has_changed_nothing(pair: tuple[Path, Path], fake: Fake) -> None:
    for sentences in (stopping(NEW, 1), stopping(NEW, 11)):
        with pytest.raises(StopHereError):
            build(pair[1], fake(), sentences, without=["f'0.txt"])
        assert same(*pair)
    for folder in pair:
        build(folder, fake(), NEW, without=[])
    assert same(*pair)


def test_what_is_the_index_stays_until_a_change_is_committed(
    pair: tuple[Path, Path], fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "OLD_AFTER", timedelta(seconds=0.1))  # instead of days
    monkeypatch.setattr(tables, "PIECES", 0)
    time.sleep(0.3)

    def killed(*_: Any) -> None:
        raise StopHereError

    with monkeypatch.context() as context:
        context.setattr("retrievers.index.lance.changing.commit", killed)
        for sentences, without in ((NEW, []), ([], ["f'0.txt"])):
            with pytest.raises(StopHereError):
                build(pair[1], fake(), sentences, without=without)
            assert same(*pair)
    for folder in pair:
        build(folder, fake(), NEW, without=["f'0.txt"])
    assert same(*pair)


@pytest.mark.parametrize("file", ["f'0.txt", "f'2.txt"])
def test_rows_that_others_left_do_not_join_a_change(
    pair: tuple[Path, Path], fake: Fake, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.setattr("retrievers.index.lance.changing.one_writer", lambda *_: nullcontext())  # an object store

    def killed(*_: Any) -> None:
        raise StopHereError

    def meanwhile() -> Any:
        again = [Sentence(s.text.replace("here", "there"), "en", s.source) for s in OLD if s.source.file == file]
        with monkeypatch.context() as context:
            context.setattr("retrievers.index.lance.changing.commit", killed)
            with pytest.raises(StopHereError):
                build(pair[1], fake(), again, without=[file])
        yield from NEW

    with pytest.raises(UserError, match="changed by others during its change"):
        build(pair[1], fake(), meanwhile(), without=[])
    assert same(*pair)
    for folder in pair:
        build(folder, fake(), NEW, without=[])
    assert same(*pair)


def test_many_equal_vectors_are_found_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = np.repeat(unit_rows(np.random.default_rng(3), 2, 8), 200, axis=0)
    build_fixed(tmp_path / "i", vectors)
    copy_index(tmp_path / "i", lance(tmp_path / "copy"))
    monkeypatch.setattr(stored, "FOUND_AT_ONCE", 900)
    found, nearest = list[int](), LanceIndex._nearest

    def counted(*options: Any) -> Any:
        found.append(len(options[1]) * options[3])
        return nearest(*options)

    monkeypatch.setattr(LanceIndex, "_nearest", counted)
    queries = vectors[::40]
    ours, theirs = (open_index(folder).search(queries, 3) for folder in (tmp_path / "i", lance(tmp_path / "copy")))
    np.testing.assert_allclose(theirs[0], ours[0], atol=1e-6)
    np.testing.assert_array_equal(theirs[1], ours[1])
    assert max(found) <= 900


def test_vectors_in_lists_are_found_and_lists_are_tuned(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    vectors = np.repeat(unit_rows(rng, 100, 16), 30, axis=0) + 0.1 * rng.standard_normal((3000, 16), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    build_fixed(tmp_path / "i", vectors)
    manifest = copy_index(tmp_path / "i", lance(tmp_path / "copy"), form="ivf")
    assert manifest.ivf is not None and manifest.ivf["nlist"] == lists_for(3000) and "IVF" in manifest.describe()
    exact, lists = open_index(tmp_path / "i"), open_index(lance(tmp_path / "copy"))
    queries = vectors[::30] + 0.05 * rng.standard_normal((100, 16), dtype=np.float32)
    assert (exact.search(queries, 1)[1] == lists.search(queries, 1)[1]).mean() >= 0.98
    assert np.array_equal(exact.search(queries, 5)[1], lists.search(queries, 5, probes=10**6)[1])
    assert lists.search(queries, 2000)[1].min() >= 0  # more lists are looked into where they hold too little
    probes = tune_nprobe(lists, queries, source="de")
    assert read_manifest(lists.folder).ivf["measured"]["de"]["nprobe"] == probes
    assert lists_for(10) == 1 and lists_for(10**6) == 2048 and lists_for(10**12) == 4096


def test_a_copy_of_a_compressed_index_has_smaller_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "PIECES", 0)  # tables are compacted each time
    rng = np.random.default_rng(5)
    vectors = np.repeat(unit_rows(rng, 100, 16), 30, axis=0) + 0.1 * rng.standard_normal((3000, 16), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    build_fixed(tmp_path / "i", vectors)
    copy_index(tmp_path / "i", lance(tmp_path / "whole"), form="ivf")
    compress_index(tmp_path / "i", 4, True, None)
    copy_index(tmp_path / "i", lance(tmp_path / "few"), form="ivf")
    sizes = [bytes_below(tmp_path / name / "units.lance" / "_indices") for name in ("few", "whole")]
    assert sizes[0] < sizes[1] * 0.8
    queries = vectors[::30] + 0.05 * rng.standard_normal((100, 16), dtype=np.float32)

    def right(folder: Path) -> LanceIndex:
        index = open_index(folder)
        assert isinstance(index, LanceIndex) and index.manifest.files["units"]["bits"] == 2
        assert "IvfPq" in [entry.index_type for entry in index._units.list_indices()]
        best = index.search(queries, 1, probes=10**6)  # all vectors
        assert (index.search(queries, 1)[1] == best[1]).mean() >= 0.98
        products = queries @ index.reconstruct(np.arange(len(index))).T
        np.testing.assert_allclose(best[0][:, 0], products.max(axis=1), atol=1e-5)
        return index

    right(lance(tmp_path / "few"))
    copy_index(lance(tmp_path / "few"), lance(tmp_path / "again"), form="ivf")
    right(lance(tmp_path / "again"))
    new = [Sentence(str(n + 3000), "en", Origin("new.txt", n)) for n in range(300)]
    options: dict[str, Any] = {"retriever": "x", "language": "en", "show": False, "form": "ivf"}
    for sentences, without in ((new, []), ([], ["new.txt"])):
        build_index(
            lance(tmp_path / "few"),
            sentences,
            FixedUnits(np.concatenate([vectors, vectors[5::10]])),
            without=without,
            **options,
        )
        assert len(right(lance(tmp_path / "few"))) == 3000 + len(sentences)


def test_hints_of_every_dense_retriever_are_the_same(
    tmp_path: Path, e5: Encoder, parallel: dict[str, list[Sentence]]
) -> None:
    same_hints(tmp_path, "lance:", e5, parallel)


def test_an_index_of_phrases_with_its_own_confidence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["The city council meets on Monday.", "The museum is closed on public holidays."]
    index = Index.build(tmp_path / "i", texts=texts, language="en", retriever="ccpr")
    confidence = local_files(Path(index.folder)) / FILE
    shutil.copy2(next(Path(sys.modules["rag_mt"].__path__[0]).glob(f"models/weights/ccpr-e5-small/{FILE}")), confidence)
    copy = index.copy(f"lance:{tmp_path}/copy")
    assert (local_files(copy.folder) / FILE).read_bytes() == confidence.read_bytes()
    asked = "Das Museum ist an Feiertagen geschlossen."
    shown = [
        (hint.phrase, round(hint.hit.score, 4), str(hint.hit.sentence.source)) for hint in index.search(asked, "de")
    ]
    found = Index.open(f"lance:{tmp_path}/copy").search(asked, "de")
    assert shown and [(h.phrase, round(h.hit.score, 4), str(h.hit.sentence.source)) for h in found] == shown
    (tmp_path / "new.txt").write_text("The library opens at nine.\n", encoding="utf-8")
    copy.add(tmp_path / "new.txt")
    assert copy.sentences == 3 and copy.search("Die Bibliothek öffnet um neun.", "de")
    copy.remove(tmp_path / "new.txt")
    set_confidence(open_index(copy.folder), 0.999, "de")
    assert list(copy.files) == ["texts"] and read_manifest(copy.folder).cut_off("de", "confidence") == 0.999
    assert main(["search", "--index", f"lance:{tmp_path}/copy", "--src", "de", asked]) == 0
    assert main(["index", "info", f"lance:{tmp_path}/copy", "--files"]) == 0
    assert "2\ttexts" in capsys.readouterr().out


def test_what_cannot_be_is_refused_with_a_sentence(
    pair: tuple[Path, Path], tmp_path: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for uri in ("lance:", "lance:db://cloud"):
        with pytest.raises(UserError, match="names no database"):
            read_manifest(Path(uri))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"is no index \(it has no table"):
        read_manifest(lance(tmp_path / "empty"))
    refuses(*pair, tmp_path, fake, monkeypatch)


def test_a_damaged_index_and_tables_of_others_are_told(pair: tuple[Path, Path], tmp_path: Path, fake: Fake) -> None:
    import lancedb

    folder = tmp_path / "copy"
    database = lancedb.connect(str(folder))
    for damage in ({"manifest": "{}"}, {"manifest": "no JSON"}, {"revision": 5, "manifest": ""}):
        shutil.copytree(folder, tmp_path / "damaged", dirs_exist_ok=True)
        lancedb.connect(str(tmp_path / "damaged")).open_table("index").update(values=damage)
        with pytest.raises(UserError, match="index copy"):
            open_index(lance(tmp_path / "damaged"))
        shutil.rmtree(tmp_path / "damaged")
    database.drop_table("sentences")
    with pytest.raises(UserError, match="'sentences' is missing; copy it again"):
        open_index(pair[1])
    assert main(["search", "--index", str(pair[1]), "--src", "de", "x"]) == 2
    copy_index(pair[0], pair[1], replace=True)
    assert same(*pair)
    for path in (folder / "units.lance" / "data").iterdir():
        path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(UserError, match="cannot be read"):
        open_index(pair[1]).search(np.ones((1, 16), np.float32), 1)
    others = lancedb.connect(str(tmp_path / "others"))
    others.create_table("units", data=[{"a": 1}])
    with pytest.raises(UserError, match=r"tables of others \(units\)"):
        copy_index(pair[0], lance(tmp_path / "others"))
    others.create_table("index", data=[{"a": 1}])
    with pytest.raises(UserError, match="holds a table 'index' of others"):
        copy_index(pair[0], lance(tmp_path / "others"), replace=True)


def test_a_change_of_others_meanwhile_is_not_lost(pair: tuple[Path, Path], fake: Fake, monkeypatch: Any) -> None:
    class Unlocked:
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr("retrievers.index.lance.changing.one_writer", lambda *_: Unlocked())  # as in an object store

    def meanwhile() -> Any:
        yield from NEW[:5]
        build(pair[1], fake(), NEW[5:], without=[])
        yield from ()

    with pytest.raises(UserError, match="changed by others during its change"):
        build(pair[1], fake(), meanwhile(), without=[])
    build(pair[0], fake(), NEW[5:], without=[])
    assert same(*pair)
    for folder in pair:
        build(folder, fake(), NEW[:5], without=[])
    assert same(*pair)


def test_a_store_that_is_away_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    keys = {"aws_endpoint": "http://127.0.0.1:9", "allow_http": "true", "aws_region": "x", "client_max_retries": "0"}
    secret = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
    monkeypatch.setattr(place, "PATIENCE", {**place.PATIENCE, **keys, **secret})
    assert main(["index", "info", "lance:s3://bucket/index"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "index lance:s3://bucket/index does not answer (Connection refused): see" in told


class Silent:
    """A table whose store is connected and never says a word; its queries are itself."""

    def search(self, *_: object) -> Silent:
        return self

    where = select = limit = search

    def to_arrow(self, *_: object) -> None:
        time.sleep(5)
        raise AssertionError("it was waited for to its end")

    count_rows = to_arrow


@pytest.mark.parametrize(
    "ask",
    [
        lambda index: index.file_column(),
        lambda index: index._count_units(),
        lambda index: index._selected_units(),
        lambda index: index.has_originals,
        lambda index: index.units_of(0),
    ],
)
def test_a_silent_store_is_given_up(pair: tuple[Path, Path], ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    index: Any = open_index(pair[1])
    index.manifest = replace(index.manifest, unit="memory")  # of which there may be originals
    index._units = index._rows = Silent()
    monkeypatch.setenv(TIMEOUT, "0.02")
    with pytest.raises(AwayError, match=r"copy does not answer \(no answer in 0.06 seconds\)"):
        ask(index)


def test_the_files_of_a_silent_store_are_given_up(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = read_manifest(pair[1])
    monkeypatch.setattr("retrievers.index.lance.files.at_version", lambda *_: Silent())
    monkeypatch.setenv(TIMEOUT, "0.02")
    with pytest.raises(AwayError, match="does not answer"):
        next(stored_files(pair[1], manifest))


def test_uris() -> None:
    for uri in ("s3://bucket/a/b", "gs://x/y", "az://x"):
        assert uri_of(Path(f"lance:{uri}")) == uri and local_folder(f"lance:{uri}") is None
    assert uri_of(Path("lance:file:///a/b")) == "/a/b" and local_folder("lance:../x") == Path("../x")


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)), st.integers(0, 5))
def test_numbers_have_no_gaps(there: set[int], gone: set[int], more: int) -> None:
    ids = np.array(sorted(there), np.int64)
    numbering = Numbering(runs_of(ids))
    assert len(numbering) == len(ids) and Numbering(numbering.runs).runs == numbering.runs
    np.testing.assert_array_equal(numbering.ids(np.arange(len(ids))), ids)
    expected = [sorted(there).index(n) if n in there else -1 for n in range(62)]
    assert numbering.numbers(np.arange(62)).tolist() == expected
    left = numbering.without(np.array(sorted(gone), np.int64))
    assert left.ids(np.arange(len(left))).tolist() == sorted(there - gone)
    longer = numbering.extended(numbering.next_id, numbering.next_id + more)
    assert len(longer) == len(ids) + more and longer.ids(np.arange(len(longer)))[len(ids) :].tolist() == [
        *range(numbering.next_id, numbering.next_id + more)
    ]
    with pytest.raises(IndexError, match="expected"):
        numbering.ids(np.array([len(ids)]))
    if there:
        sql = condition("x", ids).replace(" AND ", " and ").replace(" OR ", " or ").replace("IN (", "in (0.5, ")
        assert [n for n in range(62) if eval(sql, {"x": n})] == sorted(there)
