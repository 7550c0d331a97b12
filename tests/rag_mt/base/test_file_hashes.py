"""Hashes are remembered as long as nothing has changed a file, in one file of bounded size."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from rag_mt.base import files
from rag_mt.base.files import remembered_sha256


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("RAG_MT_CACHE", str(folder))
    return folder


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_is_read_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"a")
    assert remembered_sha256(path) == sha256(path)
    monkeypatch.setattr(files, "file_sha256", lambda path: pytest.fail(f"{path} is read again"))
    assert remembered_sha256(path) == sha256(path)


def test_what_keeps_size_and_time_is_read_again(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"a" * 1000)
    stat = path.stat()
    before = remembered_sha256(path)
    with path.open("r+b") as file:
        file.write(b"b")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (stat.st_mtime_ns, stat.st_ino)
    assert remembered_sha256(path) == sha256(path) != before


def test_the_oldest_are_forgotten(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "REMEMBERED", 3)
    paths = [tmp_path / str(n) for n in range(5)]
    for path in [*paths, *paths[:1] * 9]:
        path.write_text(str(path))
        remembered_sha256(path)
    assert [path.name for path in cache.iterdir()] == ["hashes.sqlite"]
    read: list[Path] = []
    monkeypatch.setattr(files, "file_sha256", lambda path: read.append(path) or sha256(path))
    for path in (paths[0], paths[4]):
        assert remembered_sha256(path) == sha256(path)
    assert read == [paths[4]]


@pytest.mark.parametrize("damage", [b"no database at all" * 99, b"SQLite format 3\0" + b"x" * 5000])
def test_a_damaged_store_is_made_anew(tmp_path: Path, cache: Path, damage: bytes) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"a")
    cache.mkdir()
    (cache / "hashes.sqlite").write_bytes(damage)
    assert remembered_sha256(path) == sha256(path)
    assert remembered_sha256(path) == sha256(path)


def test_without_a_store_files_are_read(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"a")
    (cache / "hashes.sqlite").mkdir(parents=True)
    assert remembered_sha256(path) == sha256(path)
