"""The file formats by name, and which one a file is in."""

from __future__ import annotations

import re
from pathlib import Path, PurePath

from rag_mt.base.errors import UserError
from rag_mt.formats.format import Format
from rag_mt.formats.lines import JSONL, TEXT, TSV, json_object
from rag_mt.formats.opening import open_bytes
from rag_mt.formats.po import PO
from rag_mt.formats.tmx import TMX
from rag_mt.formats.xliff import XLIFF

_FORMATS: tuple[Format, ...] = (TEXT, TSV, JSONL, TMX, PO, XLIFF)
FORMATS = {form.name: form for form in _FORMATS}
SUFFIXES = {suffix: form.name for form in _FORMATS for suffix in form.suffixes}
COMPRESSED = (".gz", ".xz", ".zst")

_STRUCTURED = """.adoc .arb .cfg .conf .csv .htm .html .ini .ipynb .json .less .markdown .md .mdx .org .php .plist
    .properties .resx .rst .rtf .strings .svg .tex .toml .ts .xhtml .xml .yaml .yml"""
STRUCTURED = frozenset(_STRUCTURED.split())
"""Files of lines whose keys, markup or commas a translation line by line would damage."""

_HEAD = 1 << 16
# `*+` takes what stands before the root once and for all: tried again in other pieces, n comments would take 2^n steps.
_ROOT = re.compile(r"(?:<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^>\[]*>|\s)*+<(?:[\w.-]+:)?([\w.-]+)", re.DOTALL)
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def format_named(name: str) -> Format:
    """The format of a name; UserError lists the names."""
    if name not in FORMATS:
        raise UserError(f"unknown format {name!r}: expected auto, {', '.join(FORMATS)}")
    return FORMATS[name]


def format_of(path: Path, name: str = "auto") -> Format:
    """The format called `name`; with `auto` that of the file's suffix below compression, else what its content shows.
    Raises UserError for an unknown name, for a file that cannot be opened, and for a structured file of another
    kind."""
    return format_named(name if name != "auto" else format_by_suffix(path) or _format_by_content(path, path))


def format_by_suffix(path: PurePath) -> str:
    """The name of the format that the suffix means (`.txt.gz` is text), or an empty string."""
    return SUFFIXES.get(suffix_of(path), "")


def check_content(path: Path, name: PurePath) -> None:
    """Raise the UserError of `format_of` for an upload that is stored at `path` and that its user calls `name`."""
    if not format_by_suffix(name):
        _format_by_content(path, name)


def suffix_of(path: PurePath) -> str:
    """The last suffix below compression, in lower case."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _refused(path: PurePath, kind: str) -> UserError:
    readable = ", ".join(f"{form.name} ({', '.join(form.suffixes)})" for form in _FORMATS)
    return UserError(
        f"{path} is {kind}, which would be damaged if it were translated line by line: expected {readable}, convert it "
        "to one of these"
    )


def _format_by_content(path: Path, name: PurePath) -> str:
    """The format of a file whose suffix means none; `name` is what its user calls it."""
    with open_bytes(path) as stream:
        head = stream.read(_HEAD)
    text = head.decode("utf-16" if head.startswith(_UTF16) else "utf-8-sig", "replace").lstrip()
    if text.startswith("<") and (xml_format := _xml_format(name, text)):
        return xml_format
    if _is_po(text):
        return "po"
    first = text.splitlines()[0] if text else ""
    if first.startswith("{") and (len(first) == len(text) or json_object(first) is not None):
        return "jsonl"
    if (suffix := suffix_of(name)) in STRUCTURED:
        raise _refused(name, f"a {suffix} file")
    return "text"


def _xml_format(name: PurePath, text: str) -> str:
    """TMX or XLIFF by the root element; empty for what may be text: a line can begin with `<`. Raises UserError for
    other XML and for HTML."""
    match = _ROOT.match(text)
    root = match[1] if match else ""
    if root in ("tmx", "xliff"):
        return root
    lines = text.rstrip().splitlines()
    if text.startswith("<?xml") or (root and len(lines) > 1 and lines[-1].endswith(f"</{root}>")):
        raise _refused(name, f"XML with root <{root or '?'}>")
    if text[:14].lower() == "<!doctype html" or root.lower() == "html":
        raise _refused(name, "HTML")
    return ""


def _is_po(text: str) -> bool:
    """Whether a message begins before anything but comments, blank lines and a context."""
    for line in map(str.strip, text.splitlines()):
        if line.startswith('msgid "'):
            return True
        if line and not line.startswith(("#", 'msgctxt "')):
            return False
    return False
