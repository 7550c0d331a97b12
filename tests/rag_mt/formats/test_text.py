"""Plain text files: which lines are segments, and that filling changes nothing else."""

from __future__ import annotations

import io
import logging
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rag_mt.base.errors import UserError
from rag_mt.base.types import Origin, Skips, TranslatedText
from rag_mt.formats.format import Side
from rag_mt.formats.lines import TEXT
from rag_mt.text.splitting import split

DE = Side("de")
PIECES = st.sampled_from([b"\n", b"\r", b"\r\n", b" ", b"\t", b"\xef\xbb\xbf", b"\xff", b"\x07", "\u2028ä😀".encode()])


def filled(path: Path, translations: list[str], side: Side = DE) -> bytes:
    out = io.BytesIO()
    items = iter([TranslatedText(t) for t in translations])
    TEXT.fill(path, replace(side, target="en"), items, out)
    assert next(items, None) is None, "fill takes one translation per segment"
    return out.getvalue()


@given(data=st.lists(st.one_of(st.binary(max_size=20), PIECES)).map(b"".join))
@example(data=b"\xef\xbb\xbfeins\r\n\r\n  \r zwei \n\xff\xfe\n\x07\ndrei")
def test_identity_gives_the_same_bytes(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "text"
        path.write_bytes(data)
        try:
            segments = list(TEXT.segments(path, DE, Skips(shown=0)))
        except UserError:
            return  # binary files
        assert all(segment.text.strip() for segment in segments)
        assert filled(path, [segment.text for segment in segments]) == data


def test_translations_take_the_place_of_their_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, skips = tmp_path / "text.txt", Skips()
    path.write_bytes(b"\xef\xbb\xbf eins\r\n\n\xff\ndrei\nvier")
    caplog.set_level(logging.WARNING, "rag_mt")
    segments = list(TEXT.segments(path, DE, skips))
    assert [(s.text, s.origin) for s in segments] == [
        (" eins", Origin(str(path), 1)),
        ("drei", Origin(str(path), 4)),
        ("vier", Origin(str(path), 5)),
    ]
    assert skips.counts == {"not valid UTF-8": 1} and caplog.messages == [f"{path}:3: not valid UTF-8"]
    assert filled(path, [" one", "three", "four"]) == b"\xef\xbb\xbf one\r\n\n\xff\nthree\nfour"


def test_fill_takes_a_translation_only_when_its_line_is_reached(tmp_path: Path) -> None:
    path, out, seen = tmp_path / "text", io.BytesIO(), []
    path.write_bytes(b"a\n\nb\nc\n")

    def translations():  # type: ignore[no-untyped-def]
        for word in ("A", "B", "C"):
            seen.append(out.getvalue())
            yield TranslatedText(word)

    TEXT.fill(path, Side("de", target="en"), translations(), out)
    assert seen == [b"", b"A\n\n", b"A\n\nB\n"]


def test_an_empty_file_has_no_segments(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert list(TEXT.segments(tmp_path / "empty", DE, Skips())) == [] and filled(tmp_path / "empty", []) == b""


def test_a_column_of_plain_text_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a\tb\n")
    with pytest.raises(UserError, match=r"no column '2': add --format tsv"):
        list(TEXT.segments(tmp_path / "text", Side("de", "2"), Skips()))


def test_a_paragraph_on_one_line_is_a_segment_however_long(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("Das ist ein Satz. " * 2000)
    skips = Skips(shown=0)
    (segment,) = TEXT.segments(path, Side("de"), skips)
    assert len(split(segment.text, "de")) == 2000 and not skips.counts
