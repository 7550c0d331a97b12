"""What a memory's similarity is fitted on: sentences with references and drafts, each set with the index that it is
recalled from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.errors import UserError
from rag_mt.base.files import file_sha256, settings_hash
from rag_mt.base.languages import direction_group
from retrievers.encoders.encoder import ModelEncoder
from retrievers.index.manifest import read_manifest
from retrievers.index.opening import open_index
from retrievers.memory.retriever import MemoryRetriever
from retrievers.memory.similarity import Similarity
from retrievers.memory.units import MemoryUnits
from retrievers.registry import encoder_for

FOLDS = 5
"""Parts of consecutive sentences that are held out in turn."""


@dataclass(frozen=True)
class Cell:
    """Sentences of one direction with references and drafts, and the folder of the index; `file` is where the sentences
    come from."""

    file: Path
    index: Path
    source: str
    target: str
    sentences: tuple[str, ...]
    references: tuple[str, ...]
    drafts: tuple[str, ...]

    @property
    def group(self) -> str:
        """`to-en`, `from-en` or `other`."""
        return direction_group(self.source, self.target).replace("_", "-")

    def folds(self) -> NDArray[np.int64]:
        """The fold of each sentence, consecutive ones together."""
        return np.arange(len(self.sentences)) * FOLDS // max(len(self.sentences), 1)

    def facts(self) -> dict[str, Any]:
        """What the cell is, without places of a machine."""
        manifest = read_manifest(self.index)
        return {
            "sentences": len(self.sentences),
            "direction": f"{self.source}-{self.target}",
            "file": f"{self.file.parent.parent.name}/{self.file.parent.name}/{self.file.name}",
            "sha256": file_sha256(self.file),
            "index": self.index.name,
            "index_sentences": manifest.sentences,
            "manifest": settings_hash(manifest.as_dict()),
        }

    def retriever(self, encoder: ModelEncoder, similarity: Similarity) -> MemoryRetriever:
        """A retriever over the index."""
        maker = MemoryUnits(encoder)
        return MemoryRetriever("memory", open_index(self.index, maker.settings), maker, self.source, similarity)


def read_cells(named: Sequence[Sequence[str]], limit: int = 0) -> list[Cell]:
    """The cells of (file, folder of an index) pairs, at most `limit` sentences of each (0: all).

    A file is a run of `python -m eval.translation` without hints (RUNS/plain/SRC-TGT.jsonl), whose outputs are the
    drafts, or JSONL with `source_language`, `target_language`, `source`, `target` and `draft`. Raises UserError for
    other files, files of several directions, and indexes of another retriever or language.
    """
    cells = []
    for file, folder in ((Path(a), Path(b)) for a, b in named):
        rows = list(_rows(file))[: limit or None]
        directions = {row[:2] for row in rows}
        if len(directions) != 1:
            raise UserError(f"{file} has sentences of {len(directions)} directions: give one file for each direction")
        source, target = directions.pop()
        manifest = read_manifest(folder)
        if (manifest.retriever, manifest.language) != ("memory", target):
            raise UserError(
                f"{file} needs a memory of {target}, and {folder} is for {manifest.retriever} in {manifest.language}: "
                f"build one with `rag-mt index build DIR TEXT --lang {target} --retriever memory`"
            )
        columns = [tuple(column) for column in zip(*(row[2:] for row in rows), strict=True)]
        cells.append(Cell(file, folder, source, target, *columns))
    return cells


def encoder_of(cells: Sequence[Cell], device: str) -> ModelEncoder:
    """The encoder that all indexes have; raises UserError where they have several."""
    names = sorted({read_manifest(cell.index).encoder for cell in cells})
    if len(names) > 1:
        raise UserError(f"the indexes have the encoders {', '.join(names)}: give indexes of one encoder")
    return encoder_for("memory", names[0], device)


def _rows(file: Path) -> Iterator[tuple[str, str, str, str, str]]:
    """Source and target language, source, reference and draft of each sentence of a file."""
    if not file.is_file():
        raise UserError(f"there is no file {file}: give a run of `python -m eval.translation` or JSONL with drafts")
    try:
        first, *rest = map(json.loads, filter(None, file.read_text(encoding="utf-8").split("\n")))
        if "settings" in first:
            codes = first["settings"]["source"], first["settings"]["target"]
            records = dict(cast(tuple[int, dict[str, Any]], numbered) for line in rest for numbered in line["done"])
            for _, record in sorted(records.items()):
                yield *codes, record["source"], record["reference"], record.get("draft", record["text"])
        else:
            for record in (first, *rest):
                codes = record["source_language"], record["target_language"]
                yield *codes, record["source"], record["target"], record["draft"]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{file} has no sentences with drafts ({error!r}): give a run of `python -m eval.translation`, or JSONL "
            "with source_language, target_language, source, target and draft"
        ) from None
