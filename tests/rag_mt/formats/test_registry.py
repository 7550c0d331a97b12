"""Which format a file is in."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from rag_mt.base.errors import UserError
from rag_mt.formats.registry import format_of


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("a.txt", "text"),
        ("a.TXT.gz", "text"),
        ("a.b.tsv.xz", "tsv"),
        ("a.jsonl.zst", "jsonl"),
        ("a.tmx", "tmx"),
        ("a.pot", "po"),
        ("a.xlf", "xliff"),
        ("a.XLIFF", "xliff"),
    ],
)
def test_by_suffix(file: str, name: str) -> None:
    assert format_of(Path(file)).name == name


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("", "text"),
        ("Hallo\tWelt\n", "text"),
        ("{not json}\n", "text"),
        ('\ufeff\n{"text": "a"}\n{"text": "b"}\n', "jsonl"),
        ('{"text": "' + "a" * 200_000 + '"}\n', "jsonl"),
        ('<?xml version="1.0"?>\n<!-- <xliff> -->\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4">', "tmx"),
        ('<xliff version="1.2">', "xliff"),
        ('<x:xliff xmlns:x="urn:oasis:names:tc:xliff:document:2.0">', "xliff"),
        ("<b>bold</b> text\n", "text"),
        ('# Notes\n\n#, fuzzy\nmsgid ""\nmsgstr ""\n', "po"),
        ('\ufeffmsgctxt "menu"\r\nmsgid "Save"\r\nmsgstr ""\r\n', "po"),
        ('# Notes\nA catalogue has lines such as\nmsgid "Save"\n', "text"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_by_content(tmp_path: Path, content: str, name: str, packed: bool) -> None:
    path = tmp_path / "stdin"
    path.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    assert format_of(path).name == name


def test_utf16_xml_by_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes('<?xml version="1.0" encoding="utf-16"?><tmx version="1.4"/>'.encode("utf-16"))
    assert format_of(tmp_path / "a").name == "tmx"


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("strings.xml", '<?xml version="1.0"?><resources/>'),
        ("strings", '<?xml version="1.0"?><resources/>'),
        ("strings", '<resources>\n  <string name="a">b</string>\n</resources>\n'),
        ("page", "<!DOCTYPE html>\n<p>a"),
        ("page", "<html><p>a"),
        ("a.json", '[\n  {"text": "a"}\n]'),
        ("app_de.arb", '{\n  "a": "b"\n}'),
        *((f"a.{suffix}", "Hallo") for suffix in ("html", "htm", "xhtml", "md", "yaml", "YML", "properties")),
        *((f"a.{suffix}", "Hallo") for suffix in ("ini", "toml", "rst", "csv", "strings")),
        ("a.md.gz", "Hallo"),
    ],
)
def test_other_structured_files_are_not_taken_for_text(tmp_path: Path, file: str, content: str) -> None:
    (tmp_path / file).write_text(content)
    with pytest.raises(UserError, match=r"text \(.txt, .text\), tsv \(.tsv, .tab\).*xliff") as caught:
        format_of(tmp_path / file)
    assert "--format" not in str(caught.value) and "\n" not in str(caught.value)
    assert format_of(tmp_path / file, "text").name == "text"


@pytest.mark.parametrize("file", ["a.srt", "README", "notes.log", "a.1", "a.de"])
def test_files_of_other_names_are_text(tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_text("Hallo Welt.")
    assert format_of(tmp_path / file).name == "text"


def test_unknown_names_and_missing_files() -> None:
    with pytest.raises(UserError, match=r"unknown format 'docx': expected auto, text, tsv, jsonl, tmx, po, xliff"):
        format_of(Path("a.txt"), "docx")
    with pytest.raises(UserError, match="does not exist"):
        format_of(Path("no-such-file"))
