"""Sentences of files, folders and data sets, with where they came from: what an index is built of."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rag_mt.base.errors import UserError
from rag_mt.base.types import NO_LETTERS, Sentence, Skips
from rag_mt.formats.format import Segment, Side
from rag_mt.formats.hub import PREFIX, hub_segments
from rag_mt.formats.opening import open_bytes
from rag_mt.formats.registry import FORMATS, format_by_suffix, format_named, format_of
from rag_mt.text.splitting import MAX_CHARS, split

log = logging.getLogger("rag_mt")

_LETTER = re.compile(r"[^\W\d_]")
_split = split  # the parameter of the same name hides it


def read_sentences(
    names: Sequence[str],
    language: str,
    *,
    format: str = "auto",
    column: str = "",
    split: bool = True,
    skips: Skips,
    max_chars: int = MAX_CHARS,
) -> Iterator[Sentence]:
    """The sentences in `language` of files, of folders (all files with a known suffix, sorted) and of `hf:` data sets.

    Every segment is split into sentences of at most `max_chars` characters; with `split` false it is one already, and
    a longer one goes to `skips`, as do sentences without a letter. Files and formats are checked before the first
    sentence is asked for; UserError names the one that is wrong.
    """
    if format != "auto":
        format_named(format)
    side = Side(language, column)
    sources = [source for name in names for source in _sources(name, format)]
    return _sentences(sources, side, format, split, skips, max_chars)


def input_stamp(name: str) -> list[object]:
    """What tells an input from a changed one: the name, size and time of each file."""
    path = Path(name)
    if name.startswith(PREFIX) or not path.exists():
        return [name]
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return [[str(p), p.stat().st_size, p.stat().st_mtime_ns] for p in files]


def segments_of(
    names: Sequence[str], language: str, *, format: str = "auto", column: str = "", skips: Skips
) -> Iterator[tuple[bool, Iterable[Segment]]]:
    """For each file or data set of those names (see `read_sentences`) whether its segments are lines of a text, and
    the segments. They are checked before the first is asked for."""
    if format != "auto":
        format_named(format)
    side = Side(language, column)
    sources = [source for name in names for source in _sources(name, format)]
    return ((_is_text(source, format), _segments(source, side, format, skips)) for source in sources)


def _is_text(source: Path | str, format: str) -> bool:
    return isinstance(source, Path) and format_of(source, format).name == "text"


def _sources(name: str, format: str) -> list[Path | str]:
    """The files a name stands for, or the name of a data set."""
    if name.startswith(PREFIX):
        return [name]
    if name == "-":
        raise UserError("standard input (-) can be read only once: save it to a file and name that")
    path = Path(name)
    if path.is_dir():
        return [*_files_in(path, format)]
    open_bytes(path).close()
    return [path]


def _files_in(folder: Path, format: str) -> list[Path]:
    """The folder's files of known (or the given format's) suffixes, at any depth; hidden ones are left out."""
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    wanted = FORMATS.keys() if format == "auto" else {format}
    chosen = [path for path in files if format_by_suffix(path) in wanted]
    kinds = ", ".join(wanted)
    if not chosen:
        raise UserError(f"folder {folder} holds no file with a suffix of {kinds}: name its files one by one")
    if left := len(files) - len(chosen):
        log.info("%s: %d files without a suffix of %s are left out", folder, left, kinds)
    return chosen


def _segments(source: Path | str, side: Side, format: str, skips: Skips) -> Iterable[Segment]:
    if isinstance(source, Path):
        return format_of(source, format).segments(source, side, skips)
    return hub_segments(source, side, skips)


def _sentences(
    sources: Sequence[Path | str], side: Side, format: str, splitting: bool, skips: Skips, max_chars: int
) -> Iterator[Sentence]:
    for source in sources:
        for segment in _segments(source, side, format, skips):
            texts = _texts(segment.text, side.language, splitting, max_chars)
            kept = [text for text in texts if _LETTER.search(text)]
            for _ in range(len(texts) - len(kept) or not texts):
                skips.add(segment.origin, NO_LETTERS)
            for text in kept:
                if len(text) > max_chars:
                    skips.add(segment.origin, f"longer than {max_chars} characters")
                else:
                    yield Sentence(text, side.language, segment.origin)


def _texts(text: str, language: str, splitting: bool, max_chars: int) -> list[str]:
    return [span.of(text) for span in _split(text, language, max_chars)] if splitting else [text.strip()]
