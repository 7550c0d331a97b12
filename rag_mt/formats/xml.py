"""XML read safely with lxml (no entities, no network, no document type beyond a bare name), and the inline codes of
segments: taken out to get plain text, put back into its translation."""

from __future__ import annotations

import codecs
import io
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from lxml import etree

from rag_mt.base.errors import UserError
from rag_mt.formats.opening import BOM, open_bytes, read_whole

XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_SAFE = {"resolve_entities": False, "no_network": True, "load_dtd": False, "huge_tree": False}
# `*+` never tries other pieces of what it has read: n comments could be cut in 2^n ways.
_MISC = r"(?:\s|<!--.*?-->|<\?.*?\?>)*+"
_SUBSET = re.compile(rf"{_MISC}<!DOCTYPE(?:\"[^\"]*\"|'[^']*'|[^\"'\[>])*+\[", re.DOTALL)
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

WITH_TEXT = frozenset({"g", "mrk", "pc", "hi"})
"""Codes around translatable text; all others stand for native code, and their content is no text."""

_BEFORE_WORDS = frozenset({"open", "bpt", "bx", "sc"})
_AFTER_WORDS = frozenset({"close", "ept", "ex", "ec"})
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_CJK_SIGN = re.compile(f"[{_CJK}]")
_WORD_START = re.compile(rf"(?<=[\s{_CJK}])(?=\S)|(?<=\S)(?=[{_CJK}])")
_WORD_END = re.compile(rf"(?<=\S)(?=[\s{_CJK}])|(?<=[{_CJK}])(?=\S)")


@dataclass(frozen=True)
class Head:
    """How a document is written, and what stands before its root element."""

    encoding: str
    mark: bool  # a UTF-8 byte order mark
    crlf: bool
    declaration: str  # with %s for the encoding
    before_root: str  # document type, comments and processing instructions

    def prolog(self, encoding: str) -> str:
        """All that stands before the root element."""
        return self.declaration % encoding + self.before_root

    def encode(self, text: str, encoding: str = "") -> bytes:
        """Text of the document as its bytes, with its line ends; a character outside the encoding is escaped."""
        lines = text.replace("\n", "\r\n") if self.crlf else text
        return lines.encode(encoding or self.encoding, "xmlcharrefreplace")


def read_head(file: Path, *roots: str) -> Head:
    """What stands before the root element. Raises UserError if the root is none of `roots`, if the DOCTYPE declares
    anything (only the bare external form `<!DOCTYPE tmx SYSTEM "tmx14.dtd">` is allowed; it is never loaded), or if
    there is no well-formed XML."""
    with open_bytes(file) as stream, _xml_errors(file):
        start = cast(io.BufferedReader, stream).peek(4096)[:4096]
        if not start:
            raise UserError(f"{file} is empty: expected a {roots[-1].upper()} document, export it again")
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
        if local_name(element) not in roots:
            expected = " or ".join(f"<{root}>" for root in roots)
            raise UserError(
                f"{file}: its root element is <{local_name(element)}>, expected {expected}: give a {roots[-1].upper()} "
                "file, or say what it is if there is a --format"
            )
        siblings = reversed(list(element.itersiblings(preceding=True)))
        before = [info.doctype] * bool(info.doctype) + [_serialised(e) for e in siblings]
        encoding = info.encoding or "UTF-8"
        try:
            codecs.lookup(encoding)
        except LookupError:
            encoding = "UTF-8"
        standalone = ' standalone="yes"' if info.standalone else ""
        return Head(
            encoding=encoding,
            mark=start.startswith(BOM),
            crlf=b"\r\n" in start.replace(b"\x00", b""),
            declaration=f'<?xml version="{info.xml_version}" encoding="%s"{standalone}?>\n',
            before_root="".join(f"{part}\n" for part in before),
        )


