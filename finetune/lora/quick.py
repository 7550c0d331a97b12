"""Examples of the sample corpus, to try tuning out where there is no data: far too few to learn from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from finetune.held_out import held_out
from finetune.lora.config import DataConfig
from finetune.lora.examples import Example
from finetune.lora.hints import Indexes, examples_of, retrieved
from finetune.lora.sample import Pair
from rag_mt.base.defaults import DEFAULT_RETRIEVER
from rag_mt.base.errors import UserError
from rag_mt.base.types import Origin
from retrievers.calibration import SAMPLE_CORPUS, default_index
from retrievers.registry import encoder_for, retriever_spec

TRAIN_PAIRS, DEV_PAIRS = 20, 2
"""Of each language."""


def quick_data(settings: DataConfig, device: str) -> tuple[list[Example], list[Example], dict[str, Any]]:
    """Examples into English to train on and to measure on, with hints of the default retriever from the sample index,
    each searched without the pair's own sentence; and what they are."""
    encoder = encoder_for(DEFAULT_RETRIEVER, None, device)
    folder = default_index(DEFAULT_RETRIEVER, "en", encoder, show=True)
    indexes = Indexes({"en": folder}, retriever_spec(DEFAULT_RETRIEVER).unit, device)
    settings, parts = replace(settings, least_confidence=()), []
    for dev, count in ((False, TRAIN_PAIRS), (True, DEV_PAIRS)):
        pairs, own = sample_pairs(settings, dev, count), settings.for_development if dev else settings
        parts.append(examples_of(pairs, indexes.unit, retrieved(pairs, indexes, own), own))
    return parts[0], parts[1], {"examples": "sentences of the sample corpus, for trying out only"}


def sample_pairs(settings: DataConfig, dev: bool, count: int) -> list[Pair]:
    """`count` pairs of each language, spread over the sample corpus: of the held-out tenth if they are for measuring,
    of the others if not. Raises UserError if the corpus has none of the languages."""
    english = (SAMPLE_CORPUS / "en.txt").read_text(encoding="utf-8").splitlines()
    made = []
    for language in settings.languages:
        file = SAMPLE_CORPUS / f"{language}.txt"
        if not file.is_file():
            continue
        other = file.read_text(encoding="utf-8").splitlines()
        lines = zip(other, english, range(1, len(other) + 1), strict=True)
        rows = [row for row in lines if held_out(row[1]) == dev]
        for source, target, line in rows[:: max(1, len(rows) // count)][:count]:
            made.append(Pair(language, "en", source, target, "sample", Origin(file.name, line)))
    if not made:
        raise UserError(
            f"the sample corpus has none of the languages {', '.join(settings.languages)}: give --examples, or other "
            "data.languages"
        )
    return made
