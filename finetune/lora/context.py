"""The sentences before a pair in its document, for examples that show them: with their translations in the data, or
with those of the language model itself, as users' documents have them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from finetune.lora.examples import Example
from finetune.training.sampling import random_for
from rag_mt.base.console import progress
from rag_mt.base.types import LanguageModel, Neighbour, Sentence
from rag_mt.formats.parallel import Corpus
from rag_mt.translation.translator import Translator

MOST = 3
"""Sentences that an example shows; each number up to it is as likely."""
DOMAINS = ("news", "tech-docs", "fiction-game")
"""Those whose collections are documents in their order; the rows of others are sorted, or of one sentence each."""
BATCH = 64
"""Sentences that are translated at once."""


def sentences_before(
    corpus: Corpus, allowed: Container[int], row: int, forward: bool, most: int
) -> tuple[Neighbour, ...]:
    """Up to `most` sentences that stand directly before a row in its collection, in order, with their translations
    into English (`forward`) or from it; none beyond a line that is missing or a row that is not `allowed`."""
    found: list[Neighbour] = []
    if corpus.domains[row] not in DOMAINS or row not in allowed:
        return ()
    for offset in range(1, most + 1):
        other = row - offset
        adjacent = other in allowed and corpus.origins[other] == corpus.origins[row]
        if not adjacent or corpus.lines[other] != corpus.lines[row] - offset:
            break
        sides = corpus.sources[other].strip(), corpus.targets[other].strip()
        found.append(Neighbour(-offset, *(sides if forward else sides[::-1])))
    return tuple(found[::-1])


def own_translations(examples: Sequence[Example], share: float, seed: int, llm: str, adapter: str) -> list[Example]:
    """The examples, a `share` of which shows the language model's own translations of the sentences before them; one
    that it cannot translate is not shown. `adapter` is a folder or `auto` for the one that ships."""
    drawn = [
        bool(e.context) and random_for(f"own {e.pair.source}\n{e.pair.target}", seed).random() < share for e in examples
    ]
    asked: dict[tuple[str, str], dict[str, str]] = {}
    for example in (example for example, own in zip(examples, drawn, strict=True) if own):
        key = example.pair.source_language, example.pair.target_language
        asked.setdefault(key, {}).update((one.source, "") for one in example.context)
    if not asked:
        return list(examples)
    model: LanguageModel | str = llm
    with closing(progress(sum(map(len, asked.values())), "sentences", "translating what stands before")) as bar:
        for (source, target), texts in sorted(asked.items()):
            loading: dict[str, Any] = (
                {"adapter": adapter, "engine": "transformers", "batch_size": BATCH} if model is llm else {}
            )
            translator = Translator(source, target, retriever="none", llm=model, **loading)
            model = translator.llm
            made = translator.translate_sentences([Sentence(text, source) for text in texts])
            texts.update((one.source.text, one.text if one.ok else "") for one in made)
            bar.update(len(made))
    return [
        replace(example, context=_translated(example, asked)) if own else example
        for example, own in zip(examples, drawn, strict=True)
    ]


def _translated(example: Example, texts: Mapping[tuple[str, str], Mapping[str, str]]) -> tuple[Neighbour, ...]:
    own = texts[example.pair.source_language, example.pair.target_language]
    return tuple(replace(one, translation=own[one.source]) for one in example.context if own[one.source])
