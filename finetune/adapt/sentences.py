"""The sentences of an index that an adaptation learns from, and those that it is checked on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetune.adapt.config import TextConfig
from rag_mt.base.errors import UserError
from rag_mt.base.types import NOWHERE, Origin, Skips
from rag_mt.formats.parallel import letters_and_digits
from rag_mt.text.splitting import split
from rag_mt.text.words import word_spans
from retrievers.index.manifest import SCHEMA, Manifest
from retrievers.index.opening import map_sentences


@dataclass(frozen=True)
class Target:
    """A sentence, with the numbers of the blocks of the index that it stands in."""

    text: str
    origin: Origin
    blocks: tuple[int, ...]


class IndexText:
    """The text of an index as blocks: neighbouring rows of one file, `size` at most. Rows are sentences, or passages of
    several."""

    def __init__(self, folder: Path, manifest: Manifest, size: int) -> None:
        table = map_sentences(folder)
        self._columns = [table.column(name) for name in SCHEMA.names]
        self._passages, self._language = manifest.unit == "passage", manifest.language
        files = np.array(table.column("file").combine_chunks().cast("string").dictionary_encode().indices)
        self.blocks = blocks_of(files, size)

    def rows(self, block: int) -> list[int]:
        """The numbers of the rows of a block."""
        first, last = np.searchsorted(self.blocks, [block, block + 1]).tolist()
        return list(range(first, last))

    def targets(self, row: int) -> Iterator[Target]:
        """The sentences of a row."""
        text, *origin = (column[row].as_py() for column in self._columns)
        spans = split(text, self._language) if self._passages else ()
        for part in [span.of(text) for span in spans] or [text]:
            yield Target(part.strip(), Origin(*origin), (int(self.blocks[row]),))

    def placed(self, texts: Sequence[str]) -> list[Target]:
        """Sentences that may stand in the index, with the blocks of all sentences of the same letters and digits."""
        keys = [letters_and_digits(text) for text in texts]
        places: dict[str, set[int]] = {key: set() for key in keys}
        for row in range(len(self.blocks)):
            for target in self.targets(row):
                if (key := letters_and_digits(target.text)) in places:
                    places[key].update(target.blocks)
        return [Target(text, NOWHERE, tuple(sorted(places[key]))) for text, key in zip(texts, keys, strict=True)]


def blocks_of(files: NDArray[np.integer[Any]], size: int) -> NDArray[np.int64]:
    """The number of the block of each row (rows,), ascending; `files` are numbers of the rows' files."""
    if not len(files):
        return np.zeros(0, np.int64)
    starts = np.flatnonzero(np.concatenate([[True], files[1:] != files[:-1]]))
    within = np.arange(len(files)) - np.repeat(starts, np.diff([*starts, len(files)]))
    return np.cumsum(within % size == 0) - 1


@dataclass(frozen=True)
class Chosen:
    """Sentences to check on and, in the order in which they are learnt from, those to train on."""

    held_out: list[Target]
    train: list[Target]


def chosen(text: IndexText, settings: TextConfig, most: int, skips: Skips) -> Chosen:
    """A seeded choice of at most `most` sentences: whole blocks to check on, until there are enough, and of the other
    blocks single sentences in a random order. What cannot be used goes to `skips`. Raises UserError where too little is
    left."""
    random = np.random.default_rng([settings.seed, len(text.blocks)])
    wanted = settings.to_hold_out(min(most, len(text.blocks)))
    seen: set[str] = set()
    held_out: list[Target] = []
    out: set[int] = set()
    for block in random.permutation(int(text.blocks.max(initial=-1)) + 1).tolist():
        if len(held_out) >= wanted:
            break
        out.add(block)
        held_out += [t for row in text.rows(block) for t in _usable(text, row, settings, seen, skips)]
    train: list[Target] = []
    for row in random.permutation(len(text.blocks)).tolist():
        if len(held_out) + len(train) >= most:
            break
        if int(text.blocks[row]) not in out:
            train += _usable(text, row, settings, seen, skips)
    least = settings.fewest_held_out + settings.fewest_pairs
    if len(held_out) < settings.fewest_held_out or len(train) < settings.fewest_pairs:
        reasons = f" ({skips.summary()})" if skips.summary() else ""
        raise UserError(
            f"{len(held_out) + len(train)} sentences can be used{reasons}: an adaptation needs at least {least}, so "
            "build the index of more text, or give --sentences a greater number"
        )
    return Chosen(held_out, train)


def _usable(text: IndexText, row: int, settings: TextConfig, seen: set[str], skips: Skips) -> list[Target]:
    """The sentences of a row that have a fitting length and were not seen before."""
    usable = []
    for target in text.targets(row):
        words, key = len(word_spans(target.text)), letters_and_digits(target.text)
        if words < settings.fewest_words:
            skips.add(target.origin, f"with fewer than {settings.fewest_words} words")
        elif words > settings.most_words:
            skips.add(target.origin, f"with more than {settings.most_words} words")
        elif not key or key in seen:
            skips.add(target.origin, "seen before")
        else:
            seen.add(key)
            usable.append(target)
    return usable
