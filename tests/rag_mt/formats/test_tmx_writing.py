"""A new translation memory holds what it was given, and is read again."""

from __future__ import annotations

import io
from pathlib import Path

from lxml import etree

from rag_mt.base.types import Skips
from rag_mt.formats.tmx import FORMAT as TMX
from rag_mt.formats.tmx_writing import Unit, Variant, write_memory


def test_a_written_memory_is_read_again(tmp_path: Path) -> None:
    units = [
        Unit((Variant("de", "Haus <b> & \x00", {"file": "a\x01.txt"}), Variant("en", "house")), {"score": "0.9"}),
        Unit((Variant("de", "Hund"), Variant("en", "dog")), created="20260102T030405Z"),
    ]
    out = io.BytesIO()
    write_memory(out, units, "de")
    path = tmp_path / "memory.tmx"
    path.write_bytes(out.getvalue())
    pairs = [(a.text, b.text) for a, b in TMX.pairs(path, "de", "en", Skips())]
    assert pairs == [("Haus <b> & \ufffd", "house"), ("Hund", "dog")]
    root = etree.fromstring(out.getvalue())
    assert [prop.text for prop in root.iter("prop")] == ["0.9", "a\ufffd.txt"]
    assert [unit.get("creationdate") for unit in root.iter("tu")] == [None, "20260102T030405Z"]
    assert root.find("header").attrib["segtype"] == "sentence"
