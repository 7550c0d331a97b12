"""Data sets of the Hugging Face hub, streamed: `hf:wmt16/de-en`, `hf:ORG/NAME/CONFIG@SPLIT`, `hf:./FOLDER`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rag_mt.base.errors import UserError
from rag_mt.base.types import Origin, Skips
from rag_mt.formats.format import Segment, Side
from rag_mt.formats.jsonl import text_of

PREFIX = "hf:"
PATIENCE = 100
"""Rows without a text before the data set is given up."""

_PAIR = re.compile(r"[a-z]{2,3}[-_][a-z]{2,3}")


@dataclass(frozen=True, slots=True)
class HubName:
    """What a name may mean: (data set, configuration) in the order to try, and the split."""

    candidates: tuple[tuple[str, str | None], ...]
    split: str


def hub_name(name: str) -> HubName:
    """The parts of `hf:NAME[/CONFIG][@SPLIT]`; the split is `train` unless it is given.

    `hf:A/B` can be configuration B of A, which is tried first where B looks like a language pair, or data set B of A.
    """
    path, _, split = name.removeprefix(PREFIX).partition("@")
    parts = path.split("/")
    if path.startswith((".", "/", "~")):
        candidates: tuple[tuple[str, str | None], ...] = ((str(Path(path).expanduser()), None),)
    elif not all(parts) or len(parts) > 3:
        raise UserError(f"data set name {name!r} is not of the form hf:NAME[/CONFIG][@SPLIT], such as hf:wmt16/de-en")
    elif len(parts) == 3:
        candidates = (("/".join(parts[:2]), parts[2]),)
    elif len(parts) == 2:
        candidates = ((parts[0], parts[1]), (path, None))
        if not _PAIR.fullmatch(parts[1]):
            candidates = candidates[::-1]
    else:
        candidates = ((path, None),)
    return HubName(candidates, split or "train")


def hub_segments(name: str, side: Side, skips: Skips) -> Iterator[Segment]:
    """The side's text of every row, with the row's number as its line; rows are read as JSONL records are.

    Raises UserError if the datasets package is missing, if the data set cannot be loaded or stops in the middle, or if
    none of its first rows has the text.
    """
    rows, found = _rows(name, hub_name(name)), False
    for number, row in enumerate(rows, 1):
        text, reason = text_of(row, side)
        if text is not None:
            found = True
            yield Segment(text, Origin(name, number))
        elif reason:
            skips.add(Origin(name, number), reason)
        if not found and number == PATIENCE:
            raise _no_text(name, side, row)
    if not found:
        raise UserError(f"data set {name} has no text in {side.language}: try another split or --column")


def hub_rows(name: str) -> Iterator[dict[str, Any]]:
    """The rows of a data set, as they are; raises UserError as `hub_segments` does."""
    return _rows(name, hub_name(name))


# The datasets package lets through whatever its many readers and clients raise, hence the broad clauses below: all of
# it means that the data set cannot be read.


def _rows(name: str, meant: HubName) -> Iterator[dict[str, Any]]:
    rows = _loaded(name, meant)
    try:
        yield from rows
    except Exception as error:
        raise _unreadable(name, error) from None


def _loaded(name: str, meant: HubName) -> Any:
    """The first candidate that there is, as an iterable of rows."""
    try:
        from datasets import load_dataset
    except ImportError:
        raise UserError(
            f"reading {name} needs the datasets package: `pip install 'datasets>=4.0'`, or name local files instead"
        ) from None
    missing: list[Exception] = []
    for path, config in meant.candidates:
        try:
            return load_dataset(path, config, split=meant.split, streaming=True)
        except OSError as error:  # no such data set, or no network
            missing.append(error)
        except Exception as error:
            raise _unreadable(name, error) from None
    raise _unreadable(name, missing[0])


def _unreadable(name: str, error: Exception) -> UserError:
    because = str(error).strip().split("\n")[0][:200].rstrip(".") or type(error).__name__
    return UserError(
        f"data set {name} cannot be read ({because}): check the name and the network, or name local files instead"
    )


def _no_text(name: str, side: Side, row: dict[str, Any]) -> UserError:
    asked = f"field {side.column!r}" if side.column else f"field {side.language!r} or 'text'"
    return UserError(f"data set {name} has no {asked} in {PATIENCE} rows: choose one of {', '.join(row)} with --column")
