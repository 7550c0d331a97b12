"""Phrases that CCPR finds elsewhere in a text, as hints for training.

Parts of texts become indexes of their target sides. Looked up are those of their pairs that no phrase model was trained
on (`finetune.held_out`), so that hits are as good and as wrong as those for new text; what stands near a pair, or says
the same as its target, is left out of its search.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np

from finetune.held_out import held_out
from finetune.lora.config import DataConfig
from finetune.lora.examples import Pair
from rag_mt.base.types import Hint, Origin, Sentence
from retrievers.ccpr.retriever import CcprRetriever
from retrievers.encoders.encoder import ModelEncoder
from retrievers.index.opening import map_sentences
from retrievers.registry import build_for, open_retriever

RETRIEVER = "ccpr"
PART = 2000
"""Pairs of a text that are indexed together."""


def parts_of(texts: Mapping[str, Sequence[int]], order: Sequence[int], count: int) -> list[Sequence[int]]:
    """The rows around the first ones in `order`, up to PART of a text, of so many different texts (name: rows)."""
    place_of = {row: (name, place) for name, rows in texts.items() for place, row in enumerate(rows)}
    parts: dict[str, Sequence[int]] = {}
    for row in order:
        name, place = place_of[row]
        if name not in parts and len(parts) < count:
            begin = max(0, min(place - PART // 2, len(texts[name]) - PART))
            parts[name] = texts[name][begin : begin + PART]
    return list(parts.values())


def looked_up(part: Sequence[int], usable: set[int], english: Sequence[str]) -> list[int]:
    """The rows of a part that phrase models have not seen and that can be examples."""
    return [row for row in part if row in usable and held_out(english[row])]


def phrase_hints(
    part: Sequence[int], pairs: Mapping[int, Pair], targets: Sequence[str], settings: DataConfig, encoder: ModelEncoder
) -> dict[int, tuple[Hint, ...]]:
    """The hints of at least the lower end of `settings.least_confidence` for each of the pairs (by row; all in one
    direction), from the target sides of a part of their text (`targets` has those of all rows)."""
    first = next(iter(pairs.values()))
    numbers: dict[str, int] = {}
    number_of = {row: numbers.setdefault(" ".join(targets[row].split()), len(numbers)) for row in part}
    sentences = (Sentence(text, first.target_language, Origin("", n)) for text, n in numbers.items() if text)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "index"
        build_for(RETRIEVER, folder, sentences, encoder, first.target_language, form="exact", show=False)
        stored = {line: n for n, line in enumerate(map_sentences(folder).column("line").to_pylist())}
        languages = first.source_language, first.target_language
        opened = open_retriever(RETRIEVER, folder, encoder, source_language=languages[0], target_language=languages[1])
        retriever = cast(CcprRetriever, opened)
        if settings.least_confidence:
            retriever.cut_off = settings.least_confidence[0]
        rows = np.asarray(part)
        near = [rows[np.abs(rows - row) < max(settings.apart, 1)].tolist() for row in pairs]
        without = [sorted({stored[n] for n in (number_of[other] for other in own) if n in stored}) for own in near]
        found = retriever.retrieve([pair.sentence for pair in pairs.values()], without)
    return dict(zip(pairs, found, strict=True))
