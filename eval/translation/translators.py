"""Translators of systems; models are loaded once for all systems and directions that share their settings.

The hints of a system may be others than a retriever finds, to show what hints can do: none of the sentence's own
(`shuffled`), all of them right (`oracle`), or the retrieved ones without the sentence's own translation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from eval.data.phrase_pairs import Frequent, all_phrase_pairs
from eval.data.suites import Part, Suite
from eval.translation.systems import System
from prompts.builder import MAX_HINTS
from rag_mt.base.errors import UserError
from rag_mt.base.files import settings_hash
from rag_mt.base.types import (
    DraftRetriever,
    Hint,
    Hit,
    LanguageModel,
    Origin,
    Recalled,
    Retriever,
    Sentence,
    Span,
    Unit,
)
from rag_mt.llm.opening import open_llm
from rag_mt.translation.translator import Translator
from retrievers.ccpr.retriever import CcprRetriever
from retrievers.dense import IndexRetriever, longest_apart
from retrievers.encoders.alignment import EncoderAligner, Links
from retrievers.encoders.encoder import ModelEncoder
from retrievers.index.search import Index
from retrievers.registry import encoder_for, encoder_key

Retrieve = Callable[[Sequence[Sentence]], list[tuple[Hint, ...]]]
ENCODERS = 3
"""Encoders that are kept loaded: one each for sentences, phrases and alignment."""


@dataclass(frozen=True)
class Run:
    """One system on one cell; `folder` is that of all runs."""

    system: System
    part: Part
    folder: Path

    @cached_property
    def own(self) -> System:
        """The system at the cell."""
        return self.system.at(*self.part.cell)

    def file(self, ending: str) -> Path:
        """`FOLDER/SYSTEM/SRC-TGT`, or `FOLDER/SYSTEM/DOMAIN.SRC-TGT`, with an ending such as `.jsonl`."""
        return self.folder / self.system.name / f"{self.part.name}{ending}"

    @property
    def llm_key(self) -> tuple[Any, ...]:
        """What tells one loaded language model from another."""
        own = self.own
        settings = (own.engine, own.device, own.dtype, own.quantization, own.batch_size, own.llm_options)
        return (own.llm, own.own_adapter, *settings)


def in_order(runs: Sequence[Run]) -> list[Run]:
    """The runs, those with the same language model one after the other, else as they are."""
    keys = [run.llm_key for run in runs]
    return [runs[n] for n in sorted(range(len(runs)), key=lambda n: keys.index(keys[n]))]


class Models:
    """The models that are loaded: one language model, and the encoders that were used last."""

    def __init__(self) -> None:
        self._llm: LanguageModel | None = None
        self._llm_key: tuple[Any, ...] = ()
        self._encoders: dict[tuple[Any, ...], ModelEncoder] = {}

    def llm(self, run: Run) -> LanguageModel:
        """The language model of a run; another one is forgotten before it is loaded."""
        if self._llm is None or run.llm_key != self._llm_key:
            self._llm = None
            name, adapter, *settings = self._llm_key = run.llm_key
            names = ("engine", "device", "dtype", "quantization", "batch_size", "options")
            self._llm = open_llm(name, adapter=adapter, **dict(zip(names, settings, strict=True)))
        return self._llm

    def encoder(self, retriever: str, name: str | None, device: str, dtype: str) -> ModelEncoder:
        """`encoder_for`; the `ENCODERS` that were used last are not loaded again, and one that must go goes before the
        next is loaded."""
        key = encoder_key(retriever, name, device, dtype)
        encoder = self._encoders.pop(key, None)
        if encoder is None:
            if len(self._encoders) == ENCODERS:
                del self._encoders[next(iter(self._encoders))]
            encoder = encoder_for(retriever, name, device, dtype)
        self._encoders[key] = encoder
        return encoder


def open_translator(run: Run, suite: Suite, models: Models, show: bool = True) -> Translator:
    """The translator of a run, whose settings tell what its hints become.

    Without an index of its own a system looks into the sample index. That holds the references of the suite `sample`,
    and each is left out for its own sentence.
    """
    own, part = run.own, run.part
    llm = models.llm(run)
    settings: dict[str, Any] = {"hints": own.hints}
    if own.hints == "oracle":
        encoder = models.encoder("sentence", own.align_encoder, own.device, "auto")
        aligner = EncoderAligner(encoder, own.align_layer, method="intersection")
        links = aligner.align(list(zip(part.sources, part.references, strict=True)))
        hints = oracle_hints(part.sources, part.references, links, part.target, own.oracle_words)
        fixed = Fixed(dict(enumerate(hints, 1)))
        translator = Translator(
            part.source,
            part.target,
            retriever=fixed,
            llm=llm,
            wrapper=own.wrapper,
            max_new_tokens=own.max_new_tokens,
        )
        aligned = settings_hash([dict(aligner.settings), aligner.method, "", part.sha256])
        translator.more_settings |= settings | {"oracle": [aligned, own.oracle_words]}
        return translator
    retriever = "none" if own.hints == "none" else own.retriever
    searches = retriever != "none"
    translator = Translator(
        part.source,
        part.target,
        retriever=retriever,
        llm=llm,
        index=(own.index or None) if searches else None,
        only=own.only if searches else None,
        encoder=(own.encoder or None) if searches else None,
        wrapper=own.wrapper,
        device=own.device,
        dtype=own.dtype,
        max_new_tokens=own.max_new_tokens,
        consensus=own.consensus,
        show=show,
        encoders=models.encoder,
    )
    if translator.memory is not None and suite.quick and not own.index:
        raise UserError(
            f"system {own.name} has the retriever {own.retriever!r} and the sample index, which holds the "
            f"references of the suite {suite.name}: give it an index, or choose another suite with --suite"
        )
    if own.cut_off and isinstance(translator.retriever, IndexRetriever):
        translator.retriever.cut_off = settings["cut_off"] = own.cut_off
    if own.segmentation != "learned" and isinstance(translator.retriever, CcprRetriever):
        translator.retriever.segmentation = settings["segmentation"] = own.segmentation
    if suite.quick and not own.index and isinstance(translator.retriever, IndexRetriever):
        translator.retriever = without_references(translator.retriever, part.references)
        settings["left out"] = "own reference"
    if own.hints == "shuffled":
        memory = translator.memory
        if memory is not None:
            translator.retriever = ShuffledMemory(memory, own.seed)
        else:
            translator.retriever = with_shuffled(translator.retriever, own.seed)
        settings["seed"] = own.seed
    translator.more_settings |= settings
    return translator


class Adjusted:
    """Another retriever (a Retriever) with `more` settings, whose hints come from `retrieve`."""

    def __init__(self, retriever: Retriever, more: Mapping[str, Any], retrieve: Retrieve) -> None:
        self.name, self.unit = retriever.name, retriever.unit
        self.settings: Mapping[str, Any] = {**retriever.settings, **more}
        self._retrieve = retrieve

    def retrieve(self, sentences: Sequence[Sentence]) -> list[tuple[Hint, ...]]:
        """For each sentence its hints."""
        return self._retrieve(sentences)


def with_shuffled(retriever: Retriever, seed: int) -> Adjusted:
    """The retriever's hints, each sentence with those of others (see `shuffled`)."""
    return Adjusted(retriever, {"shuffled": seed}, lambda sentences: shuffled(retriever.retrieve(sentences), seed))


