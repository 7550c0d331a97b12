"""Sizes: of files, and as people read them."""

from __future__ import annotations

from pathlib import Path

from rag_mt.base.sizes import bytes_below, size


def test_sizes_are_readable() -> None:
    expected = ["0 B", "999 B", "1.0 kB", "1.6 MB", "820 MB"]
    assert [size(number) for number in (0, 999, 1000, 1_550_000, 820_000_000)] == expected


def test_a_folder_has_the_size_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to(tmp_path / "missing")
    assert bytes_below(tmp_path / "inner" / "file") == 5
    assert bytes_below(tmp_path) == 5 + (tmp_path / "link").lstat().st_size
