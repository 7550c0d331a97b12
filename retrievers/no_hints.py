"""Translation without hints: loads nothing that searching needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rag_mt.base.defaults import WITHOUT_INDEX
from rag_mt.base.types import Hint, Sentence, Unit


class NoHints:
    """The retriever `none`: translation without hints."""

    name = WITHOUT_INDEX
    unit: Unit = "sentence"
    settings: Mapping[str, Any] = {}

    def retrieve(self, sentences: Sequence[Sentence]) -> list[tuple[Hint, ...]]:
        """An empty tuple per sentence."""
        return [() for _ in sentences]
