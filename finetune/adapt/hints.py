"""Hints of an adaptation: what the index gives for a sentence if the sentence's own block is not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from finetune.adapt.sentences import IndexText, Target
from finetune.lora.examples import Example, Pair
from finetune.lora.hints import search_without
from finetune.training.sampling import random_for
from rag_mt.base.types import Hint, Hit, Recalled, Sentence
from rag_mt.translation.journal import Journal
from retrievers.dense import IndexRetriever
from retrievers.memory.retriever import MemoryRetriever


class OtherBlocks:
    """The retriever of an index for sentences of that index, whose number (into `targets`) is the line that they come
    from: nothing of the blocks that a sentence stands in is found (a Retriever)."""

    def __init__(self, retriever: IndexRetriever, text: IndexText, targets: Sequence[Target]) -> None:
        self.own, self.text, self.targets = retriever, text, targets
        self.name, self.unit = retriever.name, retriever.unit

    @property
    def settings(self) -> Mapping[str, Any]:
        """Those of the index's retriever, and that it does not see a sentence's own block."""
        return {**self.own.settings, "blocks": int(self.text.blocks.max()) + 1}

    def left_out(self, number: int) -> list[int]:
        """The rows of the index that are left out for a sentence."""
        return [row for block in self.targets[number].blocks for row in self.text.rows(block)]

    def retrieve(self, sentences: Sequence[Sentence]) -> list[tuple[Hint, ...]]:
        """See `Retriever.retrieve`."""
        return self.own.retrieve(sentences, self._without(sentences))

    def _without(self, sentences: Sequence[Sentence]) -> list[list[int]]:
        return [self.left_out(sentence.source.line) for sentence in sentences]


class OtherMemory(OtherBlocks):
    """The same of a memory (a DraftRetriever), which knows no translation of a sentence that is not there."""

    own: MemoryRetriever
    bilingual = False

    def recall(self, sentences: Sequence[Sentence], drafts: Sequence[str]) -> list[Recalled]:
        """See `DraftRetriever.recall`."""
        return self.own.recall(sentences, drafts, self._without(sentences))

    def known(self, sentences: Sequence[Sentence]) -> list[Hit | None]:
        """See `DraftRetriever.known`."""
        return [None] * len(sentences)


def other_blocks(retriever: IndexRetriever, text: IndexText, targets: Sequence[Target]) -> OtherBlocks:
    """The retriever of an index without the blocks of the sentences that are looked up."""
    kind = OtherMemory if isinstance(retriever, MemoryRetriever) else OtherBlocks
    return kind(retriever, text, targets)


def with_hints(
    pairs: Sequence[Pair], retriever: OtherBlocks, share: float, seed: int, journal: Journal | None = None
) -> list[Example]:
    """Examples of back-translated pairs, the share `share` of them with hints. Which ones depends on their text and the
    seed alone."""
    hints: list[tuple[Hint, ...]] = [() for _ in pairs]
    hinted = [n for n, pair in enumerate(pairs) if random_for(pair.target, seed).random() < share]
    left_out = {n: retriever.left_out(pairs[n].origin.line) for n in hinted}
    search_without(retriever.own, pairs, left_out, journal, hints)
    return [Example(pair, retriever.unit, own) for pair, own in zip(pairs, hints, strict=True)]


def without_hints(pairs: Sequence[Pair], retriever: OtherBlocks) -> list[Example]:
    """Examples of other pairs, whose hints the index might hold the answer to."""
    return [Example(pair, retriever.unit) for pair in pairs]
