"""Document-like runs of a sentence-aligned TSV file: a heading and the sentences below it.

Files with the columns English, other language, domain and source keep the order of the texts that they were made from
(a year of news, a manual), so that a line without a final full stop, short on both sides, begins a new document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rag_mt.base.types import NOWHERE, Origin, Sentence, Skips
from rag_mt.formats.opening import read_lines

DOCUMENT_DOMAINS = ("news", "medical", "fiction", "tech-docs")
"""Domains whose lines stand in the order of their texts and have headings."""
LONGEST_HEADING = 14
FEWEST_SENTENCES = 3

_ENDED = re.compile(r"[.!?…:;,][\s\"'”»)\]]*$")


@dataclass(frozen=True, slots=True)
class Document:
    """A title and the sentences below it in one language; `origin` is the title's line."""

    title: str
    sentences: tuple[str, ...]
    language: str
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True)
class ParallelDocument:
    """The same document in English and another language, sentence by sentence."""

    english: Document
    other: Document
    domain: str
    source: str


def is_heading(text: str) -> bool:
    """Whether a line looks like a heading: 2 to 14 words, a capital or a digit first and no full stop last. In scripts
    without capitals only lines that begin with a digit do."""
    words = text.split()
    capital = text[:1].isupper() or text[:1].istitle() or text[:1].isdigit()
    return 2 <= len(words) <= LONGEST_HEADING and capital and not _ENDED.search(text)


def document_runs(
    path: Path, language: str, skips: Skips, domains: Sequence[str] = DOCUMENT_DOMAINS
) -> Iterator[ParallelDocument]:
    """The documents of a TSV file (English, `language`, domain, source) in the order of its lines.

    A document ends before the next heading, where the source changes, and at a line that has no two texts; runs with
    fewer than three sentences below their heading are none. Lines that cannot be read go to `skips`.
    """
    run: list[tuple[int, str, str]] = []
    run_from = ("", "")
    for line in read_lines(path, skips):
        english, other, domain, source, *_ = [*(line.text or "").split("\t"), "", "", ""]
        usable = bool(english.strip() and other.strip()) and domain in domains
        heading = usable and is_heading(english) and is_heading(other)
        if heading or not usable or (domain, source) != run_from:
            yield from _document(run, language, path, *run_from)
            run = []
        run_from = (domain, source)
        if heading or (run and usable):
            run.append((line.number, english, other))
    yield from _document(run, language, path, *run_from)


def _document(
    run: Sequence[tuple[int, str, str]], language: str, path: Path, domain: str, source: str
) -> Iterator[ParallelDocument]:
    if len(run) > FEWEST_SENTENCES:
        (number, *_), (english_title, *english), (title, *other) = zip(*run, strict=True)
        origin = Origin(path.name, number)
        documents = Document(english_title, tuple(english), "en", origin), Document(title, tuple(other), language, origin)
        yield ParallelDocument(*documents, domain, source)


def passages(document: Document, words: int = 100) -> Iterator[Sentence]:
    """A document cut into passages of whole sentences, at most `words` words each where its sentences allow, without
    its title."""
    part: list[str] = []
    count = 0
    for sentence in document.sentences:
        length = len(sentence.split())
        if part and count + length > words:
            yield Sentence(" ".join(part), document.language, document.origin)
            part, count = [], 0
        part.append(sentence.strip())
        count += length
    if part:
        yield Sentence(" ".join(part), document.language, document.origin)
