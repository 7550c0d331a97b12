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
from retrievers.index.build import build_index, restore
from retrievers.index.codes import FEWEST, possible
from retrievers.index.lance.place import is_lance
from retrievers.index.manifest import Manifest
from retrievers.index.search import open_index
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
    manifest. Cut-offs, models, adapters and lists stay; `terms` are the settings that the index has for BM25. Raises
    UserError where that cannot be done."""
    if is_lance(folder):
        raise UserError(f"{folder} is in LanceDB, which stores vectors in its own way: compress the folder of an index")
    restore(folder)
    now = open_index(folder).manifest
    if bits not in BITS:
        raise UserError(f"{bits} bits a number are not possible: choose one of {', '.join(map(str, BITS))}")
    if not now.dimension:
        raise UserError(f"index {folder} is one of {now.retriever} without vectors: there is nothing to compress")
    if not possible(bits, now.dimension):
        raise UserError(f"vectors of {now.dimension} dimensions do not go into {bits} bits a number: choose 8")
    if now.units < FEWEST:
        raise UserError(f"index {folder} has {now.units} {now.unit} vectors: expected {FEWEST} or more to compress")
    if now.codes is not None and not now.rerank and (bits > now.bits or rerank):
        raise UserError(
            f"index {folder} has its vectors in {now.bits} bits a number alone, and not in fp16: build it again with "
            "`rag-mt index build --replace`"
        )
    return build_index(
        folder,
        (),
        _NoUnits(now),
        retriever=now.retriever,
        language=now.language,
        plan={"bits": bits, "rerank": rerank},
        terms=terms,
        without=(),
        form=form_of(now),
        codes={"bits": bits, "rerank": rerank and bits != FP16},
        show=show,
    )
