"""Phrase pairs with example sentences on disk: a folder per language pair that `finetune` writes and all others read.

manifest.json         languages, what the set was made of, counts, size and sha256 of the files below
pairs.npy             int32 (pairs, 3): phrase of the first language, phrase of the second one, split (see `SPLITS`)
LANG.phrases.arrow    text of each phrase
LANG.sentences.arrow  text of each example sentence, with the file and the line that it came from
LANG.examples.npy     int32 (examples, 4): phrase, sentence, start and end of the phrase's characters in the sentence;
                      by phrase, and within a phrase in the order in which they are to be used
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rag_mt.base.errors import UserError
from rag_mt.base.files import file_sha256, read_json, remembered_sha256, whole_folder, write_json
from rag_mt.base.types import Sentence

FORMAT = 1
MANIFEST, PAIRS = "manifest.json", "pairs.npy"
Split = Literal["train", "dev", "test", "known"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test", "known")
"""`known` pairs are further translations that the lexicon has: neither trained on nor asked for, but right answers."""

Rows = NDArray[np.int32]
Numbers = Sequence[int] | NDArray[np.integer[Any]]
"""The numbers of phrases or of sentences in a side."""


@dataclass(frozen=True)
class Side:
    """The phrases of one language and their example sentences.

    `sentences` is a table with the columns text, file and line; `examples` int32 (examples, 4) are phrase, sentence,
    start, end. Every phrase has at least one example.
    """

    language: str
    phrases: tuple[str, ...]
    sentences: pa.Table
    examples: Rows

    @cached_property
    def bounds(self) -> NDArray[np.int64]:
        """The examples of phrase p are rows `bounds[p]` to `bounds[p + 1]` of `examples`, int64 (phrases + 1,)."""
        return np.searchsorted(self.examples[:, 0], np.arange(len(self.phrases) + 1)).astype(np.int64)

    def examples_of(self, phrases: Numbers, most: int) -> Rows:
        """The first `most` examples of each of these phrases, (examples, 4) with the position in `phrases` in the
        first column."""
        wanted = np.asarray(phrases, dtype=np.int64)
        first = self.bounds[wanted]
        counts = np.minimum(self.bounds[wanted + 1] - first, most)
        positions = np.repeat(np.arange(len(wanted)), counts)
        within = np.arange(len(positions)) - np.repeat(np.cumsum(counts) - counts, counts)
        rows: Rows = self.examples[np.repeat(first, counts) + within]
        rows[:, 0] = positions
        return rows

    def texts(self, sentences: Numbers) -> list[str]:
        """The texts of these sentences."""
        texts: list[str] = self.sentences.column("text").take(pa.array(np.asarray(sentences))).to_pylist()
        return texts


@dataclass(frozen=True)
class ExampleSet:
    """Phrase pairs of two languages, `source` the first of the name (`de` of `de-en`), with their example sentences.

    `rows` int32 (pairs, 3) are source phrase, target phrase and the number of the split in `SPLITS`.
    """

    name: str
    source: Side
    target: Side
    rows: Rows
    manifest: Mapping[str, Any]

    @property
    def sides(self) -> tuple[Side, Side]:
        """Source and target."""
        return self.source, self.target

    def pairs(self, split: Split) -> Rows:
        """The pairs of a split, (pairs, 2) source and target phrase."""
        return self.rows[self.rows[:, 2] == SPLITS.index(split), :2]

    def unpaired(self, side: int) -> NDArray[np.int64]:
        """The phrases of side 0 (source) or 1 (target) that belong to no pair of any split but perhaps to `known` ones:
        further candidates of a search."""
        paired = self.rows[self.rows[:, 2] != SPLITS.index("known"), side]
        return np.setdiff1d(np.arange(len(self.sides[side].phrases)), paired)

    def answers(self, split: Split, side: int) -> list[frozenset[int]]:
        """For each pair of the split the phrases of side 0 or 1 that the lexicon, in any split, has as a translation of
        its phrase of the other side."""
        translations: dict[int, set[int]] = {}
        for asked, answer in self.rows[:, [1 - side, side]].tolist():
            translations.setdefault(asked, set()).add(answer)
        return [frozenset(translations[asked]) for asked in self.pairs(split)[:, 1 - side].tolist()]


def sentence_table(texts: Sequence[str], files: Sequence[str] = (), lines: Sequence[int] = ()) -> pa.Table:
    """A table of sentences as a `Side` has it; without files and lines their origin is unknown."""
    origins = pa.array(files or [""] * len(texts), pa.string()), pa.array(lines or [0] * len(texts), pa.int64())
    return pa.table({"text": pa.array(texts, pa.string()), "file": origins[0], "line": origins[1]})


def side_of(language: str, phrases: Sequence[str], examples: Iterable[Iterable[tuple[Sentence, int, int]]]) -> Side:
    """A side from the example sentences of each phrase, with the phrase's start and end in them. Sentences that say the
    same are one."""
    sentences: dict[str, Sentence] = {}
    numbers: dict[str, int] = {}
    rows = []
    for phrase, places in enumerate(examples):
        for sentence, start, end in places:
            sentences.setdefault(sentence.text, sentence)
            rows.append((phrase, numbers.setdefault(sentence.text, len(numbers)), start, end))
    origins = [sentence.source for sentence in sentences.values()]
    table = sentence_table(list(sentences), [o.file for o in origins], [o.line for o in origins])
    return Side(language, tuple(phrases), table, np.array(rows, np.int32).reshape(-1, 4))


def write_examples(
    folder: Path, name: str, sides: tuple[Side, Side], rows: Rows, facts: Mapping[str, Any]
) -> ExampleSet:
    """Write a set; the folder appears when it is complete. `facts` tell what it was made of. Raises UserError if the
    folder exists."""
    if folder.exists():
        raise UserError(f"{folder} exists already: give another --output, or remove it")
    with whole_folder(folder) as part:
        np.save(part / PAIRS, np.ascontiguousarray(rows, dtype=np.int32), allow_pickle=False)
        for side in sides:
            np.save(part / _files(side.language)[2], np.ascontiguousarray(side.examples, np.int32), allow_pickle=False)
            phrases = pa.table({"text": pa.array(side.phrases, pa.string())})
            for file, table in zip(_files(side.language), (phrases, side.sentences), strict=False):
                with pa.ipc.new_file(str(part / file), table.schema) as writer:
                    writer.write_table(table)
        files = {p.name: {"size": p.stat().st_size, "sha256": file_sha256(p)} for p in sorted(part.iterdir())}
        contents = {"format": FORMAT, "languages": [s.language for s in sides], "name": name, **facts, "files": files}
        write_json(part / MANIFEST, contents)
    return open_examples(folder)


def open_examples(folder: Path) -> ExampleSet:
    """The set in a folder, memory-mapped. Raises UserError where there is none, and for one that is damaged."""
    command = "`python -m finetune.xpr.data`"
    if not (folder / MANIFEST).is_file():
        raise UserError(f"there are no phrase pairs with examples in {folder}: make them with {command}")
    manifest = read_json(folder / MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise UserError(f"{folder} is of another format than {FORMAT}: make it again with {command}")
    hashes = {name: file["sha256"] for name, file in manifest["files"].items()}
    whole = {name for name in hashes if (folder / name).is_file() and remembered_sha256(folder / name) == hashes[name]}
    if wrong := [name for name in hashes if name not in whole]:
        raise UserError(f"{folder} is damaged ({', '.join(wrong)}): make it again with {command}")
    source, target = (_open_side(folder, language) for language in manifest["languages"])
    rows: Rows = np.load(folder / PAIRS, allow_pickle=False)
    return ExampleSet(manifest["name"], source, target, rows, manifest)


def _files(language: str) -> tuple[str, str, str]:
    return f"{language}.phrases.arrow", f"{language}.sentences.arrow", f"{language}.examples.npy"


def _open_side(folder: Path, language: str) -> Side:
    phrases, sentences = (
        pa.ipc.open_file(pa.memory_map(str(folder / file))).read_all() for file in _files(language)[:2]
    )
    examples: Rows = np.load(folder / _files(language)[2], mmap_mode="r", allow_pickle=False)
    return Side(language, tuple(phrases.column("text").to_pylist()), sentences, examples)