def shuffled(hints: Sequence[Sequence[Hint]], seed: int) -> list[tuple[Hint, ...]]:
    """The source spans of each sentence with the hits of other sentences.

    The sentences are put into a random order that depends on the seed and their number; a sentence gets the hits of
    those that follow it there, as many as it has spans. Only if all others together have fewer does it get fewer.
    """
    order = np.random.default_rng(seed).permutation(len(hints)).tolist()
    hits = [hint.hit for n in order for hint in hints[n]]
    mixed: list[tuple[Hint, ...]] = [()] * len(hints)
    end = 0
    for n in order:
        end += len(hints[n])
        count = min(len(hints[n]), len(hits) - len(hints[n]))
        mixed[n] = tuple(Hint(hints[n][i].source_span, hits[(end + i) % len(hits)]) for i in range(count))
    return mixed


class ShuffledMemory(Adjusted):
    """A memory (a DraftRetriever) that gives the sentences for which it has hints to show those of each other; it has
    to be asked for all at once."""

    def __init__(self, memory: DraftRetriever, seed: int) -> None:
        super().__init__(memory, {"shuffled": seed}, memory.retrieve)
        self._memory, self._seed, self.bilingual = memory, seed, memory.bilingual

    def recall(self, sentences: Sequence[Sentence], drafts: Sequence[str]) -> list[Recalled]:
        """What is recalled for each sentence with hits of other sentences (see `shuffled`): whole sentences and
        phrases are shuffled apart; whether they are shown and with which gain is the sentence's own."""
        recalled = list(self._memory.recall(sentences, drafts))
        shown = [n for n, own in enumerate(recalled) if own.shown]
        sentences_of_others, phrases_of_others = (
            shuffled([[h for h in recalled[n].hints if h.hit.whole == whole] for n in shown], self._seed)
            for whole in (True, False)
        )
        for n, whole, phrases in zip(shown, sentences_of_others, phrases_of_others, strict=True):
            hints = sorted((*whole, *phrases), key=lambda hint: -hint.hit.score)
            recalled[n] = replace(recalled[n], hints=tuple(hints))
        return recalled

    def known(self, sentences: Sequence[Sentence]) -> list[Hit | None]:
        """What the memory knows."""
        return self._memory.known(sentences)


