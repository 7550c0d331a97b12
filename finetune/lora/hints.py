"""The hints of examples: what a translation would be shown if the index did not hold its own reference."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from finetune.lora.config import DataConfig
from finetune.lora.examples import Example
from finetune.lora.leave_out import nearly_equal_sentences
from finetune.lora.right import right_hints
from finetune.lora.sample import Pair
from rag_mt.base.console import progress
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import settings_hash
from rag_mt.base.languages import base_code, language
from rag_mt.base.types import Hint, Sentence, Translation, Unit
from rag_mt.translation.journal import Journal
from retrievers.ccpr.confidence import confidence_in
from retrievers.ccpr.model import is_phrase_model, phrase_model_folder
from retrievers.ccpr.retriever import CcprRetriever
from retrievers.dense import IndexRetriever
from retrievers.encoders.alignment import EncoderAligner
from retrievers.encoders.encoder import ModelEncoder
from retrievers.index.manifest import read_manifest
from retrievers.index.search import map_sentences
from retrievers.registry import encoder_for, open_retriever

METHODS: dict[str, Unit | None] = {"plain": None, "sentence": "sentence", "phrase": "phrase"}
"""What the hits of each method are; plain prompts have none."""

BLOCK = 64
"""Sentences between two lines of the journal."""
READ = 4096


@dataclass(frozen=True)
class Indexes:
    """The folder of each target language's index, with what its retriever runs on."""

    folders: Mapping[str, Path]
    unit: Unit
    device: str = "auto"
    dtype: str = "auto"

    @property
    def facts(self) -> dict[str, Any]:
        """For each language what its index holds."""
        made = {}
        for code, folder in self.folders.items():
            found = read_manifest(folder)
            made[code] = {
                "retriever": found.retriever,
                "encoder": found.encoder,
                "sentences": found.sentences,
                "units": found.units,
                "manifest": settings_hash(found.as_dict()),
                "confidence": _confidence(found.encoder, folder),
            }
        return made


def _confidence(encoder: str, index: Path) -> str | None:
    """A hash of the confidence model for a phrase model's hits in an index, if there is one."""
    if not is_phrase_model(encoder):
        return None
    found = confidence_in(index) or confidence_in(phrase_model_folder(encoder))
    return settings_hash(asdict(found)) if found else None


def indexes_of(texts: Sequence[str], method: str, targets: Sequence[str], device: str, dtype: str) -> Indexes | None:
    """The indexes that `--index LANG=DIR` or `--index DIR` name, one for each of the target languages; None for the
    method plain.

    Raises UserError for an index of another unit than the method's and where one is missing or too many.
    """
    unit = METHODS[method]
    if unit is None:
        if texts:
            raise UserError(f"the method plain shows no hints, but there is --index {texts[0]}: leave it out")
        return None
    folders: dict[str, Path] = {}
    for text in texts:
        code, sign, rest = text.partition("=")
        named = bool(sign) and not Path(text).exists()
        folder = Path(rest if named else text)
        found = read_manifest(folder)
        if found.unit != unit:
            raise UserError(
                f"index {folder} holds units of the kind {found.unit}: --method {method} needs one of the kind {unit}, "
                f"built with `rag-mt index build --retriever {'ccpr' if unit == 'phrase' else unit}`"
            )
        folders[base_code(code if named else found.language)] = folder
    for code in targets:
        if code not in folders:
            raise UserError(
                f"the method {method} has no index of {language(code).name}: give --index {code}=DIR (`rag-mt index "
                f"build DIR TEXT --lang {code}` makes one)"
            )
    return Indexes({code: folders[code] for code in targets}, unit, device, dtype)


@dataclass(frozen=True)
class Found:
    """For each pair its hints and how many sentences of the index were left out for it; `facts` tell by direction what
    judged the hints; for each pair too, if the settings want some, the right hints that the index could give."""

    hints: list[tuple[Hint, ...]]
    left_out: list[int]
    facts: Mapping[str, Any]
    right: list[tuple[Hint, ...]] = field(default_factory=list)


def retrieved(
    pairs: Sequence[Pair], indexes: Indexes | None, settings: DataConfig, journal: Journal | None = None
) -> Found:
    """The hints that the retriever finds for each pair when every sentence of the index that is nearly equal to the
    pair's target is left out of the search.

    They are what a translation would show; with `settings.least_confidence`, all hints of at least its lower end. What
    the journal has from an earlier run is not searched again.
    """
    hints: list[tuple[Hint, ...]] = [() for _ in pairs]
    if indexes is None:
        return Found(hints, [0 for _ in pairs], {})
    near = _near(pairs, indexes)
    facts: dict[str, Any] = {}
    encoders: dict[tuple[str, str], ModelEncoder] = {}
    bar = progress(len(pairs), "sentences", "retrieving hints")
    for direction in dict.fromkeys(pair.direction for pair in pairs):
        rows = [n for n, pair in enumerate(pairs) if pair.direction == direction]
        retriever = _open(pairs[rows[0]], indexes, settings, encoders)
        facts[direction] = {"cut_off": retriever.cut_off, "confidence": isinstance(retriever, CcprRetriever)}
        missing = []
        for n in rows:
            kept = journal.take(n, _sentence(pairs[n])) if journal else None
            if kept is None:
                missing.append(n)
            else:
                hints[n] = kept.hints
                bar.update()
        for begin in range(0, len(missing), BLOCK):
            block = missing[begin : begin + BLOCK]
            sentences = [_sentence(pairs[n]) for n in block]
            made = retriever.retrieve(sentences, [near[n] for n in block])
            for n, own in zip(block, made, strict=True):
                hints[n] = own
            if journal:
                found = zip(sentences, block, made, strict=True)
                journal.add(block, [Translation(s, pairs[n].target, own) for s, n, own in found])
            bar.update(len(block))
    bar.close()
    right = _right(pairs, indexes, near) if settings.right_hints and indexes.unit == "phrase" else []
    return Found(hints, [len(own) for own in near], facts, right)


