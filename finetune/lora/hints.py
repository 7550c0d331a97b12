"""The hints of examples: what a translation would be shown if the index did not hold its own reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from finetune.lora.config import DataConfig
from finetune.lora.examples import Example, Pair
from finetune.lora.references import nearly_equal_sentences, right_hints
from finetune.training.sampling import random_for
from rag_mt.base.console import progress
from rag_mt.base.errors import UserError
from rag_mt.base.files import settings_hash
from rag_mt.base.languages import base_code, language
from rag_mt.base.types import Hint, Translation, Unit
from rag_mt.translation.journal import Journal
from retrievers.ccpr.confidence import confidence_in
from retrievers.ccpr.model import is_phrase_model, phrase_model_folder
from retrievers.ccpr.retriever import CcprRetriever
from retrievers.dense import IndexRetriever
from retrievers.encoders.alignment import EncoderAligner
from retrievers.encoders.encoder import ModelEncoder
from retrievers.index.beside import local_files
from retrievers.index.manifest import read_manifest
from retrievers.index.opening import map_sentences
from retrievers.registry import encoder_for, open_retriever

METHODS: dict[str, Unit] = {"plain": "sentence", "sentence": "sentence", "phrase": "phrase"}
"""What the hits of each method are; plain prompts have none, and are made as those of sentences."""

BLOCK = 64
"""Sentences between two lines of the journal."""
READ = 4096
"""Sentences of an index that are read at once."""


@dataclass(frozen=True)
class Indexes:
    """The folder of each target language's index (none for the method plain), with what its retriever runs on."""

    folders: Mapping[str, Path]
    unit: Unit
    device: str = "auto"
    dtype: str = "auto"

    @property
    def facts(self) -> dict[str, Any]:
        """For each language what its index holds."""
        facts = {}
        for code, folder in self.folders.items():
            manifest, confidence = read_manifest(folder), None
            if is_phrase_model(manifest.encoder):
                confidence = confidence_in(local_files(folder)) or confidence_in(phrase_model_folder(manifest.encoder))
            facts[code] = {
                "retriever": manifest.retriever,
                "encoder": manifest.encoder,
                "sentences": manifest.sentences,
                "units": manifest.units,
                "manifest": settings_hash(manifest.as_dict()),
                "confidence": settings_hash(asdict(confidence)) if confidence else None,
            }
        return facts


def indexes_of(texts: Sequence[str], method: str, targets: Sequence[str], device: str, dtype: str) -> Indexes:
    """The indexes that `--index LANG=DIR` or `--index DIR` name, one for each of the target languages.

    Raises UserError for an index of another unit than the method's and where one is missing or too many.
    """
    unit, folders = METHODS[method], dict[str, Path]()
    if method == "plain":
        if texts:
            raise UserError(f"the method plain shows no hints, but there is --index {texts[0]}: leave it out")
        return Indexes({}, unit)
    for text in texts:
        code, sign, rest = text.partition("=")
        named = bool(sign) and not Path(text).exists()
        folder = Path(rest if named else text)
        manifest = read_manifest(folder)
        if manifest.unit != unit:
            raise UserError(
                f"index {folder} holds units of the kind {manifest.unit}: --method {method} needs one of the kind "
                f"{unit}, built with `rag-mt index build --retriever {'ccpr' if unit == 'phrase' else unit}`"
            )
        folders[base_code(code if named else manifest.language)] = folder
    for code in targets:
        if code not in folders:
            raise UserError(
                f"the method {method} has no index of {language(code).name}: give --index {code}=DIR (`rag-mt index "
                f"build DIR TEXT --lang {code}` makes one)"
            )
    return Indexes({code: folders[code] for code in targets}, unit, device, dtype)


@dataclass(frozen=True)
class Retrieved:
    """For each pair its hints, how many sentences of the index were left out for it and, if the settings want some, the
    right hints that the index could give; `facts` tell by direction what judged the hints."""

    hints: list[tuple[Hint, ...]]
    left_out: list[int]
    facts: dict[str, Any]
    right: list[tuple[Hint, ...]]