def iterate(file: Path, stream: BinaryIO, events: tuple[str, ...], tags: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Parser events for elements named `tags`, in constant memory if the caller removes what it has seen. Raises
    UserError before the first event that the parser reports after an error: it would report all of a chunk."""
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
    text = head.prolog(head.encoding) + _serialised(root) + epilog(root)
    out.write((BOM if head.mark else b"") + head.encode(text))


def epilog(root: Any) -> str:
    """What stands after the root element of a document that was read to its end."""
    return "\n".join(["", *map(_serialised, root.itersiblings()), ""])


def _serialised(element: Any) -> str:
    return str(etree.tostring(element, encoding="unicode", with_tail=False))


def shell(element: Any) -> Any:
    """The element with its attributes and without content."""
    try:
        return etree.Element(element.tag, element.attrib, nsmap=element.nsmap)
    except ValueError:  # attributes of broken HTML may have names that XML does not allow, `<p` for instance
        copy = deepcopy(element)
        del copy[:]
        copy.text = copy.tail = None
        return copy


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


def remove(element: Any) -> None:
    """Take an element out with the indentation before it."""
    parent, before = element.getparent(), element.getprevious()
    if before is None:
        parent.text = element.tail
    else:
        before.tail = element.tail
    parent.remove(element)


def forget(element: Any) -> None:
    """Free an element of a streamed document that has ended, and what came before it."""
    element.clear(keep_tail=True)  # the parser may still be writing to the tail
    while element.getprevious() is not None:
        del element.getparent()[0]


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


@dataclass(frozen=True)
class Code:
    """An inline code at a character position of the plain text, in document order."""

    position: int
    kind: Literal["open", "close", "empty"]
    element: Any = None


def flatten(element: Any) -> tuple[str, list[Code]]:
    """The plain text of a `seg`, `source` or `target` and its inline codes."""
    codes: list[Code] = []
    return _flatten(element, "", codes), codes


def has_inner(text: str, codes: Sequence[Code]) -> bool:
    """Whether a code stands between words, where its place in a translation can only be guessed."""
    first, last = len(text) - len(text.lstrip()), len(text.rstrip())
    return any(first < c.position < last for c in codes)


def rebuild(element: Any, text: str, source: str, codes: Sequence[Code]) -> None:
    """Make `text` with the codes of `source` the content of `element`. Codes at the edges stay there, inner ones go to
    the word boundary nearest to their share of the text; their order, nesting and number stay the same. One that has a
    blank on either side, as a word has, gets one where it would touch a word. With `text` equal to `source` everything
    is as it was."""
    del element[:]
    element.text, text = None, legal(text)
    places = [c.position for c in codes] if text == source else _places(text, source, codes)
    parents, at, before = [element], 0, -1  # `before` is where the code before stands in the source
    for code, place in zip(codes, places, strict=True):
        missing = _missing_blanks(text, place) if text != source and _stands_free(code, source) else ("", "")
        append_text(parents[-1], text[at:place] + (missing[0] if code.position > before else ""))
        at, before = place, code.position
        if code.kind == "close":
            parents.pop()
            continue
        child = deepcopy(code.element) if code.kind == "empty" else shell(code.element)
        child.tail = None
        parents[-1].append(child)
        append_text(parents[-1], missing[1])
        if code.kind == "open":
            parents.append(child)
    append_text(element, text[at:])


def _flatten(element: Any, text: str, codes: list[Code]) -> str:
    """`text` with the text of an element behind it, whose codes are added to `codes`."""
    text += element.text or ""
    for child in element:
        if _has_text(child):
            codes.append(Code(len(text), "open", child))
            text = _flatten(child, text, codes)
            codes.append(Code(len(text), "close"))
        else:
            codes.append(Code(len(text), "empty", child))
        text += child.tail or ""
    return text


def _has_text(code: Any) -> bool:
    """Whether the content of a code is to be translated; a marked term can be protected."""
    protected = code.get("translate") == "no" or code.get("mtype") == "protected"
    return local_name(code) in WITH_TEXT and not protected


def _places(text: str, source: str, codes: Sequence[Code]) -> list[int]:
    """Ascending positions in `text` for the codes of `source`: openings at word starts, closings at word ends."""
    if not codes:
        return []
    lead, trail = len(text) - len(text.lstrip()), len(text) - len(text.rstrip())
    first, last = len(source) - len(source.lstrip()), len(source.rstrip())
    starts = [lead] + [m.start() for m in _WORD_START.finditer(text)]
    ends = [m.start() for m in _WORD_END.finditer(text)] + [len(text) - trail]
    both = sorted({*starts, *ends})
    places: list[int] = []
    opened: list[tuple[int, int]] = []  # positions of the open codes in source and text
    for code in codes:
        least = places[-1] if places else 0
        if code.kind == "close":
            began, placed = opened.pop()
            least = max(least, placed + 1) if code.position > began else least  # keep a word inside the pair
        if code.position <= first:
            place = min(code.position, lead)
        elif code.position >= last:
            place = len(text) - min(len(source) - code.position, trail)
        else:
            wanted = code.position / len(source) * len(text)
            allowed = {"before": starts, "after": ends, "": both}[_side(code, source)]
            first_free, after = bisect_left(allowed, least), bisect_left(allowed, wanted)
            nearest = allowed[max(first_free, after - 1) : max(first_free, after) + 1]
            place = min(nearest, key=lambda p: (abs(p - wanted), p), default=len(text))
        places.append(max(place, places[-1] if places else 0))
        if code.kind == "open":
            opened.append((code.position, places[-1]))
    return places


def _side(code: Code, source: str) -> Literal["before", "after", ""]:
    """Whether an inner code stands before or after a word: by its name, else by the one blank beside it."""
    name = local_name(code.element) if code.kind == "empty" else code.kind
    if name in _BEFORE_WORDS:
        return "before"
    if name in _AFTER_WORDS:
        return "after"
    before, after = (source[at].isspace() for at in (code.position - 1, code.position))
    return "" if before == after else "before" if before else "after"


def _stands_free(code: Code, source: str) -> bool:
    """Whether a code stands for a word: a blank is before and after it."""
    around = source[max(0, code.position - 1) : code.position + 1]
    return code.kind == "empty" and len(around) == 2 and around.isspace() and not _side(code, source)


def _missing_blanks(text: str, place: int) -> tuple[str, str]:
    """What keeps a free code apart from the words before and after it, where one of them touches it. Scripts without
    blanks get none."""
    signs = text[max(0, place - 1) : place], text[place : place + 1]
    before, after = (bool(sign) and not sign.isspace() and not _CJK_SIGN.match(sign) for sign in signs)
    return (" " if before and not after else "", " " if after and not before else "")


def append_text(parent: Any, text: str) -> None:
    """Add text at the end of a parent's content."""
    if text and len(parent):
        parent[-1].tail = (parent[-1].tail or "") + text
    elif text:
        parent.text = (parent.text or "") + text
