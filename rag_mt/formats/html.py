"""HTML as texts to translate and markup around them that stays as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import lxml.html
from lxml import etree

from rag_mt.base.errors import UserError
from rag_mt.formats.inline import append_text, flatten, rebuild
from rag_mt.formats.xml import legal, local_name

_INLINE = """a abbr acronym b bdi bdo big cite del dfn em font i ins label mark q s small span strike strong sub sup
    time tt u"""
_OPAQUE = """audio canvas code data embed iframe img input kbd map math meter object output picture progress samp script
    select style svg template textarea var video wbr"""
INLINE = frozenset(_INLINE.split())
"""Elements whose text belongs to the sentence around them."""
OPAQUE = frozenset(_OPAQUE.split())
"""Elements that are kept as they are, inside a sentence or not."""
MOST_DEPTH = 500
"""Elements inside one another: each takes a call of Python's, and of 2,048 libxml2 drops the rest without a word."""

_DOCUMENT = re.compile(r"\s*<(!doctype|html|head|body)\b", re.IGNORECASE)
_TYPE = re.compile(r"\s*<!doctype[^>]*>\s*", re.IGNORECASE)
_AFTER_END = re.compile(r"</html\s*>.*?\w", re.IGNORECASE | re.DOTALL)
_END = re.compile(r"</(?:html|body)\s*>", re.IGNORECASE)
_TAG_START = re.compile(r"<[A-Za-z/!?]")
_CODE, _TAG, _RUN = "g", "data-rag-mt-tag", "rag-mt-run"  # `g` is the inline code with text of rag_mt.formats.inline
_BLANK = re.compile(r"[ \t\r\n\f]+")
_LETTER = re.compile(r"[^\W\d_]")


class HtmlText:
    """A piece of HTML or a whole document; UserError if more than MOST_DEPTH elements stand inside one another.

    `text` is what it says, a line for each run of text in a block (and one more for each line end in preformatted
    text), without the inline elements; these go back to the word boundaries nearest to where they were.
    """

    def __init__(self, markup: str) -> None:
        self._markup, markup = markup, legal(markup)
        markup, self._end = _ended(markup)
        if _AFTER_END.search(markup):  # which a parser drops; without these ends, which HTML may leave out, it does not
            markup = _END.sub("", markup)
        self._whole = bool(_DOCUMENT.match(markup))
        self._root = _parsed(markup, self._whole)
        if _depth(self._root) > MOST_DEPTH:
            raise UserError(
                f"the HTML has more than {MOST_DEPTH} elements inside one another: send its parts one by one"
            )
        self._runs = [(run, *flatten(run)) for run in list(_runs(self._root, False))]
        self._with_letters = [run for run in self._runs if _LETTER.search(run[1])]
        self.text = "\n".join(text for _, text, _ in self._with_letters)

    def filled(self, translation: str) -> str:
        """The HTML with a translation of its text, of as many lines. To be called once."""
        if not self._with_letters:
            return self._markup
        lines = iter(translation.split("\n"))
        for run, source, codes in self._with_letters:
            rebuild(run, "\n".join(islice(lines, source.count("\n") + 1)), source, codes)
        for run, _, _ in self._runs:
            for code in list(run.iter(_CODE)):
                if _TAG in code.attrib:
                    code.tag = code.attrib.pop(_TAG)
            run.drop_tag()
        markup = str(lxml.html.tostring(self._root, encoding="unicode"))
        if self._whole:
            kind = _TYPE.match(self._markup)
            return (kind[0] if kind else "") + markup + self._end
        return markup.removeprefix("<div>").removesuffix("</div>") + self._end


def _ended(markup: str) -> tuple[str, str]:
    """The markup, and apart from it the comment or tag at its end that does not end: a parser drops it, or more."""
    at = markup.find("<!--", markup.rfind("-->") + 1)
    if at < 0:
        at = markup.rfind("<")
        if ">" in markup[at:] or not _TAG_START.match(markup, at):
            return markup, ""
    return markup[:at], markup[at:]


def _parsed(markup: str, whole: bool) -> Any:
    """The document, or a `div` with the content of a piece."""
    parser = lxml.html.HTMLParser(huge_tree=True)
    root = lxml.html.Element("div")
    try:
        document: Any = lxml.html.document_fromstring(markup if whole else f"<html><body>{markup}", parser)
    except etree.ParserError:  # nothing but a document type, say
        return root
    if whole:
        return document
    for part in document:
        append_text(root, part.text or "")
        root.extend(list(part))
    return root


def _depth(root: Any) -> int:
    """How many elements stand inside one another at most."""
    depth = deepest = 0
    for event, _ in etree.iterwalk(root, events=("start", "end")):
        depth += 1 if event == "start" else -1
        deepest = max(depth, deepest)
    return deepest


def _runs(block: Any, preformatted: bool) -> Iterator[Any]:
    """Set each run of text and inline elements of a block, and of the blocks in it, into an element of its own."""
    preformatted = preformatted or local_name(block) == "pre"
    children, text = list(block), block.text
    del block[:]
    block.text, run = None, block.makeelement(_RUN)
    append_text(run, _spaced(text, preformatted))
    for child in [*children, None]:
        if child is not None and _is_inline(child):
            _as_codes(child, preformatted)
            child.tail = _spaced(child.tail, preformatted)
            run.append(child)
            continue
        if len(run) or run.text:
            block.append(run)
            yield run
        if child is not None:
            run = block.makeelement(_RUN)
            append_text(run, _spaced(child.tail, preformatted))
            child.tail = None
            block.append(child)
            if not _is_opaque(child):
                yield from _runs(child, preformatted)


def _spaced(text: str | None, preformatted: bool) -> str:
    """A line end in HTML is a space and ends no sentence, save in preformatted text."""
    return text or "" if preformatted else _BLANK.sub(" ", text or "")


def _is_opaque(element: Any) -> bool:
    name = local_name(element)
    classes = (element.get("class") or "").split()
    return not name or name in OPAQUE or element.get("translate") == "no" or "notranslate" in classes


def _is_inline(element: Any) -> bool:
    """Whether the element and all that is in it belong into a line of text."""
    if _is_opaque(element):
        return True
    return all(
        local_name(inner) in INLINE or _is_opaque(inner) or any(map(_is_opaque, inner.iterancestors()))
        for inner in element.iter()
    )


def _as_codes(element: Any, preformatted: bool) -> None:
    """Give the inline elements whose text is to be translated the tag that stands for such codes."""
    if _is_opaque(element):
        return
    element.attrib[_TAG], element.tag = element.tag, _CODE
    element.text = _spaced(element.text, preformatted)
    for child in element:
        child.tail = _spaced(child.tail, preformatted)
        _as_codes(child, preformatted)
