"""The units of a memory: whole sentences, encoded alike whether they are looked up or stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.types import Encoder, Floats, Kind, Unit
from retrievers.units.unit import SentenceUnits, unit_settings

KIND: Kind = "query"
"""What sentences, drafts and stored sentences are encoded as: neither of them asks and neither answers."""


class MemoryUnits(SentenceUnits):
    """Whole texts as units (a UnitMaker); blank ones have none."""

    unit: Unit = "memory"
    block = 256

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder)
        self.settings: Mapping[str, Any] = unit_settings("sentences", encoder, kind=KIND)

    def units(self, texts: Sequence[str], kind: Kind) -> tuple[Floats, NDArray[np.int32]]:
        """Sentence vectors (units, dimension) and spans (units, 3), whatever `kind` is asked for."""
        return super().units(texts, KIND)
