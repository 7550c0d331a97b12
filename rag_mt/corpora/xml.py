"""XML read safely with lxml: no entities, no network, no document type beyond a bare name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from lxml import etree

from rag_mt.corpora.opening import open_bytes
from rag_mt.errors import UserError

XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
MAX_DOCUMENT = 512 * 2**20
SAFE = {"resolve_entities": False, "no_network": True, "load_dtd": False, "huge_tree": False}


@contextmanager
def xml_errors(file: Path) -> Iterator[None]:
    """Turn a parser's complaint into a sentence with the file and line."""
    try:
        yield
    except etree.XMLSyntaxError as error:
        line = error.lineno or 1
        raise UserError(f"{file}:{line}: not well-formed XML ({error.msg}): repair or export the file again") from error


def iterate(file: Path, stream: BinaryIO, events: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Parser events of a stream in constant memory, if the caller clears what it has seen."""
    with xml_errors(file):
        checked = False
        for event, element in etree.iterparse(stream, events=events, **SAFE):
            if not checked and event == "start":
                refuse_declarations(file, element.getroottree())
                checked = True
            yield event, element


def parse(file: Path) -> Any:
    """The whole tree of a document of at most 512 MB."""
    with open_bytes(file) as stream, xml_errors(file):
        tree = etree.parse(_Limited(file, stream), etree.XMLParser(**SAFE))
    refuse_declarations(file, tree)
    return tree


def refuse_declarations(file: Path, tree: Any) -> None:
    """Raise UserError if the document declares entities or anything else in its DOCTYPE."""
    dtd = tree.docinfo.internalDTD
    if dtd is not None and (any(True for _ in dtd.iterentities()) or any(True for _ in dtd.iterelements())):
        raise UserError(
            f"{file}: its DOCTYPE declares entities or elements, which could be an attack: "
            "remove the declarations between [ and ] and try again"
        )


def local_name(element: Any) -> str:
    """The tag without its namespace; an empty string for comments and processing instructions."""
    return etree.QName(element).localname if isinstance(element.tag, str) else ""


def forget(element: Any) -> None:
    """Free an element of a streamed document and what came before it."""
    element.clear()
    while element.getprevious() is not None:
        del element.getparent()[0]


class _Limited:
    """A stream that refuses to be longer than MAX_DOCUMENT bytes."""

    def __init__(self, file: Path, stream: BinaryIO) -> None:
        self.file, self.stream, self.seen = file, stream, 0

    def read(self, size: int = -1) -> bytes:
        data = self.stream.read(size)
        self.seen += len(data)
        if self.seen > MAX_DOCUMENT:
            raise UserError(f"{self.file} has more than 512 MB: split it into smaller XLIFF files")
        return data
