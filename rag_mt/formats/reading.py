"""Segments and sentences of files, folders and data sets of the Hugging Face hub, with where they came from.

Data sets are named `hf:wmt16/de-en`, `hf:ORG/NAME/CONFIG@SPLIT` or `hf:./FOLDER`, and streamed. Files and folders may
also be URLs of any storage that fsspec knows, such as `s3://bucket/folder` or `https://host/text.gz`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rag_mt.base.errors import UserError
from rag_mt.base.types import NO_LETTERS, Origin, Sentence, Skips, TranslatedSentence
from rag_mt.formats.format import Segment, Side
from rag_mt.formats.lines import text_of
from rag_mt.formats.opening import open_bytes
from rag_mt.formats.registry import FORMATS, format_by_suffix, format_named, format_of
from rag_mt.formats.remote import files_in, is_folder, is_remote, path_of, stamp
from rag_mt.text.splitting import MAX_CHARS
from rag_mt.text.splitting import split as sentence_spans

log = logging.getLogger("rag_mt")

PREFIX = "hf:"
PATIENCE = 100
"""Rows without a text before the data set is given up."""

_LETTER = re.compile(r"[^\W\d_]")
_PAIR = re.compile(r"[a-z]{2,3}[-_][a-z]{2,3}")


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
    sources = segments_of(names, language, format=format, column=column, skips=skips)
    return sentences_of(sources, language, split, skips, max_chars)


def segments_of(
    names: Sequence[str], language: str, *, format: str = "auto", column: str = "", skips: Skips
) -> Iterator[tuple[bool, Iterable[Segment]]]:
    """For each file or data set (see `read_sentences`) whether its segments are lines of a text, and the segments. All
    are checked before the first is asked for."""
    if format != "auto":
        format_named(format)
    paths = [path for name in names for path in _paths(name, format)]
    for path in paths:
        _check_name(path)
    return _segments(paths, Side(language, column), format, skips)


def files_of(names: Sequence[str], format: str = "auto") -> list[str]:
    """The files and data sets that names stand for, as `Origin.file` has them."""
    return [str(path) for name in names for path in _paths(name, format)]


def place_of(name: str) -> str:
    """What all names of a file, seen from the current folder, have in common; data sets, and texts that name no file,
    have one name."""
    return name if name.startswith(PREFIX) or is_remote(name) or "\0" in name else str(Path(name).resolve())


def input_stamp(name: str) -> list[object]:
    """What tells an input from a changed one: the name, size and time of each file."""
    if name.startswith(PREFIX) or not (path := path_of(name)).exists():
        return [name]
    return [stamp(file) for file in (files_in(path) if is_folder(path) else [path])]


def _paths(name: str, format: str) -> Sequence[Path | str]:
    """The files a name stands for, or the name of a data set."""
    if name.startswith(PREFIX):
        return [name]
    if name == "-":
        raise UserError("standard input (-) can be read only once: save it to a file and name that")
    path = path_of(name)
    if is_folder(path):
        return _files_in(path, format)
    open_bytes(path).close()
    return [path]


def _check_name(path: Path | str) -> None:
    """Raise UserError for a file whose name cannot be kept with its text."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise UserError(f"the name of file {Origin(str(path))} is not valid UTF-8: rename the file") from None


