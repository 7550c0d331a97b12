"""Systems to translators: models are loaded once for all systems and directions that share their settings."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eval.data.alignments import EflomalAligner
from eval.data.suites import Part, Suite
from eval.translation.bounds import Fixed, Shuffled, WithoutReferences, oracle_hints
from eval.translation.systems import System
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import read_json, remembered_sha256, settings_hash
from rag_mt.base.paths import whole_file
from rag_mt.base.types import LanguageModel, Skips
from rag_mt.formats.parallel import read_corpus
from rag_mt.llm import open_llm
from rag_mt.translation.translator import Translator
from retrievers.ccpr.retriever import CcprRetriever
from retrievers.dense import IndexRetriever
from retrievers.encoders.alignment import Aligner, EncoderAligner, Links
from retrievers.encoders.encoder import ModelEncoder
from retrievers.registry import encoder_for, encoder_key

log = logging.getLogger("rag_mt")

ENCODERS = 3
"""Encoders that are kept loaded: one each for sentences, phrases and alignment."""
MOST_ALONG = 100_000
"""Sentence pairs that are aligned along with those of a run."""


@dataclass(frozen=True)
class Run:
    """One system on one direction; `folder` is that of all runs."""

    system: System
    part: Part
    folder: Path

    @property
    def own(self) -> System:
        """The system at the direction."""
        return self.system.at(self.part.source, self.part.target)

    def file(self, ending: str) -> Path:
        """`FOLDER/SYSTEM/SRC-TGT` with an ending such as `.jsonl`."""
        return self.folder / self.system.name / f"{self.part.name}{ending}"

    @property
    def llm_key(self) -> tuple[Any, ...]:
        """What tells one loaded language model from another."""
        own = self.own
        return (own.llm, own.own_adapters, own.device, own.dtype, own.quantization, own.batch_size)


def in_order(runs: Sequence[Run]) -> list[Run]:
    """The runs, those with the same language model one after the other, else as they are."""
    first: dict[tuple[Any, ...], int] = {}
    for n, run in enumerate(runs):
        first.setdefault(run.llm_key, n)
    return sorted(runs, key=lambda run: first[run.llm_key])


class Models:
    """The models that are loaded: one language model, and the encoders that were used last."""

    def __init__(self) -> None:
        self._llm: LanguageModel | None = None
        self._llm_key: tuple[Any, ...] = ()
        self._encoders: dict[tuple[Any, ...], ModelEncoder] = {}
        self.loaded = 0

    def llm(self, run: Run) -> LanguageModel:
        """The language model of a run; another one is forgotten before it is loaded."""
        if self._llm is None or run.llm_key != self._llm_key:
            self._llm = None
            own = run.own
            self._llm = open_llm(
                own.llm,
                **own.own_adapters._asdict(),
                device=own.device,
                dtype=own.dtype,
                quantization=own.quantization,
                batch_size=own.batch_size,
            )
            self._llm_key = run.llm_key
            self.loaded += 1
        return self._llm

    def encoder(self, retriever: str, name: str | None, device: str = "auto", dtype: str = "auto") -> ModelEncoder:
        """`encoder_for`, with each encoder loaded once."""
        key = encoder_key(retriever, name, device, dtype)
        found = self._encoders.pop(key, None)
        if found is None:
            while len(self._encoders) >= ENCODERS:
                del self._encoders[next(iter(self._encoders))]
            found = encoder_for(retriever, name, device, dtype)
            self.loaded += 1
        self._encoders[key] = found
        return found


def open_translator(run: Run, suite: Suite, models: Models, show: bool = True) -> Translator:
    """The translator of a run, whose settings tell what its hints become.

    Without an index of its own a system looks into the sample index. That holds the references of the suite `sample`,
    and each is left out for its own sentence.
    """
    own, part = run.own, run.part
    llm = models.llm(run)
    mode: dict[str, Any] = {"hints": own.hints}
    if own.hints == "oracle":
        links, aligned = _links(run, models)
        found = oracle_hints(part.sources, part.references, links, part.target, own.oracle_words)
        fixed = Fixed("oracle", dict(enumerate(found, 1)))
        settings = mode | {"oracle": [aligned, own.oracle_words]}
        translator = Translator(part.source, part.target, fixed, llm, own.wrapper, own.max_new_tokens)
        translator.more_settings |= settings
        return translator
    retriever = "none" if own.hints == "none" else own.retriever
    translator = Translator.from_pretrained(
        src=part.source,
        tgt=part.target,
        retriever=retriever,
        llm=llm,
        index=(own.index or None) if retriever != "none" else None,
        encoder=own.encoder or None,
        wrapper=own.wrapper,
        device=own.device,
        dtype=own.dtype,
        max_new_tokens=own.max_new_tokens,
        show=show,
        encoders=models.encoder,
    )
    if own.cut_off and isinstance(translator.retriever, IndexRetriever):
        translator.retriever.cut_off = mode["cut_off"] = own.cut_off
    if own.segmentation != "learned" and isinstance(translator.retriever, CcprRetriever):
        translator.retriever.segmentation = mode["segmentation"] = own.segmentation
    if suite.quick and not own.index and isinstance(translator.retriever, IndexRetriever):
        translator.retriever = WithoutReferences(translator.retriever, part.references)
        mode["left out"] = "own reference"
    if own.hints == "shuffled":
        translator.retriever = Shuffled(translator.retriever, own.seed)
        mode["seed"] = own.seed
    translator.more_settings |= mode
    return translator


def _links(run: Run, models: Models) -> tuple[list[Links], str]:
    """The word links of a run's pairs, and a hash of what they were made with.

    They are kept beside the run, because eflomal finds others each time.
    """
    own, part = run.own, run.part
    aligner, along = _aligner(own, models), _along(own, part)
    text = remembered_sha256(Path(own.along)) if own.along else ""
    key = settings_hash([dict(aligner.settings), aligner.method, text, part.sha256])
    path = run.file(".links.json")
    if path.is_file() and (kept := read_json(path)).get("key") == key:
        return [np.array(row, np.int32).reshape(-1, 2) for row in kept["links"]], key
    pairs = list(zip(part.sources, part.references, strict=True))
    log.info("%s %s: aligning %d sentence pairs (%d along)", own.name, part.name, len(pairs), len(along))
    links = aligner.align([*pairs, *along])[: len(pairs)]
    with whole_file(path) as new:
        new.write_text(_as_json(key, links), encoding="utf-8")
    return links, key


def _as_json(key: str, links: Sequence[Links]) -> str:
    rows = ",".join(str(own.tolist()) for own in links)
    return f'{{"key": "{key}", "links": [{rows}]}}\n'


def _aligner(own: System, models: Models) -> Aligner:
    if own.aligner == "eflomal":
        return EflomalAligner()
    encoder = models.encoder("sentence", own.align_encoder, own.device, "auto")
    return EncoderAligner(encoder, own.align_layer, method="intersection")


def _along(own: System, part: Part) -> list[tuple[str, str]]:
    """The pairs of the parallel text that an aligner learns from too, in the run's direction."""
    if not own.along:
        return []
    if own.aligner != "eflomal":
        raise UserError(f"system {own.name} has text to align along, which only eflomal learns from: leave `along` out")
    corpus = read_corpus(Path(own.along), Skips(shown=0))
    sides = (corpus.sources, corpus.targets) if part.target == "en" else (corpus.targets, corpus.sources)
    return list(zip(*sides, strict=True))[:MOST_ALONG]
