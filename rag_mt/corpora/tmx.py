"""TMX translation memories, streamed: one segment per translation unit that has the wanted language."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from lxml import etree

from rag_mt.corpora.formats import Segment, Side, usable
from rag_mt.corpora.inline import flatten, rebuild
from rag_mt.corpora.opening import open_bytes
from rag_mt.corpora.xml import XML_LANG, forget, iterate, local_name
from rag_mt.errors import UserError
from rag_mt.languages import base_code
from rag_mt.skips import Skips
from rag_mt.types import Origin, TranslatedText

EVENTS = ("start", "end", "comment", "pi")


@dataclass(frozen=True)
class Tmx:
    """TMX 1.1 to 1.4b. Filling adds the target variant to every unit, or replaces the one that is there."""

    name: str = "tmx"
    suffixes: tuple[str, ...] = (".tmx",)

    def segments(self, file: Path, side: Side, skips: Skips) -> Iterator[Segment]:
        """The plain text of each unit's variant in the side's language."""
        with open_bytes(file) as stream:
            for event, element in iterate(file, stream, ("start", "end")):
                _check_root(file, event, element)
                if event == "end" and local_name(element) == "tu":
                    text = _text(_variant(element, side.language))
                    origin = Origin(str(file), element.sourceline)
                    if text.strip():
                        yield Segment(text, origin)
                    else:
                        skips.add(origin, f"no {side.language} side in the translation unit")
                    forget(element)

    def fill(self, file: Path, side: Side, target: str, translations: Iterator[TranslatedText], out: BinaryIO) -> None:
        """The memory with source and target variants; header, notes and other languages are kept."""
        with open_bytes(file) as stream, etree.xmlfile(out, encoding="utf-8") as writer, ExitStack() as opened:
            pending: Any = None  # written when the text behind it has been read
            depth = 0
            for event, element in iterate(file, stream, EVENTS):
                if event == "start":
                    if depth < 2 and pending is not None:
                        pending = _flush(writer, pending)
                    if depth == 0:
                        _check_root(file, event, element)
                        _write_head(writer, element)
                    if depth == 0 or local_name(element) == "body":
                        opened.enter_context(writer.element(element.tag, element.attrib, nsmap=element.nsmap))
                        if element.text:
                            writer.write(element.text)
                    elif depth == 2 and pending is not None:
                        pending = _flush(writer, pending)
                    depth += 1
                elif event == "end":
                    depth -= 1
                    if depth == 2 and local_name(element) == "tu":
                        _fill_unit(element, side.language, target, translations)
                    if local_name(element) == "body" or depth == 0:
                        if pending is not None:
                            pending = _flush(writer, pending)
                    elif depth in (1, 2) and local_name(element.getparent()) in ("tmx", "body"):
                        pending = element
                elif depth in (1, 2) and element.getparent() is not None:
                    if pending is not None:
                        pending = _flush(writer, pending)
                    pending = element


def _flush(writer: Any, element: Any) -> None:
    writer.write(element)
    forget(element)


FORMAT = Tmx()
