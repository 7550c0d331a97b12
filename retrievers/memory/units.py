"""The units of a memory: whole sentences, encoded alike whether they are looked up or stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.files import SAMPLE_CORPUS
from rag_mt.base.languages import base_code
from rag_mt.base.types import Encoder, Floats, Kind, Unit
from retrievers.units.unit import SentenceUnits, unit_settings

KIND: Kind = "query"
"""What sentences, drafts and stored sentences are encoded as: neither of them asks and neither answers."""


SAMPLE = 64
"""Sentences of each language that its mean is taken of."""


def language_difference(encoder: Encoder, source: str, target: str) -> Floats:
    """The mean vector of sentences in the language `source` less that of the same sentences in `target`, (dimension,).

    Vectors of one language lie nearer to each other than what they say tells: without this difference a sentence is
    nearest to what is half in its own language. Zeros for languages that the sample corpus does not have.
    """
    files = [SAMPLE_CORPUS / f"{base_code(code)}.txt" for code in (source, target)]
    if not all(file.is_file() for file in files):
        return np.zeros(encoder.dimension, np.float32)
    texts = [file.read_text(encoding="utf-8").splitlines()[:SAMPLE] for file in files]
    vectors = encoder.encode([*texts[0], *texts[1]], KIND)
    difference: Floats = vectors[: len(texts[0])].mean(axis=0) - vectors[len(texts[0]) :].mean(axis=0)
    return difference


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
