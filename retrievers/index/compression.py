"""Compressing the vectors of an index that is there already."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.defaults import BITS, FP16
from rag_mt.base.errors import UserError
from rag_mt.base.types import Floats, Kind
from retrievers.bm25 import Bm25Settings
from retrievers.index.build import build_index
from retrievers.index.codes import FEWEST, TOGETHER, possible
from retrievers.index.manifest import Manifest
from retrievers.index.opening import open_index
from retrievers.index.places import kind_of
from retrievers.index.replacing import building_place
from retrievers.index.unfinished import SHARDS
from retrievers.index.vectors import form_of


class _NoUnits:
    """The unit maker of an index to which nothing is added (a UnitMaker)."""

    block = 1024

    def __init__(self, manifest: Manifest) -> None:
        self.unit, self.dimension, self.settings = manifest.unit, manifest.dimension, manifest.settings

    def units(self, texts: Sequence[str], kind: Kind) -> tuple[Floats, NDArray[np.int32]]:
        """None of no texts."""
        return np.empty((0, self.dimension), np.float32), np.empty((0, 3), np.int32)


def compress_index(folder: Path, bits: int, rerank: bool, terms: Bm25Settings | None, show: bool = False) -> Manifest:
    """Store each number of the vectors in so many bits, with `rerank` the vectors in fp16 beside them; returns the new
    manifest. Cut-offs, models, adapters and lists stay; 4 and 2 bits are searched in lists. `terms` are the settings
    that the index has for BM25. Raises UserError where that cannot be done."""
    if kind := kind_of(folder):
        raise UserError(
            f"{folder} is in {kind.title}, which stores vectors in its own way: compress the folder of an index"
        )
    now, codes = open_index(folder).manifest, {"bits": bits, "rerank": rerank and bits != FP16}
    if bits not in BITS:
        raise UserError(f"{bits} bits a number are not possible: choose one of {', '.join(map(str, BITS))}")
    if not now.dimension:
        raise UserError(f"index {folder} is one of {now.retriever} without vectors: there is nothing to compress")
    if not possible(bits, now.dimension):
        fewest = min(few for few in BITS if possible(few, now.dimension))
        raise UserError(f"vectors of {now.dimension} dimensions do not go into {bits} bits a number: choose {fewest}")
    if bits in TOGETHER and now.units < FEWEST:
        raise UserError(
            f"index {folder} has {now.units} {now.unit} vectors, of which {bits} bits a number cannot be made: choose "
            f"8, or give an index of {FEWEST} or more"
        )
    if any(building_place(folder).glob(SHARDS)):
        raise UserError(
            f"index {folder} has a change that was interrupted: give that `rag-mt index add` or `build` command again, "
            f"or delete {building_place(folder)}"
        )
    if codes == (now.codes or {"bits": FP16, "rerank": False}):
        return now
    return build_index(
        folder,
        (),
        _NoUnits(now),
        retriever=now.retriever,
        language=now.language,
        plan=codes,
        terms=terms,
        without=(),
        form="auto" if now.bits in TOGETHER else form_of(now),
        codes=codes,
        total=0,
        show=show,
    )
