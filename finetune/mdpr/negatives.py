"""Passages that share terms with a question without answering it: the best hits of BM25 that are not relevant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from finetune.mdpr.relevance import Example, Passage
from retrievers.bm25 import Bm25


def with_bm25_negatives(
    examples: Sequence[Example], collection: Sequence[Passage], language: str, depth: int, related: bool = True
) -> list[Example]:
    """The examples, each with its `depth` best other passages of the collection in place of its negatives, best first.

    The relevant passages of an example and, unless `related`, the other passages with a relevant one's title (parts of
    the same document) are no negatives.
    """
    found = Bm25.build([p.shown for p in collection], language)
    by_id: dict[str, list[int]] = {}
    by_title: dict[str, list[int]] = {}
    for number, passage in enumerate(collection):
        by_id.setdefault(passage.id, []).append(number)
        by_title.setdefault(passage.title, []).append(number)
    without = []
    for example in examples:
        own = [number for p in example.positives for number in by_id.get(p.id, ())]
        if not related:
            own += [number for p in example.positives if p.title for number in by_title.get(p.title, ())]
        without.append(own)
    _, best = found.top(found.queries([e.query for e in examples], language), depth, without)
    return [
        replace(example, negatives=tuple(collection[n] for n in row if n >= 0))
        for example, row in zip(examples, best.tolist(), strict=True)
    ]
