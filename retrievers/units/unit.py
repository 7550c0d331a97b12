"""What of a text is indexed and queried: the contract of a unit maker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.types import Floats, Kind, Unit

QUERY_THRESHOLD = "query_threshold"
"""The setting that chooses the units of queries and leaves an index as it is."""


class UnitMaker(Protocol):
    """Texts to units with vectors. Two makers with equal `settings` make comparable vectors.

    `settings` is JSON-able and holds `encoder`, `fingerprint` and all else that changes vectors;
    `block` is the number of texts whose units comfortably fit into memory at once.
    """

    unit: Unit
    dimension: int
    settings: Mapping[str, Any]
    block: int

    def units(self, texts: Sequence[str], kind: Kind) -> tuple[Floats, NDArray[np.int32]]:
        """The units of all texts, ordered by text: L2-normalised vectors (units, dimension) and, int32 (units, 3),
        the text's number with the start and end characters of the unit. A text may have none."""
        ...


@runtime_checkable
class Pooling(Protocol):
    """A unit maker whose units are put together from several texts of an index, of up to `pooled` at once."""

    pooled: int


def index_block(maker: UnitMaker) -> int:
    """The number of texts whose units an index takes at once."""
    return maker.pooled if isinstance(maker, Pooling) else maker.block
