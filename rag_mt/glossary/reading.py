"""Glossary files of all formats, made into the glossary of one language pair."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from rag_mt.base.errors import UserError
from rag_mt.base.languages import language
from rag_mt.base.types import Skips
from rag_mt.formats.registry import suffix_of
from rag_mt.formats.tmx import TMX
from rag_mt.glossary.entries import Entry, clean, terms_of, wrong_with
from rag_mt.glossary.glossary import Glossary
from rag_mt.glossary.phrases import word_count
from rag_mt.glossary.tables import table_entries
from rag_mt.glossary.tbx import tbx_entries

SUFFIXES = (".csv", ".tsv", ".tab", ".tbx", ".tmx")
MOST_WORDS = 8
"""Words of a unit of a memory that is a term: longer ones are sentences."""


def read_glossary(paths: Iterable[Path | str], source: str, target: str, skips: Skips) -> Glossary:
    """The terms of files (.csv .tsv .tab .tbx .tmx, also compressed) from one language into another. Rows, concepts and
    units that cannot be used go to `skips`. Raises UserError for a file that is not there, is damaged, is of another
    kind, has not both languages or has no term at all."""
    source, target = language(source).code, language(target).code
    files = [Path(path) for path in paths]
    entries = (entry for path in files for entry in _entries_or_error(path, source, target, skips))
    return Glossary(source, target, terms_of(entries, source, target, skips))


def _entries_or_error(path: Path, source: str, target: str, skips: Skips) -> Iterator[Entry]:
    empty = True
    for entry in _entries(path, source, target, skips):
        empty = False
        yield entry
    if empty:
        raise UserError(
            f"{path} has no term in {source} with a translation into {target}: expected rows of a term and its "
            "translation, look at the skipped lines or give another file"
        )


def _entries(path: Path, source: str, target: str, skips: Skips) -> Iterator[Entry]:
    match suffix_of(path):
        case ".csv":
            return table_entries(path, source, target, skips)
        case ".tsv" | ".tab":
            return table_entries(path, source, target, skips, "\t")
        case ".tbx":
            return tbx_entries(path, source, target, skips)
        case ".tmx":
            return _tmx_entries(path, source, target, skips)
        case suffix:
            raise UserError(
                f"{path} cannot be read as a glossary: its suffix is {suffix or 'missing'}, expected one of "
                f"{' '.join(SUFFIXES)}; save it as one of these or rename it"
            )


def _tmx_entries(path: Path, source: str, target: str, skips: Skips) -> Iterator[Entry]:
    for one, other in TMX.pairs(path, source, target, skips):
        texts = [clean(segment.text) for segment in (one, other)]
        entry = Entry(texts[:1], texts[1:], (), one.origin)
        reason = f"more than {MOST_WORDS} words" if max(map(word_count, texts)) > MOST_WORDS else wrong_with(entry)
        if reason:
            skips.add(one.origin, reason)
        else:
            yield entry
