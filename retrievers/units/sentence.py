"""Sentence retrieval: one vector per sentence, as the XLM-R and LaBSE systems of the CCPR paper (section 6.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.types import Encoder, Floats, Kind, Unit


class SentenceUnits:
    """Whole texts as units (a UnitMaker); blank texts have none."""

    unit: Unit = "sentence"
    block = 1024

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.dimension = encoder.dimension
        self.settings: Mapping[str, Any] = {
            "units": "sentences",
            "encoder": encoder.id,
            "fingerprint": encoder.fingerprint,
        }

    def units(self, texts: Sequence[str], kind: Kind) -> tuple[Floats, NDArray[np.int32]]:
        """Sentence vectors (units, dimension) and the spans 0 to len(text), int32 (units, 3)."""
        spans = np.array([(n, 0, len(t)) for n, t in enumerate(texts) if t.strip()], dtype=np.int32).reshape(-1, 3)
        vectors = self.encoder.encode([texts[n] for n in spans[:, 0]], kind)
        return vectors.reshape(len(spans), self.dimension), spans
