"""Indexes of users' own texts: building, names, limits, and whose they are."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rag_mt.base.errors import UserError
from retrievers.index.manifest import read_manifest
from tests.waiting import until
from ui.server.limits import LimitError, MissingError
from ui.server.service import Service
from ui.server.user_indexes import UserIndex
from ui.server.work import Order

TEXT = "The old house stands on the hill.\nA dog sleeps in the garden.\n123\nThe train leaves at noon.\n"


@pytest.fixture
def upload(tmp_path: Path) -> Callable[..., tuple[str, Path]]:
    """Makes uploads: the name that the user gave, and where the file is."""

    def make(name: str = "mine.txt", content: str | bytes = TEXT) -> tuple[str, Path]:
        path = tmp_path / f"upload{len(list(tmp_path.iterdir()))}"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return name, path

    return make


def built(service: Service, owner: str, name: str, *uploads: tuple[str, Path], **more: Any) -> UserIndex:
    """An index that was built to its end."""
    build = service.indexes.build(owner, name, "en", uploads, "sentence", **more)
    assert build.wait(60)
    assert (build.state, build.error) == ("done", "")
    return service.indexes.get(owner, build.id)


def test_an_index_is_built_listed_renamed_and_deleted(make_service: Any, upload: Any) -> None:
    service = make_service()
    build = service.indexes.build("ann", "Houses", "English", [upload()], "sentence")
    assert list(build.updates(every=0))[-1] == "done"
    assert build.progress == (3, 3)
    assert build.notes == ("skipped 1 lines: 1 no letters",)
    (index,) = service.indexes.of("ann")
    assert (index.name, index.language, index.retriever, index.sentences) == ("Houses", "en", "sentence", 3)
    assert service.indexes.rename("ann", index.id, "My houses").name == "My houses"
    assert [i.name for i in service.indexes.of("ann")] == ["My houses"]
    service.indexes.delete("ann", index.id)
    assert service.indexes.of("ann") == [] == service.indexes.builds.of("ann")
    with pytest.raises(MissingError, match="there is no index"):
        service.indexes.folder_of("ann", index.id)
    assert not list(service.indexes.folder.glob("*/*/*"))


def test_an_index_is_a_memory_where_no_retriever_is_named(make_service: Any, upload: Any) -> None:
    """Its hits need no cut-off: a memory judges them itself."""
    service = make_service()
    build = service.indexes.build("ann", "Houses", "English", [upload()])
    assert build.wait(60) and (build.state, build.error) == ("done", "")
    (index,) = service.indexes.of("ann")
    assert (index.retriever, index.sentences) == ("memory", 3)
    assert read_manifest(service.indexes.folder_of("ann", index.id)).thresholds == {}


def test_its_hints_are_shown_with_the_file_as_its_user_named_it(make_service: Any, upload: Any) -> None:
    service = make_service()
    index = built(service, "ann", "Houses", upload("../../<b>häuser</b>.txt"))
    choice = service.choice("ann", "de", "en", index=index.id)
    translated = service.engine.submit(Order(choice, "The old house stands on the hill.")).result(10)
    (hint,) = translated.sentences[0].hints[:1]
    assert hint.phrase == "The old house stands on the hill."
    assert str(hint.hit.sentence.source) == "b>.txt:1"  # the last part of the path, in which `</b>` has a slash
    assert choice.retriever == "sentence"


def test_nobody_sees_or_touches_what_others_have(make_service: Any, upload: Any) -> None:
    service = make_service()
    index = built(service, "ann", "Secret", upload())
    assert service.indexes.of("bob") == [] == service.indexes.builds.of("bob")
    for attempt in (
        lambda: service.indexes.get("bob", index.id),
        lambda: service.indexes.rename("bob", index.id, "Mine"),
        lambda: service.indexes.delete("bob", index.id),
        lambda: service.indexes.builds.get("bob", index.id),
        lambda: service.choice("bob", "de", "en", index=index.id),
        lambda: service.indexes.get("ann", "../" + index.id),
    ):
        with pytest.raises(MissingError):
            attempt()
    service.delete_owner("bob")
    assert [i.name for i in service.indexes.of("ann")] == ["Secret"]
    service.delete_owner("ann")
    assert service.indexes.of("ann") == []


def test_indexes_outlive_the_server(make_service: Any, upload: Any, tmp_path: Path) -> None:
    first = make_service(folder=tmp_path / "kept")
    index = built(first, "ann", "Houses", upload())
    first.close()
    second = make_service(folder=tmp_path / "kept")
    assert second.indexes.of("ann") == [index]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/passwd", "/../etc/passwd"),
        ("  a\tb\u202e\x00c\n ", "a bc"),
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
        ("", "unnamed"),
        ("...", "unnamed"),
        ("ü" * 300, "ü" * 100),
    ],
)
def test_hostile_names_are_only_names(make_service: Any, upload: Any, name: str, shown: str) -> None:
    service = make_service()
    assert built(service, "ann", name, upload(name or "x")).name == shown
    places = [p.name for p in service.indexes.folder.rglob("*")]
    assert not any("passwd" in p or "script" in p or "plan" in p for p in places)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("book.pdf", b"%PDF-1.7 ...", "book.pdf looks like a PDF"),
        ("empty.txt", b"", "no English sentence"),
        ("digits.txt", b"1 2 3\n4 5\n", "no English sentence"),
        ("bad.txt.gz", gzip.compress(b"x y z", mtime=0)[:12], "bad.txt.gz is a damaged"),
        ("bomb.txt.gz", gzip.compress(b"word " * 400_000, mtime=0), "bomb.txt.gz holds more than 1000000 bytes"),
        ("data.tmx", b"<tmx", "data.tmx"),
    ],
)
def test_files_that_cannot_be_indexed(make_service: Any, upload: Any, name: str, content: bytes, said: str) -> None:
    service = make_service(index_bytes=1_000_000)
    with pytest.raises(UserError, match=said) as error:
        service.indexes.build("ann", "x", "en", [upload(name, content)], "sentence")
    assert "/" not in str(error.value).replace("/index", "")
    assert service.indexes.of("ann") == [] == service.indexes.builds.of("ann")


def test_limits(make_service: Any, upload: Any) -> None:
    service = make_service(indexes=2, all_indexes=3, index_bytes=100)
    built(service, "ann", "one", upload())
    with pytest.raises(UserError, match="named 'one' already"):
        service.indexes.build("ann", "one", "en", [upload()], "sentence")
    with pytest.raises(LimitError, match="at most 100 are allowed"):
        service.indexes.build("ann", "long", "en", [upload(content="word " * 30)], "sentence")
    with pytest.raises(LimitError, match="at most 100"):
        service.indexes.build("ann", "two of them", "en", [upload()] * 2, "sentence")
    built(service, "ann", "two", upload())
    with pytest.raises(LimitError, match="you have 2 indexes"):
        service.indexes.build("ann", "three", "en", [upload()], "sentence")
    built(service, "bob", "one", upload())
    with pytest.raises(LimitError, match="server holds 3"):
        service.indexes.build("bob", "two", "en", [upload()], "sentence")


def test_a_build_can_be_cancelled(make_service: Any, upload: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    service = make_service()
    lines = "\n".join(f"Line number {n} of the text." for n in range(3000))
    build = service.indexes.build("ann", "long", "en", [upload(content=lines)], "sentence")
    build.cancel()
    assert build.wait(60)
    assert build.state == "cancelled"
    service.indexes.delete("ann", build.id)
    assert service.indexes.builds.of("ann") == [] == service.indexes.of("ann")
    # Uploads of a build that had not begun go when its turn comes.
    until(lambda: not list(service.indexes.folder.glob(".uploads-*/*")))


def refused(*_: Any, **__: Any) -> None:
    raise UserError("the text is odd")


def test_a_build_that_fails_says_why(make_service: Any, upload: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    service = make_service()
    monkeypatch.setattr("ui.server.user_indexes.build_for", refused)
    build = service.indexes.build("ann", "odd", "en", [upload()], "sentence")
    assert build.wait(60)
    assert (build.state, build.error) == ("failed", "the text is odd")


@pytest.mark.parametrize(("retriever", "said"), [("none", "'none' has no index"), ("magic", "unknown retriever")])
def test_a_retriever_without_an_index_is_refused_at_once(
    make_service: Any, upload: Any, retriever: str, said: str
) -> None:
    service = make_service()
    with pytest.raises(UserError, match=said):
        service.indexes.build("ann", "odd", "en", [upload()], retriever)
    assert service.indexes.builds.of("ann") == []


def test_of_two_builds_of_one_name_at_once_one_is_refused(
    make_service: Any, upload: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = make_service()
    names = service.indexes._free_name

    def slowly(owner: str, name: str) -> str:
        free: str = names(owner, name)
        time.sleep(0.2)
        return free

    monkeypatch.setattr(service.indexes, "_free_name", slowly)
    files = [upload(), upload()]
    with ThreadPoolExecutor(2) as pool:
        builds = [pool.submit(service.indexes.build, "ann", "same", "en", [file], "sentence") for file in files]
    assert sorted(bool(build.exception()) for build in builds) == [False, True]


def test_a_build_that_ends_while_it_is_deleted_leaves_nothing(
    make_service: Any, upload: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = make_service()
    write = service.indexes._write

    def deleted_first(place: Path, index: UserIndex) -> None:
        service.indexes.delete("ann", index.id)
        write(place, index)

    monkeypatch.setattr(service.indexes, "_write", deleted_first)
    build = service.indexes.build("ann", "late", "en", [upload()], "sentence")
    assert build.wait(60)
    until(lambda: not list(service.indexes.folder.glob(".uploads-*/*")))
    assert service.indexes.of("ann") == []
    assert not list(service.indexes.folder.glob("*/*/index"))


def test_an_index_appears_whole_or_not_at_all(make_service: Any, upload: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    service = make_service()

    def killed(place: Path, index: UserIndex) -> None:
        assert not list(service.indexes.folder.glob("[!.]*/*/*"))  # what has no info would be counted by nobody
        raise SystemExit

    monkeypatch.setattr(service.indexes, "_write", killed)
    build = service.indexes.build("ann", "Houses", "en", [upload()], "sentence")
    until(lambda: build.ended)
    assert build.state == "failed"
    assert not list(service.indexes.folder.glob("[!.]*/*/*"))


def test_builds_that_have_ended_are_not_kept_for_ever(
    make_service: Any, upload: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = make_service(indexes=2, all_indexes=4)
    built(service, "ann", "good", upload())
    assert service.indexes.builds.of("ann") == []  # it is among the indexes
    monkeypatch.setattr("ui.server.user_indexes.build_for", refused)
    for owner in ("ann", "bob", "eve"):
        for _ in range(3):
            assert service.indexes.build(owner, "odd", "en", [upload()], "sentence").wait(60)
    assert [len(service.indexes.builds.of(owner)) for owner in ("ann", "bob", "eve")] == [0, 2, 2]
