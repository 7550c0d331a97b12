"""Passages: documents cut into pieces of whole sentences, each known with its title.

A passage is stored as `TITLE\\nTEXT`, or as TEXT alone where there is no title: the text itself has no line end.
What is retrieved is the text; an encoder and BM25 read the title too (Karpukhin et al. 2020 put it before a passage).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from prompts.builder import CONTEXT_CHARS
from rag_mt.base.types import ELLIPSIS, Floats, Kind, Origin, Sentence, Skips, Span, Unit
from rag_mt.formats.document_runs import is_heading
from rag_mt.formats.format import Segment
from rag_mt.formats.reading import segments_of
from rag_mt.text.splitting import split
from retrievers.units.unit import SentenceUnits

TITLE_END = "\n"
PASSAGE_WORDS = 100
"""Words of a passage, as in DPR (Karpukhin et al. 2020)."""
TITLE_REACH = 50
"""Lines that a title may stand for: a heading in a file that is no document must not name all that follows."""

P = TypeVar("P")
_WORD = re.compile(r"\S+")
_LINE_END = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


class PassageUnits(SentenceUnits):
    """The text of each passage as its unit, with the vector of title and text (a UnitMaker); a query is its whole text.
    With an encoder of no dimension (`NoEncoder`) the vectors are empty: such an index is searched by its terms."""

    unit: Unit = "passage"
    block = 256

    def units(self, texts: Sequence[str], kind: Kind) -> tuple[Floats, NDArray[np.int32]]:
        """Vectors (units, dimension) and, int32 (units, 3), the spans of the texts behind their titles."""
        starts = [0 if kind == "query" else body_start(text) for text in texts]
        bounds = [(n, starts[n], len(text)) for n, text in enumerate(texts) if text[starts[n] :].strip()]
        spans = np.array(bounds, dtype=np.int32).reshape(-1, 3)
        vectors = self.encoder.encode([texts[n].replace(TITLE_END, ". ") for n, *_ in bounds], kind)
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
    sentences = [(span.of(text), span) for span in split(text, language)]
    return [Span(part[0][1].start, part[-1][1].end) for part in _packed(sentences, words)]


def _packed(sentences: Iterable[tuple[str, P]], words: int) -> Iterator[list[tuple[str, P]]]:
    """Runs of sentences, each with its place, of at most `words` words or of one sentence."""
    part: list[tuple[str, P]] = []
    count = 0
    for text, place in sentences:
        size = len(text.split())
        if part and count + size > words:
            yield part
            part, count = [], 0
        part.append((text, place))
        count += size
    if part:
        yield part


def windows(text: str, span: Span, limit: int = CONTEXT_CHARS) -> list[Span]:
    """The parts of a passage that can be quoted, in order: as many whole words as fit into `limit` less two ellipses,
    beginning at every word in the first third of the window before. A passage that fits is its only window; a word that
    does not fit is cut."""
    if len(span) <= limit:
        return [span]
    room = max(1, limit - 2 * len(ELLIPSIS))
    words = [match.span() for match in _WORD.finditer(text, span.start, span.end)]
    ends = [end for _, end in words]
    spans: list[Span] = []
    next_start = span.start
    for number, (start, _) in enumerate(words):
        if start < next_start:
            continue
        fitting = bisect_right(ends, start + room)
        spans.append(Span(start, ends[fitting - 1] if fitting > number else start + room))
        if fitting == len(words):
            break
        next_start = start + room // 3
    return spans


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
    files = segments_of(names, language, format=format, column=column, skips=skips)
    return passages_of(files, language, split, words)


def passages_of(
    files: Iterable[tuple[bool, Iterable[Segment]]], language: str, splitting: bool, words: int = PASSAGE_WORDS
) -> Iterator[Sentence]:
    """The passages of sources as `segments_of` gives them (see `read_passages`)."""
    for are_lines, segments in files:
        if splitting and are_lines:
            yield from _of_lines(segments, language, words)
            continue
        for segment in segments:
            if splitting:
                yield from _of_document(segment.text, language, segment.origin, words)
            else:
                yield Sentence(on_one_line(segment.text.strip()), language, segment.origin)


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
    title, lines_below = "", 0
    before = title_origin = Origin()
    run: list[tuple[str, Origin]] = []  # sentences of lines that stand together, with their lines

    def passages() -> Iterator[Sentence]:
        for part in _packed(run, words):
            yield Sentence(titled(title, " ".join(text for text, _ in part)), language, part[0][1])

    def bare_title() -> Iterator[Sentence]:
        if title and not lines_below:  # a line without any text below it is text itself
            yield Sentence(on_one_line(title), language, title_origin)

    for segment in segments:
        text, origin = segment.text.strip(), segment.origin
        heading = is_heading(text)
        together = (origin.file, origin.line) == (before.file, before.line + 1)
        before = origin
        if heading or not together or lines_below >= TITLE_REACH:
            yield from passages()
            run = []
        if heading:
            yield from bare_title()
            title, lines_below, title_origin = text, 0, origin
            continue
        if lines_below >= TITLE_REACH:
            title = ""
        lines_below += 1
        run += [(span.of(text), origin) for span in split(text, language)]
    yield from passages()
    yield from bare_title()
