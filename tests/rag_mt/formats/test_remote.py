"""Text behind URLs: read as files are, from an object store, a storage in memory and a server; what fails is told in a
sentence."""

from __future__ import annotations

import functools
import gzip
import json
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import pytest

from rag_mt.base.errors import UserError
from rag_mt.base.types import Skips
from rag_mt.formats.reading import files_of, input_stamp, place_of, read_sentences
from rag_mt.translation.index import Index
from tests.object_store import BUCKET, object_store

TEXT = "The first line is here.\nThe second one, too.\n"


@pytest.fixture(params=["memory", "s3"])
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a folder in memory or an object store, with two files in it, one of them packed, and a hidden one."""
    place = "b"
    if request.param == "s3":
        object_store(monkeypatch)
        place = f"{BUCKET}/b"
    storage = fsspec.filesystem(request.param)
    for name, text in (("one.txt", TEXT), ("deep/two.txt.gz", "A third.\n"), (".hidden.txt", "No.\n")):
        storage.pipe(f"{place}/{name}", gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    yield f"{request.param}://{place}"
    storage.rm(place, recursive=True)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The URL of a folder that a server on this machine gives."""
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "one.txt").write_text(TEXT, encoding="utf-8")
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "web"))
    handler.log_message = lambda *arguments: None  # type: ignore[attr-defined]
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def test_a_folder_is_read_like_one_of_the_disk(bucket: str) -> None:
    assert files_of([bucket]) == [f"{bucket}/deep/two.txt.gz", f"{bucket}/one.txt"]
    sentences = list(read_sentences([bucket], "en", skips=Skips()))
    assert [s.text for s in sentences] == ["A third.", *TEXT.splitlines()]
    assert str(sentences[-1].source) == f"{bucket}/one.txt:2"
    assert place_of(f"{bucket}/one.txt") == f"{bucket}/one.txt"
    assert place_of("a\0b") == "a\0b", "no file has such a name"


def test_an_index_is_built_and_grows_by_url(bucket: str, tmp_path: Path) -> None:
    index = Index.build(tmp_path / "i", f"{bucket}/one.txt", language="en", retriever="bm25", split=False)
    index.add([f"{bucket}/deep"], split=False)
    assert index.files == {f"{bucket}/one.txt": 2, f"{bucket}/deep/two.txt.gz": 1}


def test_a_changed_file_is_known(bucket: str) -> None:
    before = input_stamp(bucket)
    assert before == input_stamp(bucket) and len(before) == 3
    with fsspec.open(f"{bucket}/one.txt", "wb") as file:
        file.write(b"Other text.\n")
    assert input_stamp(bucket) != before


def test_a_file_of_a_server_is_streamed(server: str) -> None:
    assert [s.text for s in read_sentences([f"{server}/one.txt"], "en", skips=Skips())] == TEXT.splitlines()
    with pytest.raises(UserError, match=r"file http://127.0.0.1:\d+/none.txt does not exist"):
        files_of([f"{server}/none.txt"])


def test_what_cannot_be_reached_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"nowhere://a/b.txt cannot be read \(.*nowhere.*\): check the URL"):
        files_of(["nowhere://a/b.txt"])
    with pytest.raises(UserError, match=r"http://127.0.0.1:1/a.txt (cannot be read|does not exist)"):
        files_of(["http://127.0.0.1:1/a.txt"])
    monkeypatch.setitem(sys.modules, "upath", None)
    with pytest.raises(UserError, match=r"s3://a/b.txt needs universal-pathlib: `pip install 'rag-mt\[scale\]'`"):
        files_of(["s3://a/b.txt"])


def test_what_a_store_refuses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    client = object_store(monkeypatch)
    with pytest.raises(UserError, match=r"file s3://bucket/none.txt does not exist: check its name"):
        files_of(["s3://bucket/none.txt"])
    for url in ("s3://none/", "s3://none"):
        with pytest.raises(UserError, match=r"s3://none"):
            files_of([url])
    client.put_object(Bucket=BUCKET, Key="mine.txt", Body=TEXT.encode())
    rule = {"Effect": "Deny", "Principal": "*", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{BUCKET}/*"}
    client.put_bucket_policy(Bucket=BUCKET, Policy=json.dumps({"Version": "2012-10-17", "Statement": [rule]}))
    with pytest.raises(UserError, match=r"s3://bucket/mine.txt cannot be read \(Forbidden\): check the URL"):
        list(read_sentences(["s3://bucket/mine.txt"], "en", skips=Skips()))
