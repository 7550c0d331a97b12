"""Word alignments by people: sentence pairs with the links between their words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.errors import UserError
from rag_mt.text.words import word_spans

TokenLinks = frozenset[tuple[int, int]]


_LINK = re.compile(r"(\d+)([-p])(\d+)")


@dataclass(frozen=True)
class GoldPair:
    """A sentence pair whose tokens, parted by single blanks, were aligned by hand: `sure` links and `possible` ones,
    which include the sure ones, as token numbers from 0."""

    source: str
    target: str
    sure: TokenLinks
    possible: TokenLinks


def gold_pair(source: str, target: str, links: str, first: int = 0) -> GoldPair:
    """The pair of a line of gold links such as `0-0 1p2`, where tokens are counted from `first`; `p` marks a possible
    link. Raises ValueError for other links."""
    found = [_LINK.fullmatch(link) for link in links.split()]
    if not all(found):
        raise ValueError(f"{links!r} is no list of links such as 0-0 1-2 or 1p2")
    rows = [(int(m[1]) - first, int(m[3]) - first, m[2]) for m in found if m]
    sure = frozenset((i, j) for i, j, kind in rows if kind == "-")
    return GoldPair(" ".join(source.split()), " ".join(target.split()), sure, sure | {(i, j) for i, j, _ in rows})


def read_xlwa(path: Path) -> tuple[GoldPair, ...]:
    """A file of English, other language and links from 0, parted by tabs."""
    rows = (line.split("\t") for line in _lines(path))
    return tuple(gold_pair(english, other, links) for english, other, links, *_ in rows)


def read_parted(path: Path) -> tuple[GoldPair, ...]:
    """A file `NAME.src-tgt` of lines `source ||| target` with links from 1 in `NAME.gold` beside it."""
    texts = (line.split(" ||| ", 1) for line in _lines(path))
    links = _lines(path.with_suffix(".gold"))
    return tuple(gold_pair(s, t, own, 1) for (s, t), own in zip(texts, links, strict=True))


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise UserError(f"there is no {path}: give the folder that holds align/ with the human alignments")
    return path.read_text(encoding="utf-8").rstrip("\n").split("\n")


def word_tokens(text: str) -> NDArray[np.int64]:
    """For each word of a text its token, when tokens are parted by single blanks."""
    blanks = np.array([n for n, c in enumerate(text) if c == " "], dtype=np.int64)
    return np.searchsorted(blanks, word_spans(text)[:, 0])
