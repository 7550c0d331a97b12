"""The file formats by name, and which one a file is in."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path

from rag_mt.corpora.formats import Format
from rag_mt.corpora.opening import open_bytes
from rag_mt.errors import UserError

FORMATS = {name: f"rag_mt.corpora.{name}" for name in ("text", "tsv", "jsonl", "tmx", "po", "xliff")}
"""Every format's module, which has the format as `FORMAT`. It is imported when it is asked for."""

SUFFIXES = {
    ".txt": "text",
    ".text": "text",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".tmx": "tmx",
    ".po": "po",
    ".pot": "po",
    ".xliff": "xliff",
    ".xlf": "xliff",
}
"""Which format a suffix means: the formats' own `suffixes`, at hand without their modules."""

COMPRESSED = (".gz", ".xz", ".zst")

_HEAD = 1 << 16
# `*+` takes what stands before the root once and for all: tried again in other pieces, n comments would take 2^n steps.
_ROOT = re.compile(r"(?:<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^>\[]*>|\s)*+<(?:[\w.-]+:)?([\w.-]+)", re.DOTALL)
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def format_named(name: str) -> Format:
    """The format of a name; UserError lists the names."""
    if name not in FORMATS:
        raise UserError(f"unknown format {name!r}: expected auto, {', '.join(FORMATS)}")
    found: Format = import_module(FORMATS[name]).FORMAT
    return found


def format_of(path: Path, name: str = "auto") -> Format:
    """The format called `name`; with `auto` that of the file's suffix below compression, else what its content shows.

    Raises UserError for an unknown name, for a file that cannot be opened, and for XML or JSON of another kind.
    """
    if name != "auto":
        return format_named(name)
    return format_named(format_by_suffix(path) or _format_by_content(path))


def format_by_suffix(path: Path) -> str:
    """The name of the format that the suffix means (`.txt.gz` is text), or an empty string."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return SUFFIXES.get(suffixes[-1], "") if suffixes else ""


def _format_by_content(path: Path) -> str:
    with open_bytes(path) as stream:
        head = stream.read(_HEAD)
    text = head.decode("utf-16" if head.startswith(_UTF16) else "utf-8-sig", "replace").lstrip()
    if text.startswith("<"):
        return _xml_format(path, text)
    if _is_po(text):
        return "po"
    first = text.splitlines()[0] if text else ""
    if first.startswith("{") and (_is_json(first) or len(first) == len(text)):
        return "jsonl"
    if path.suffix.lower() == ".json":
        raise UserError(
            f"{path} is JSON but not one record per line: convert it with `jq -c '.[]'`, or add --format text"
        )
    return "text"


def _xml_format(path: Path, text: str) -> str:
    """TMX or XLIFF by the root element. Other XML is no text; a line of text may begin with `<` though."""
    root = _ROOT.match(text)
    if root and root[1] in ("tmx", "xliff"):
        return root[1]
    if text.startswith("<?xml"):
        raise UserError(
            f"{path} is XML with root <{root[1] if root else '?'}>: expected tmx or xliff; "
            "to translate it line by line add --format text"
        )
    return "text"


def _is_po(text: str) -> bool:
    """Whether a message begins before anything but comments, blank lines and a context."""
    for line in map(str.strip, text.splitlines()):
        if line.startswith('msgid "'):
            return True
        if line and not line.startswith(("#", 'msgctxt "')):
            return False
    return False


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
