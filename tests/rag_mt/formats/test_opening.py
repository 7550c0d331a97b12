"""Opening files: compression, lines that can be written again, and a sentence for everything that is no text."""

from __future__ import annotations

import gzip
import logging
import lzma
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from rag_mt.base.errors import UserError
from rag_mt.base.types import Skips
from rag_mt.formats.opening import MAX_CHARS, Line, compressed, open_bytes, read_lines

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}
BYTES = st.lists(
    st.one_of(
        st.binary(max_size=30),
        st.text(max_size=30).map(lambda t: t.encode("utf-8", "replace")),
        st.sampled_from([b"\n", b"\r", b"\r\n", b"\xef\xbb\xbf", "\u2028".encode(), b"\t", b"\xff", b"a" * 70]),
    )
).map(b"".join)


def lines_of(data: bytes, max_chars: int = MAX_CHARS) -> tuple[list[Line], Skips]:
    skips = Skips(shown=0)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "text"
        path.write_bytes(data)
        return list(read_lines(path, skips, max_chars)), skips


@pytest.mark.parametrize("kind", PACKERS)
def test_compression_is_known_by_content_and_members_follow_each_other(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "misleading.txt"
    data = b"Hallo\n" * 50_000
    path.write_bytes(PACKERS[kind](data) + PACKERS[kind](b"Welt\n"))
    with open_bytes(path) as stream:
        assert stream.read() == data + b"Welt\n"


@pytest.mark.parametrize("kind", PACKERS)
@pytest.mark.parametrize("damage", ["truncated", "garbage", "flipped"])
def test_damaged_archives_are_named(tmp_path: Path, kind: str, damage: str) -> None:
    path = tmp_path / f"text.{kind}"
    packed = bytearray(PACKERS[kind](os.urandom(5000).hex().encode()))
    if damage == "truncated":
        del packed[len(packed) * 2 // 3 :]
    elif damage == "garbage":
        packed += b"garbage after the end"
    elif kind == "zst":
        packed[4] = 0xFF  # the frame's header
    else:
        packed[len(packed) // 2] ^= 0xFF
    path.write_bytes(packed)
    with (
        pytest.raises(UserError, match=rf"text\.{kind} is a damaged or truncated \.{kind} file"),
        open_bytes(path) as file,
    ):
        while file.read(1000):
            pass


def test_a_zstd_bomb_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zst"
    packer = zstandard.ZstdCompressor().compressobj()
    path.write_bytes(b"".join(packer.compress(bytes(1 << 20)) for _ in range(300)) + packer.flush())
    tracemalloc.start()
    with open_bytes(path) as stream:
        assert sum(len(block) for block in iter(lambda: stream.read(1 << 16), b"")) == 300 << 20
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 << 20


@pytest.mark.parametrize(
    ("head", "sentence"),
    [
        ("Hallo".encode("utf-16"), "iconv -f utf-16 -t utf-8"),
        (b"\xfe\xff\x00H", "iconv -f utf-16 -t utf-8"),
        ("Hallo".encode("utf-32"), "iconv -f utf-32 -t utf-8"),
        (b"PK\x03\x04rest", "ZIP archive or an Office document"),
        (b"%PDF-1.7", "pdftotext"),
        (b"\x89PNG\r\n", "PNG"),
        (b"some\x00thing", "NUL"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_what_is_not_utf8_text_is_refused_with_what_to_do(
    tmp_path: Path, head: bytes, sentence: str, packed: bool
) -> None:
    path = tmp_path / "input"
    path.write_bytes(gzip.compress(head) if packed else head)
    with pytest.raises(UserError, match=sentence):
        list(read_lines(path, Skips()))


def test_missing_files_folders_and_pipes_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, sentence in [
        ("none", "does not exist"),
        ("", "is a folder"),
        ("pipe", "pipe or device"),
        ("a\0b", "cannot be opened"),
    ]:
        with pytest.raises(UserError, match=sentence):
            open_bytes(tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch(mode=0)
    with pytest.raises(UserError, match="permissions"):
        open_bytes(path)


@given(data=BYTES)
@example(data=b"a\rb\r\nc\n\r\n\rd")
def test_lines_joined_are_the_file(data: bytes) -> None:
    try:
        lines, skips = lines_of(data, max_chars=20)
    except UserError:
        return  # begins like a binary file
    assert b"".join(line.raw for line in lines) == data
    numbers = [line.number for line in lines]  # the parts of an over-long line have the same one
    assert list(dict.fromkeys(numbers)) == list(range(1, len(data.splitlines()) + 1))
    assert skips.total == len({line.number for line in lines if line.text is None})
    for line in lines:
        if line.text is not None:
            assert line.with_text(line.text) == line.raw
            assert len(line.text) <= 20 and not set(line.text) & set("\n\r\x00\x1b\x85")


def test_only_lf_crlf_and_cr_end_lines() -> None:
    text = "a\u2028b\u2029c\x0bd\x0ce\x1cf\x85g"
    lines, skips = lines_of(f"{text}\rzwei\r\ndrei\nvier".encode())
    assert [line.text for line in lines] == [None, "zwei", "drei", "vier"]
    assert skips.counts == {"control character": 1}
    assert [line.text for line in lines_of("a\u2028b\u2029c\n".encode())[0]] == ["a\u2028b\u2029c"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"caf\xe9", "not valid UTF-8"),
        (b"\xed\xa0\x80", "not valid UTF-8"),
        (b"\xc0\xaf", "not valid UTF-8"),
        (b"bell \x07", "control character"),
        (b"\x1b[31mred", "control character"),
        ("next\x85line".encode(), "control character"),
        ("\ufdd0".encode(), "noncharacter or unpaired surrogate"),
        ("\U0001ffff".encode(), "noncharacter or unpaired surrogate"),
        (b"x" * (MAX_CHARS + 1), "over-long line"),
        ("ä".encode() * (MAX_CHARS + 1), "over-long line"),
        (b"x" * MAX_CHARS, ""),
        ("😀".encode() * MAX_CHARS, ""),
        ("soft\u00adhyphen, zero\u200bwidth\u200d, \ufeff, tab\t, \U0010fffd".encode(), ""),
    ],
)
def test_lines_that_are_no_segments_have_a_reason(line: bytes, reason: str) -> None:
    lines, skips = lines_of(b"first\n" + line + b"\nlast\n")
    assert skips.counts == ({reason: 1} if reason else {})
    assert [line.text for line in lines] == ["first", None if reason else line.decode(), "last"]


def test_the_byte_order_mark_belongs_to_no_text_and_comes_back() -> None:
    (line,), _ = lines_of(b"\xef\xbb\xbfHallo\r\n")
    assert line.text == "Hallo" and line.with_text("Hello") == b"\xef\xbb\xbfHello\r\n"


def test_line_ends_in_a_translation_do_not_make_lines() -> None:
    (line,), _ = lines_of(b"Hallo\n")
    assert line.with_text("one\r\ntwo\n\nthree") == b"one two three\n"


def test_a_line_without_an_end_is_not_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "long"
    with path.open("wb") as file:
        file.write(b"first\n")
        for _ in range(60):
            file.write(b"x" * (1 << 20))
        file.write(b"\r\nlast")
    skips, size, texts = Skips(shown=0), 0, {}
    tracemalloc.start()
    for line in read_lines(path, skips):
        size += len(line.raw)
        texts[line.number] = line.text
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size == path.stat().st_size and peak < 10 << 20
    assert texts == {1: "first", 2: None, 3: "last"} and skips.counts == {"over-long line": 1}


@pytest.mark.parametrize("end", [b"\r", b"\r\n", b"\n"])
@pytest.mark.parametrize("size", range((1 << 18) - 3, (1 << 18) + 2))
def test_line_ends_at_the_edge_of_a_block_end_one_line(size: int, end: bytes) -> None:
    lines, _ = lines_of(b"x" * size + end + b"zwei" + end)
    assert [(line.number, line.text) for line in lines if line.text is not None] == [(2, "zwei")]
    lines, _ = lines_of((b"y" * 8 + end) * (size // (8 + len(end))) + b"z" * 8 + end + b"end" + end)
    assert {len(line.text or "") for line in lines} == {8, 3} and lines[-1].with_text("e") == b"e" + end


def test_notes_on_mixed_line_ends_and_empty_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rag_mt")
    mixed, empty = tmp_path / "mixed", tmp_path / "empty"
    mixed.write_bytes(b"a\nb\r\nc\n")
    empty.touch()
    for path in (mixed, empty):
        list(read_lines(path, Skips()))
        list(read_lines(path, Skips(shown=0)))
    assert caplog.messages == [f"{mixed} has mixed line ends, kept as they are: 2 LF, 1 CRLF", f"{empty} is empty"]


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".zst"])
def test_what_is_written_compressed_is_read_again(tmp_path: Path, suffix: str) -> None:
    made = []
    for name in ("a.txt", "b.txt"):
        path = tmp_path / f"{name}{suffix}"
        with path.open("wb") as file, compressed(file, path) as packed:
            packed.write("Grüße\n".encode() * 1000)
        with open_bytes(path) as stream:
            assert stream.read() == "Grüße\n".encode() * 1000
        made.append(path.read_bytes())
    assert made[0] == made[1]
    assert (len(made[0]) < 200) is bool(suffix)