def _files_in(folder: Path, format: str) -> list[Path]:
    """The folder's files of known (or the given format's) suffixes, at any depth; hidden ones are left out."""
    files = [
        path for path in files_in(folder) if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    wanted = FORMATS.keys() if format == "auto" else {format}
    chosen = [path for path in files if format_by_suffix(path) in wanted]
    kinds = ", ".join(wanted)
    if not chosen:
        raise UserError(f"folder {folder} holds no file with a suffix of {kinds}: name its files one by one")
    if left := len(files) - len(chosen):
        log.info("%s: %d files without a suffix of %s are left out", folder, left, kinds)
    return chosen


def _segments(
    paths: Sequence[Path | str], side: Side, format: str, skips: Skips
) -> Iterator[tuple[bool, Iterable[Segment]]]:
    for path in paths:
        if isinstance(path, str):
            yield False, hub_segments(path, side, skips)
        else:
            form = format_of(path, format)
            yield form.name == "text", form.segments(path, side, skips)


def sentences_of(
    sources: Iterable[tuple[bool, Iterable[Segment]]],
    language: str,
    split: bool,
    skips: Skips,
    max_chars: int = MAX_CHARS,
) -> Iterator[Sentence]:
    """The sentences of sources as `segments_of` gives them (see `read_sentences`). Those of a segment with an original
    have one too where that has as many sentences."""
    for _, segments in sources:
        for segment in segments:
            texts = _pieces(segment.text, language, split, max_chars)
            originals = _pieces(segment.original, language, split, max_chars) if segment.original else []
            if len(originals) != len(texts):  # which belongs to which is not known
                originals = [""] * len(texts)
            for sentence, original in zip(texts, originals, strict=True):
                if not _LETTER.search(sentence):
                    skips.add(segment.origin, NO_LETTERS)
                elif len(sentence) > max_chars:
                    skips.add(segment.origin, f"longer than {max_chars} characters")
                elif original:
                    yield TranslatedSentence(sentence, language, segment.origin, original)
                else:
                    yield Sentence(sentence, language, segment.origin)


def _pieces(text: str, language: str, split: bool, max_chars: int) -> list[str]:
    """The sentences of a text, at least one."""
    return ([span.of(text) for span in sentence_spans(text, language, max_chars)] if split else [text.strip()]) or [""]


def hub_segments(name: str, side: Side, skips: Skips) -> Iterator[Segment]:
    """The side's text of every row, with the row's number as its line; rows are read as JSONL records are. Raises
    UserError if the datasets package is missing, if the data set cannot be loaded or stops in the middle, or if none of
    its first rows has the text."""
    has_text = False
    for number, row in enumerate(hub_rows(name), 1):
        text, reason = text_of(row, side)
        if text is not None:
            has_text = True
            yield Segment(text, Origin(name, number))
        elif reason:
            skips.add(Origin(name, number), reason)
        if not has_text and number == PATIENCE:
            field = f"field {side.column!r}" if side.column else f"field {side.language!r} or 'text'"
            raise UserError(
                f"data set {name} has no {field} in {PATIENCE} rows: choose one of {', '.join(row)} with --column"
            )
    if not has_text:
        raise UserError(f"data set {name} has no text in {side.language}: try another split or --column")


def hub_rows(name: str) -> Iterator[dict[str, Any]]:
    """The rows of a data set, as they are; raises UserError as `hub_segments` does."""
    candidates, split = hub_name(name)
    try:
        yield from _loaded(name, candidates, split)
    except UserError:
        raise
    except Exception as error:  # the package lets through whatever its many readers and clients raise
        because = str(error).strip().split("\n")[0][:200].rstrip(".") or type(error).__name__
        raise UserError(
            f"data set {name} cannot be read ({because}): check the name and the network, or name local files instead"
        ) from None


def hub_name(name: str) -> tuple[list[tuple[str, str | None]], str]:
    """What `hf:NAME[/CONFIG][@SPLIT]` may mean: (data set, configuration) in the order to try; and the split, `train`
    unless it is given. `hf:A/B` can be configuration B of A, which is tried first where B looks like a language pair,
    or data set B of A."""
    path, _, split = name.removeprefix(PREFIX).partition("@")
    parts = path.split("/")
    candidates: list[tuple[str, str | None]] = [(path, None)]
    if path.startswith((".", "/", "~")):
        candidates = [(str(Path(path).expanduser()), None)]
    elif not all(parts) or len(parts) > 3:
        raise UserError(f"data set name {name!r} is not of the form hf:NAME[/CONFIG][@SPLIT], such as hf:wmt16/de-en")
    elif len(parts) == 3:
        candidates = [("/".join(parts[:2]), parts[2])]
    elif len(parts) == 2:
        candidates.insert(0 if _PAIR.fullmatch(parts[1]) else 1, (parts[0], parts[1]))
    return candidates, split or "train"


def _loaded(name: str, candidates: Sequence[tuple[str, str | None]], split: str) -> Any:
    """The first candidate that there is, as an iterable of rows."""
    try:
        from datasets import load_dataset
    except ImportError:
        raise UserError(
            f"reading {name} needs the datasets package: `pip install 'datasets>=4.0'`, or name local files instead"
        ) from None
    missing: list[OSError] = []
    for path, config in candidates:
        try:
            return load_dataset(path, config, split=split, streaming=True)
        except OSError as error:  # no such data set, or no network
            missing.append(error)
    raise missing[0]