def _right(pairs: Sequence[Pair], indexes: Indexes, near: Sequence[Sequence[int]]) -> list[tuple[Hint, ...]]:
    """`right_hints` of all pairs, aligned with the encoder of sentence retrieval."""
    aligner = EncoderAligner(encoder_for("sentence", None, indexes.device, indexes.dtype), method="intersection")
    made: list[tuple[Hint, ...]] = [() for _ in pairs]
    for rows, texts in _by_index(pairs, indexes):
        found = right_hints([pairs[n] for n in rows], [frozenset(near[n]) for n in rows], _texts(texts), aligner)
        for n, own in zip(rows, found, strict=True):
            made[n] = own
    return made


def _sentence(pair: Pair) -> Sentence:
    return Sentence(pair.source, pair.source_language, pair.origin)


def _open(
    pair: Pair, indexes: Indexes, settings: DataConfig, encoders: dict[tuple[str, str], ModelEncoder]
) -> IndexRetriever:
    """The retriever of a pair's direction, its encoder loaded once."""
    folder = indexes.folders[pair.target_language]
    manifest = read_manifest(folder)
    key = manifest.retriever, manifest.encoder
    if key not in encoders:
        encoders[key] = encoder_for(*key, indexes.device, indexes.dtype)
    opened = open_retriever(
        manifest.retriever,
        folder,
        encoders[key],
        source_language=pair.source_language,
        target_language=pair.target_language,
    )
    retriever = cast(IndexRetriever, opened)  # an index has a retriever that searches it
    if settings.least_confidence and isinstance(retriever, CcprRetriever):
        retriever.cut_off = settings.least_confidence[0]
    return retriever


def _near(pairs: Sequence[Pair], indexes: Indexes) -> list[list[int]]:
    """For each pair the sentences of its index that are nearly equal to its target."""
    near: list[list[int]] = [[] for _ in pairs]
    for rows, texts in _by_index(pairs, indexes):
        made = nearly_equal_sentences([pairs[n].target for n in rows], _texts(texts), len(texts))
        for n, own in zip(rows, made, strict=True):
            near[n] = own
    return near


def _by_index(pairs: Sequence[Pair], indexes: Indexes) -> Iterator[tuple[list[int], Any]]:
    """For each index the numbers of the pairs whose target language it is for, and the column of its sentences."""
    for code, folder in indexes.folders.items():
        yield [n for n, pair in enumerate(pairs) if pair.target_language == code], map_sentences(folder).column("text")


def _texts(column: Any) -> Iterator[str]:
    for begin in range(0, len(column), READ):
        yield from column.slice(begin, READ).to_pylist()


def examples_of(pairs: Sequence[Pair], unit: Unit | None, found: Found, settings: DataConfig) -> list[Example]:
    """The examples: `settings.no_hints` of them without hints, the others with those of at least the confidence that
    `settings.least_confidence` draws, `settings.right_hints` of these with right ones for other parts of the sentence,
    of which a share is drawn too. What is drawn for a pair depends on its text and the seed alone."""
    made = []
    for pair, hints, right in zip(pairs, found.hints, found.right or [()] * len(pairs), strict=True):
        text = f"{pair.direction}\n{pair.source}\n{pair.target}".encode()
        drawn = np.random.default_rng([settings.seed, *hashlib.blake2b(text, digest_size=8).digest()])
        hidden, share = drawn.random(2)
        if hidden < settings.no_hints:
            hints = ()
        elif settings.least_confidence and found.facts.get(pair.direction, {}).get("confidence"):
            low, high = settings.least_confidence
            hints = tuple(hint for hint in hints if hint.hit.score >= low + share * (high - low))
        if hidden >= settings.no_hints and drawn.random() < settings.right_hints:
            shares = drawn.random(len(right)) < drawn.random()
            free = [own for own in right if not any(own.source_span.overlaps(h.source_span) for h in hints)]
            hints += tuple(hint for hint, shown in zip(free, shares, strict=False) if shown)
        made.append(Example(pair, unit or "sentence", hints))
    return made