def retrieved(
    pairs: Sequence[Pair], indexes: Indexes, settings: DataConfig, journal: Journal | None = None
) -> Retrieved:
    """The hints that the retriever finds for each pair when every sentence of the index that is nearly equal to the
    pair's target is left out of the search.

    They are what a translation would show; with `settings.least_confidence`, all hints of at least its lower end. What
    the journal has from an earlier run is not searched again.
    """
    found = Retrieved([() for _ in pairs], [0 for _ in pairs], {}, [() for _ in pairs])
    encoders: dict[tuple[str, str], ModelEncoder] = {}
    aligner = None
    if settings.right_hints and indexes.unit == "phrase":
        aligner = EncoderAligner(encoder_for("sentence", None, indexes.device, indexes.dtype), method="intersection")
    for code, folder in indexes.folders.items():
        # 1. The sentences of the index that do not count, and right hints from the others.
        rows = [n for n, pair in enumerate(pairs) if pair.target_language == code]
        column = map_sentences(folder).column("text")
        near = nearly_equal_sentences([pairs[n].target for n in rows], _texts(column), len(column))
        right = right_hints([pairs[n] for n in rows], near, _texts(column), aligner) if aligner else [()] * len(rows)
        for row, n in enumerate(rows):
            found.left_out[n], found.right[n] = len(near[row]), right[row]
        # 2. A retriever for each direction, all with one encoder.
        manifest = read_manifest(folder)
        key = manifest.retriever, manifest.encoder
        if key not in encoders:
            encoders[key] = encoder_for(*key, indexes.device, indexes.dtype)
        for source in dict.fromkeys(pairs[n].source_language for n in rows):
            opened = open_retriever(key[0], folder, encoders[key], source_language=source, target_language=code)
            retriever = cast(IndexRetriever, opened)  # an index has a retriever that searches it
            if settings.least_confidence and isinstance(retriever, CcprRetriever):
                retriever.cut_off = settings.least_confidence[0]
            judged = {"cut_off": retriever.cut_off, "confidence": isinstance(retriever, CcprRetriever)}
            found.facts[f"{source}-{code}"] = judged
            left_out = {n: near[row] for row, n in enumerate(rows) if pairs[n].source_language == source}
            search_without(retriever, pairs, left_out, journal, found.hints)
    return found


def search_without(
    retriever: IndexRetriever,
    pairs: Sequence[Pair],
    left_out: Mapping[int, list[int]],
    journal: Journal | None,
    hints: list[tuple[Hint, ...]],
) -> None:
    """Put the hints of the pairs with the numbers `left_out`, which has what does not count for each, into `hints`."""
    missing = []
    for n in left_out:
        if journal and (kept := journal.take(n, pairs[n].sentence)):
            hints[n] = kept.hints
        else:
            missing.append(n)
    bar = progress(len(left_out), "sentences", "retrieving hints", initial=len(left_out) - len(missing))
    for begin in range(0, len(missing), BLOCK):
        block = missing[begin : begin + BLOCK]
        block_hints = retriever.retrieve([pairs[n].sentence for n in block], [left_out[n] for n in block])
        for n, sentence_hints in zip(block, block_hints, strict=True):
            hints[n] = sentence_hints
        if journal:
            journal.add(block, [Translation(pairs[n].sentence, pairs[n].target, hints[n]) for n in block])
        bar.update(len(block))
    bar.close()


def _texts(column: Any) -> Iterator[str]:
    for begin in range(0, len(column), READ):
        yield from column.slice(begin, READ).to_pylist()


def examples_of(pairs: Sequence[Pair], unit: Unit, found: Retrieved, settings: DataConfig) -> list[Example]:
    """The pairs with the hints that the settings want shown (see `DataConfig`), right ones for parts of the sentence
    without another hint. What is drawn for a pair depends on its text and the seed alone."""
    examples = []
    for pair, hints, right in zip(pairs, found.hints, found.right, strict=True):
        random = random_for(f"{pair.direction}\n{pair.source}\n{pair.target}", settings.seed)
        hidden, share = random.random(2)
        if hidden < settings.no_hints:
            hints = ()
        elif settings.least_confidence and found.facts.get(pair.direction, {}).get("confidence"):
            low, high = settings.least_confidence
            hints = tuple(hint for hint in hints if hint.hit.score >= low + share * (high - low))
        if hidden >= settings.no_hints and random.random() < settings.right_hints:
            shares = random.random(len(right)) < random.random()
            free = [hint for hint in right if not any(hint.source_span.overlaps(h.source_span) for h in hints)]
            hints += tuple(hint for hint, shown in zip(free, shares, strict=False) if shown)
        examples.append(Example(pair, unit, hints))
    return examples
