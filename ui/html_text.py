"""HTML as texts to translate and markup around them that stays as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import lxml.html
from lxml import etree

from rag_mt.corpora.inline import flatten, rebuild
from rag_mt.corpora.xml import legal, local_name

_INLINE = """a abbr acronym b bdi bdo big cite del dfn em font i ins label mark q s small span strike strong sub sup
    time tt u"""
_OPAQUE = """audio canvas code data embed iframe img input kbd map math meter object output picture progress samp script
    select style svg template textarea var video wbr"""
INLINE = frozenset(_INLINE.split())
"""Elements whose text belongs to the sentence around them."""
OPAQUE = frozenset(_OPAQUE.split())
"""Elements that are kept as they are, inside a sentence or not."""
MOST_DEPTH = 200
"""Elements inside one another; what lies deeper is kept as it is."""

_DOCUMENT = re.compile(r"\s*<(!doctype|html|head|body)\b", re.IGNORECASE)
_TYPE = re.compile(r"\s*<!doctype[^>]*>\s*", re.IGNORECASE)
_CODE, _TAG, _RUN = "g", "data-rag-mt-tag", "rag-mt-run"  # `g` is the inline code with text of rag_mt.corpora.inline
_BLANK = re.compile(r"[ \t\r\n\f]+")
_LETTER = re.compile(r"[^\W\d_]")


class HtmlText:
    """A piece of HTML or a whole document. `text` is what it says, a line for each run of text in a block (and one more
    for each line end in preformatted text), without the inline elements; these go back to the word boundaries nearest
    to where they were."""

    def __init__(self, markup: str) -> None:
        self._markup, markup = markup, legal(markup)
        self._whole = bool(_DOCUMENT.match(markup))
        try:
            self._root: Any = (
                lxml.html.document_fromstring(markup)
                if self._whole
                else lxml.html.fragment_fromstring(markup, create_parent="div")
            )
        except etree.ParserError:  # nothing but a document type, say
            self._root = lxml.html.Element("div")
        runs = list(_runs(self._root, False, 0))
        read = [(run, *flatten(run)) for run in runs]
        self._read = [(run, text, codes) for run, text, codes in read if _LETTER.search(text)]
        self._runs = runs
        self.text = "\n".join(text for _, text, _ in self._read)

    def filled(self, translation: str) -> str:
        """The HTML with a translation of its text, of as many lines. To be called once."""
        if not self._read:
            return self._markup
        lines = iter(translation.split("\n"))
        for run, source, codes in self._read:
            rebuild(run, "\n".join(islice(lines, source.count("\n") + 1)), source, codes)
        for run in self._runs:
            for code in list(run.iter(_CODE)):
                if _TAG in code.attrib:
                    code.tag = code.attrib.pop(_TAG)
            run.drop_tag()
        markup = str(lxml.html.tostring(self._root, encoding="unicode"))
        if self._whole:
            kind = _TYPE.match(self._markup)
            return (kind[0] if kind else "") + markup
        return markup.removeprefix("<div>").removesuffix("</div>")


def _runs(block: Any, preformatted: bool, depth: int) -> Iterator[Any]:
    """Set each run of text and inline elements of a block, and of the blocks in it, into an element of its own."""
    if depth > MOST_DEPTH:
        return
    preformatted = preformatted or local_name(block) == "pre"
    children, run = list(block), _new_run(block, block.text, preformatted)
    for child in children:
        block.remove(child)
    block.text = None
    for child in children:
        tail, child.tail = child.tail, None
        if _is_inline(child):
            _as_codes(child, preformatted)
            run.append(child)
            child.tail = _spaced(tail, preformatted)
            continue
        if len(run) or run.text:
            block.append(run)
            yield run
        block.append(child)
        if not _is_opaque(child):
            yield from _runs(child, preformatted, depth + 1)
        run = _new_run(block, tail, preformatted)
    if len(run) or run.text:
        block.append(run)
        yield run


def _new_run(block: Any, text: str | None, preformatted: bool) -> Any:
    run = block.makeelement(_RUN)
    run.text = _spaced(text, preformatted)
    return run


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
        local_name(own) in INLINE or _is_opaque(own) or any(_is_opaque(up) for up in own.iterancestors())
        for own in element.iter()
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
