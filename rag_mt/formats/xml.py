"""XML read safely with lxml: no entities, no network, no document type beyond a bare name."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from lxml import etree

from rag_mt.base.errors import UserError
from rag_mt.formats.opening import BOM, open_bytes, read_whole

XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_SAFE = {"resolve_entities": False, "no_network": True, "load_dtd": False, "huge_tree": False}
# `*+` never tries other pieces of what it has read: n comments could be cut in 2^n ways.
_MISC = r"(?:\s|<!--.*?-->|<\?.*?\?>)*+"
_SUBSET = re.compile(rf"{_MISC}<!DOCTYPE(?:\"[^\"]*\"|'[^']*'|[^\"'\[>])*+\[", re.DOTALL)
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Head:
    """How a document is written, and what stands before its root element."""

    encoding: str
    mark: bool  # a UTF-8 byte order mark
    crlf: bool
    declaration: str  # with %s for the encoding
    doctype: str
    comments: tuple[str, ...]  # comments and processing instructions before the root

    def prolog(self, encoding: str) -> str:
        """Declaration, document type and leading comments."""
        return "".join((self.declaration % encoding, self.doctype, *self.comments))

    def encode(self, text: str, encoding: str = "") -> bytes:
        """Text of the document as its bytes, with its line ends; a character outside the encoding is escaped."""
        lines = text.replace("\n", "\r\n") if self.crlf else text
        return lines.encode(encoding or self.encoding, "xmlcharrefreplace")


def read_head(file: Path, root: str) -> Head:
    """What stands before the root element.

    Raises UserError if the root is not `root`, if the DOCTYPE declares anything (only the bare external form
    `<!DOCTYPE tmx SYSTEM "tmx14.dtd">` is allowed; it is never loaded), or if there is no well-formed XML.
    """
    with open_bytes(file) as stream, _xml_errors(file):
        start = cast(io.BufferedReader, stream).peek(4096)[:4096]
        if not start:
            raise UserError(f"{file} is empty: expected a {root.upper()} document, export it again")
        _, element = next(iter(etree.iterparse(stream, events=("start",), **_SAFE)))
        tree = element.getroottree()
        info = tree.docinfo
        # Only the serialised document shows the whole internal subset (at this event it is one chunk long), and only
        # if the DOCTYPE names the root.
        if info.internalDTD is not None and (
            info.internalDTD.name != local_name(element) or _SUBSET.match(etree.tostring(tree, encoding="unicode"))
        ):
            raise UserError(
                f"{file}: its DOCTYPE is more than <!DOCTYPE {local_name(element)} SYSTEM ...>, which could be an "
                "attack: remove the declarations between [ and ] or the whole DOCTYPE and try again"
            )
        if local_name(element) != root:
            raise UserError(
                f"{file}: its root element is <{local_name(element)}>, expected <{root}>: give a {root.upper()} file "
                "or name another --format"
            )
        before = reversed(list(element.itersiblings(preceding=True)))
        standalone = ' standalone="yes"' if info.standalone else ""
        return Head(
            encoding=_known(info.encoding or "UTF-8"),
            mark=start.startswith(BOM),
            crlf=b"\r\n" in start.replace(b"\x00", b""),
            declaration=f'<?xml version="{info.xml_version}" encoding="%s"{standalone}?>\n',
            doctype=info.doctype + "\n" if info.doctype else "",
            comments=tuple(etree.tostring(e, encoding="unicode", with_tail=False) + "\n" for e in before),
        )


def iterate(file: Path, stream: BinaryIO, events: tuple[str, ...], tags: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Parser events for elements named `tags`, in constant memory if the caller removes what it has seen.

    Raises UserError before the first event that the parser reports after an error: it would report all of a chunk.
    """
    with _xml_errors(file):
        parser = etree.iterparse(stream, events=events, tag=[f"{{*}}{t}" for t in tags], **_SAFE)
        for event in parser:
            if len(parser.error_log) and (errors := parser.error_log.filter_from_errors()):
                raise _malformed(file, errors[0].line, errors[0].message)
            yield event


def parse(file: Path) -> Any:
    """The whole tree of a document that `read_head` has let through."""
    data = read_whole(file, "split it into smaller files")
    with _xml_errors(file):
        return etree.fromstring(data, etree.XMLParser(**_SAFE)).getroottree()


def write(tree: Any, head: Head, out: BinaryIO) -> None:
    """The whole document in the encoding and with the line ends that it had."""
    root = tree.getroot()
    text = head.prolog(head.encoding) + etree.tostring(root, encoding="unicode", with_tail=False) + epilog(root)
    out.write((BOM if head.mark else b"") + head.encode(text))


def epilog(root: Any) -> str:
    """What stands after the root element of a document that was read to its end."""
    nodes = [etree.tostring(e, encoding="unicode", with_tail=False) for e in root.itersiblings()]
    return "\n".join(["", *nodes, ""])


def shell(element: Any) -> Any:
    """The element with its attributes and without content."""
    return etree.Element(element.tag, element.attrib, nsmap=element.nsmap)


def legal(text: str) -> str:
    """The text with U+FFFD in place of characters that XML cannot hold."""
    return _NOT_XML.sub("\ufffd", text)


def local_name(element: Any) -> str:
    """The tag without its namespace; an empty string for comments and processing instructions."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def insert_after(element: Any, new: Any) -> None:
    """Add a sibling after `element`, indented like it."""
    parent, before = element.getparent(), element.getprevious()
    indent = (parent.text if before is None else before.tail) or ""
    tail = element.tail
    parent.insert(parent.index(element) + 1, new)
    new.tail, element.tail = tail, "" if indent.strip() else indent


def forget(element: Any) -> None:
    """Free an element of a streamed document that has ended, and what came before it."""
    element.clear(keep_tail=True)  # the parser may still be writing to the tail
    while element.getprevious() is not None:
        del element.getparent()[0]


def _known(encoding: str) -> str:
    """The encoding if Python has it under that name, else UTF-8."""
    try:
        codecs.lookup(encoding)
    except LookupError:
        return "UTF-8"
    return encoding


@contextmanager
def _xml_errors(file: Path) -> Iterator[None]:
    """Turn a parser's complaint into a sentence with the file and line."""
    try:
        yield
    except etree.XMLSyntaxError as error:
        last = error.error_log.last_error
        line, message = (last.line, last.message) if last else (error.lineno or 1, error.msg)
        raise _malformed(file, line, str(message)) from None


def _malformed(file: Path, line: int, message: str) -> UserError:
    """What to say of an error that the parser found; its message may run over several lines."""
    return UserError(f"{file}:{line}: not well-formed XML ({' '.join(message.split())}): repair it or export it again")
