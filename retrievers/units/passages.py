"""Passages: documents cut into pieces of whole sentences, each known with its title.

A passage is stored as `TITLE\\nTEXT`, or as TEXT alone where there is no title: the text itself has no line end.
What is retrieved is the text; an encoder and BM25 read the title too (Karpukhin et al. 2020 put it before a passage).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.types import Encoder, Floats, Kind, Origin, Sentence, Skips, Span, Unit
from rag_mt.formats.document_runs import is_heading
from rag_mt.formats.format import Segment
from rag_mt.formats.reading import segments_of
from rag_mt.text.splitting import split

TITLE_END = "\n"
PASSAGE_WORDS = 100
"""Words of a passage, as in DPR (Karpukhin et al. 2020)."""
TITLE_REACH = 50
"""Lines that a title may stand for: a heading in a file that is no document must not name all that follows."""

_LINE_END = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


class PassageUnits:
    """The text of each passage as its unit, with the vector of title and text (a UnitMaker); a query is its whole text.

    With an encoder of no dimension (`NoEncoder`) the vectors are empty: such an index is searched by its terms.
    """

    unit: Unit = "passage"
    block = 256

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.dimension = encoder.dimension
        self.settings: Mapping[str, Any] = {
            "units": "passages",
            "encoder": encoder.id,
            "fingerprint": encoder.fingerprint,
        }

    def units(self, texts: Sequence[str], kind: Kind) -> tuple[Floats, NDArray[np.int32]]:
        """Vectors (units, dimension) and, int32 (units, 3), the spans of the texts behind their titles."""
        starts = [0 if kind == "query" else body_start(text) for text in texts]
        kept = [n for n, text in enumerate(texts) if text[starts[n] :].strip()]
        spans = np.array([(n, starts[n], len(texts[n])) for n in kept], dtype=np.int32).reshape(-1, 3)
        vectors = self.encoder.encode([texts[n].replace(TITLE_END, ". ") for n in kept], kind)
        return vectors.reshape(len(spans), self.dimension), spans


def body_start(text: str) -> int:
    """Where the text of a stored passage begins."""
    return text.find(TITLE_END) + 1


def titled(title: str, text: str) -> str:
    """A passage as it is stored."""
    return f"{on_one_line(title)}{TITLE_END}{on_one_line(text)}" if title.strip() else on_one_line(text)


def on_one_line(text: str) -> str:
    """The text with a blank for every line end, so that all offsets stay."""
    return _LINE_END.sub(" ", text)


def passage_spans(text: str, language: str, words: int = PASSAGE_WORDS) -> list[Span]:
    """A document's passages in order: runs of whole sentences with at most `words` words; a longer sentence is a
    passage by itself. The spans are disjoint and hold every sentence."""
    return [Span(part[0].start, part[-1].end) for part in _packed(split(text, language), text, words)]


def _packed(sentences: Iterable[Span], text: str, words: int) -> Iterator[list[Span]]:
    part: list[Span] = []
    count = 0
    for sentence in sentences:
        own = len(sentence.of(text).split())
        if part and count + own > words:
            yield part
            part, count = [], 0
        part.append(sentence)
        count += own
    if part:
        yield part


def read_passages(
    names: Sequence[str],
    language: str,
    *,
    format: str = "auto",
    column: str = "",
    split: bool = True,
    words: int = PASSAGE_WORDS,
    skips: Skips,
) -> Iterator[Sentence]:
    """The passages of files, folders and `hf:` data sets, as they are stored, each with the line where it begins.

    In text files lines that stand together are a document, and a line that looks like a heading is the title of what
    follows, up to the next one; one with nothing below it is a passage. In other formats each segment (a cell, a field)
    is a document, whose first line is its title if it looks like one. With `split` false each line or segment is one
    passage already.
    Files and formats are checked before the first passage is asked for; UserError names the one that is wrong.
    """
    found = segments_of(names, language, format=format, column=column, skips=skips)
    return _passages(found, language, split, words)


def _passages(
    files: Iterable[tuple[bool, Iterable[Segment]]], language: str, splitting: bool, words: int
) -> Iterator[Sentence]:
    for lines, segments in files:
        if not splitting:
            for segment in segments:
                yield Sentence(on_one_line(segment.text.strip()), language, segment.origin)
        elif lines:
            yield from _of_lines(segments, language, words)
        else:
            for segment in segments:
                yield from _of_document(segment.text, language, segment.origin, words)


def _of_document(text: str, language: str, origin: Origin, words: int) -> Iterator[Sentence]:
    """The passages of one text, each with the character where it begins there."""
    first, _, rest = text.strip().partition("\n")
    title = first.strip() if rest.strip() and is_heading(first.strip()) else ""
    begin = text.index(first) + len(first) if title else 0
    for span in passage_spans(text[begin:], language, words):
        passage = titled(title, span.of(text[begin:]))
        yield Sentence(passage, language, replace(origin, start=begin + span.start))


def _of_lines(segments: Iterable[Segment], language: str, words: int) -> Iterator[Sentence]:
    """The passages of the lines of a text file."""
    title, reach, part, count = "", 0, list[str](), 0
    begin = before = headed = Origin()

    def passage() -> Sentence:
        return Sentence(titled(title, " ".join(part)), language, begin)

    def bare_title() -> Iterator[Sentence]:
        if title and not reach:  # a line without any text below it is text itself
            yield Sentence(on_one_line(title), language, headed)

    for segment in segments:
        text = segment.text.strip()
        heading = is_heading(text)
        apart = segment.origin.line != before.line + 1 or segment.origin.file != before.file
        before = segment.origin
        if part and (heading or apart or reach >= TITLE_REACH):
            yield passage()
            part, count = [], 0
        if heading:
            yield from bare_title()
            title, reach, headed = text, 0, segment.origin
            continue
        if reach >= TITLE_REACH:
            title = ""
        reach += 1
        for span in split(text, language):
            own = len(span.of(text).split())
            if part and count + own > words:
                yield passage()
                part, count = [], 0
            if not part:
                begin = segment.origin
            part.append(span.of(text))
            count += own
    if part:
        yield passage()
    yield from bare_title()