def without_references(retriever: IndexRetriever, references: Sequence[str]) -> Adjusted:
    """A retriever over an index that holds the references, as if each sentence's own were not there; `references[i]` is
    that of the sentence whose origin has the line i + 1."""
    index = retriever.index
    assert isinstance(index, Index)
    numbers: dict[str, list[int]] = {}
    for number in range(index.manifest.sentences):
        numbers.setdefault(index.sentence(number).text, []).append(number)
    twins = [numbers.get(text, []) for text in references]
    more = {"without": settings_hash(list(references))}
    return Adjusted(retriever, more, lambda texts: retriever.retrieve(texts, [twins[s.source.line - 1] for s in texts]))


class Fixed:
    """Hints that are known before (a Retriever): those of the sentence whose origin has that line."""

    name = "oracle"
    unit: Unit = "phrase"

    def __init__(self, hints: Mapping[int, tuple[Hint, ...]]) -> None:
        self.settings: Mapping[str, Any] = {"hints": settings_hash(sorted(hints.items()))}
        self._hints = hints

    def retrieve(self, sentences: Sequence[Sentence]) -> list[tuple[Hint, ...]]:
        """The hints of each sentence, in order."""
        return [self._hints[s.source.line] for s in sentences]


def oracle_hints(
    sources: Sequence[str], references: Sequence[str], links: Sequence[Links], language: str, max_words: int
) -> list[tuple[Hint, ...]]:
    """Phrases cut from the references, for the parts of the sources that they are aligned with.

    Of all consistent pairs of spans of at most `max_words` words (Koehn, Och and Marcu 2003) the longest that do not
    overlap are taken. The context of a hint is the phrase alone: the rest of the reference is not shown.
    """

    def hint(start: int, end: int, phrase: str) -> Hint:
        return Hint(Span(start, end), Hit(Sentence(phrase, language, Origin("reference")), Span(0, len(phrase)), 1.0))

    pairs = all_phrase_pairs(sources, references, links, Frequent(), max_words)
    return [
        tuple(hint(a, b, text[c:d]) for a, b, c, d in rows[longest_apart(rows[:, 0], rows[:, 1], MAX_HINTS)].tolist())
        for text, rows in zip(references, pairs, strict=True)
    ]
