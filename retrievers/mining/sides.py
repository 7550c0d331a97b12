"""One side of a mining job: its sentences as an index of sentence vectors, built in shards and resumable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.types import Encoder, Floats, Kind, Sentence
from retrievers.index.build import build_index
from retrievers.index.manifest import MANIFEST
from retrievers.index.search import open_index
from retrievers.mining.neighbours import IndexSide
from retrievers.units.unit import SentenceUnits

KIND: Kind = "query"
"""What both sides are encoded as: neither of them asks and neither answers."""


class MinedUnits(SentenceUnits):
    """Whole texts as units, of the same kind in either side (a UnitMaker)."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder)
        self.settings = {**self.settings, "kind": KIND}

    def units(self, texts: Sequence[str], kind: Kind) -> tuple[Floats, NDArray[np.int32]]:
        """Sentence vectors and spans, whatever `kind` is asked for."""
        return super().units(texts, KIND)


def encoded_side(
    folder: Path,
    sentences: Iterable[Sentence],
    encoder: Encoder,
    language: str,
    *,
    total: int,
    show: bool,
) -> IndexSide:
    """The side in `folder`, encoded now as far as that was not done before.

    Raises UserError for what `build_index` and `open_index` do.
    """
    maker = MinedUnits(encoder)
    if not (folder / MANIFEST).is_file():
        build_index(folder, sentences, maker, retriever="sentence", language=language, total=total, show=show)
    return IndexSide(open_index(folder, maker.settings))
