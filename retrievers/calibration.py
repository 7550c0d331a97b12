"""The score under which hits are not shown, chosen on development text and stored in the index; and the index of the
sample corpus with its cut-offs, which hints come from until the user has indexed text of their own."""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from rag_mt.base.console import progress
from rag_mt.base.errors import UserError
from rag_mt.base.files import SAMPLE_CORPUS, alone_in, cache_dir, settings_hash, sync
from rag_mt.base.languages import base_code, language
from rag_mt.base.types import Encoder, Origin, Sentence, Unit
from retrievers.ccpr.confidence import Confidence
from retrievers.ccpr.retriever import CcprUnits
from retrievers.index.manifest import CONFIDENCE, FORMAT, Manifest, change_manifest, read_manifest
from retrievers.index.opening import open_index
from retrievers.index.search import Index
from retrievers.index.vectors import QUERIES, tune_nprobe
from retrievers.registry import build_for, confidence_for, maker_for, searching, terms_for
from retrievers.units.unit import UnitMaker

log = logging.getLogger("rag_mt")

DROP = 0.25
"""The share of hits that is dropped: the weakest quarter, as the CCPR authors' code does per test set. A stored score
does it for one sentence alone as well."""
TUNED_AT_ONCE = 16

SAMPLE_DROP = 0.9
"""The share of hits that is dropped: far above the paper's quarter, because a few hundred sentences hold little that
fits and a small language model follows whatever it is shown. The best of five shares for both retrievers, without an
adapter, on the German example texts (table in the README)."""
CALIBRATION_LINES = {"sentence": 96, "phrase": 32, "passage": 96}
"""Lines per source language that cut-offs are chosen on: enough hits for a quantile, few enough for a first run. A
memory judges its hits itself."""


def needs_cut_off(unit: Unit, encoder: Encoder, folder: Path | None = None) -> bool:
    """Whether hits of that kind are only judged by a cut-off, and by no model of theirs, maybe that in the folder of an
    index."""
    return unit in CALIBRATION_LINES and confidence_for(encoder, folder) is None


def calibrate_for(
    folder: Path, encoder: Encoder, texts: Sequence[str], source_language: str, drop: float = DROP
) -> float:
    """Store the cut-off for a source language in an index and return it (see `calibrate`)."""
    manifest = read_manifest(folder)
    maker = maker_for(manifest.retriever, encoder)
    index = open_index(folder, maker.settings, manifest)
    confidence = confidence_for(encoder, folder) if isinstance(maker, CcprUnits) else None
    return calibrate(index, maker, texts, source_language, drop, confidence=confidence)


def calibrate(
    index: Index,
    maker: UnitMaker,
    texts: Sequence[str],
    source_language: str,
    drop: float = DROP,
    without: Sequence[int] | None = None,
    confidence: Confidence | None = None,
) -> float:
    """The `drop` quantile of the scores of the hits for `texts`, now the cut-off for `source_language`.

    It is written into the manifest of the index as it is by then (no other file changes). The texts also decide how
    many lists of an IVF index are searched (see `tune_nprobe`). Scores are those of the hints that would be shown,
    overlaps resolved; with a `confidence` model they are confidences. `without[i]` is a sentence of the index to leave
    out for text i.
    Raises UserError if no text has a hit, or if the index was replaced meanwhile.
    """
    if not 0 <= drop < 1:
        raise UserError(f"a share of {drop} of the hits cannot be dropped: expected a number from 0 to below 1")
    if index.manifest.ivf is not None:
        _tune(index, maker, texts, source_language)
    cut_off, scale = (None, {}) if confidence is None else (0.0, {"scale": CONFIDENCE})
    retriever = searching(index, maker, source_language, confidence, cut_off)
    hints = retriever.retrieve([Sentence(text, source_language) for text in texts], without)
    scores = [hint.hit.score for hints_of_text in hints for hint in hints_of_text]
    if not scores:
        raise UserError(
            f"none of the {len(texts)} sentences to calibrate with has a hit in {index.folder}: "
            "give development text with words in it"
        )
    score = float(np.quantile(np.array(scores, dtype=np.float64), drop))
    _store(index, source_language, {"score": score, "drop": drop, "sentences": len(texts), **scale})
    return score


def set_confidence(index: Index, confidence: float, source_language: str) -> None:
    """Store the least confidence of the hits that are shown for a source language; raises UserError for what is no
    probability."""
    if not 0 <= confidence <= 1:
        raise UserError(f"a confidence of {confidence:g} is none: expected a number from 0 to 1")
    _store(index, source_language, {"score": float(confidence), "scale": CONFIDENCE})


def _store(index: Index, source_language: str, threshold: Mapping[str, Any]) -> None:
    def change(manifest: Manifest) -> Manifest:
        return replace(manifest, thresholds={**manifest.thresholds, source_language: threshold})

    index.manifest = change_manifest(index.folder, index.manifest, "calibration", change)


def _tune(index: Index, maker: UnitMaker, texts: Sequence[str], source_language: str) -> None:
    """Choose how many lists of an IVF index are searched by the queries of some of the texts."""
    vectors, spread = [], np.random.default_rng(0).permutation(len(texts)).tolist()
    for begin in range(0, len(texts), TUNED_AT_ONCE):
        vectors.append(maker.units([texts[n] for n in spread[begin : begin + TUNED_AT_ONCE]], "query")[0])
        if sum(map(len, vectors)) >= QUERIES:
            break
    if queries := sum(map(len, vectors)):
        rows = np.concatenate(vectors)[np.linspace(0, queries - 1, min(queries, QUERIES)).astype(int)]
        tune_nprobe(index, rows, source=source_language)


def default_index(
    retriever: str, target: str, encoder: Encoder, show: bool = False, corpus: Path = SAMPLE_CORPUS
) -> Path:
    """The folder of the target language's sample index; built at the first call and kept in the cache.

    It is built in `FOLDER.unfinished` by one process while others wait; after a kill the next call goes on from the
    last finished step there: the index itself, then each cut-off.

    It has a cut-off for every other language of the corpus, calibrated on lines of that language as if their own
    translation were not in the index; where a confidence model says what to trust it needs none.
    Raises UserError for a language that the corpus does not have.
    """
    code = base_code(target)
    texts = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in sorted(corpus.glob("*.txt"))}
    if code not in texts:
        have = f"it has {', '.join(sorted(texts))}" if texts else "it is missing"
        raise UserError(
            f"the sample corpus has no {language(target).name} text ({have}): build an index with "
            f"`rag-mt index build DIR FILE --lang {code}` and pass --index DIR, or use --retriever none"
        )
    maker, terms = maker_for(retriever, encoder), terms_for(retriever)
    others = texts.keys() - {code} if needs_cut_off(maker.unit, encoder) else set()
    cut_offs = [SAMPLE_DROP, CALIBRATION_LINES[maker.unit]] if others else []
    contents = hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()
    key = [FORMAT, *cut_offs, contents, dict(maker.settings), *([] if terms is None else [asdict(terms)])]
    folder = cache_dir() / "indexes" / f"{retriever}-{code}-{settings_hash(key)[:12]}"
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    if not unfinished.exists() and _usable(folder, maker) is not None:
        return folder
    with alone_in(unfinished, f"the build of the sample index {folder}", wait=True):
        if _usable(folder, maker) is None:  # else another process has made it meanwhile
            if folder.exists():
                log.warning("the sample index %s is damaged: it is made again", folder)
            index = _usable(unfinished / "index", maker)
            if show:
                name = language(code).name
                log.info("making the sample index of %s for %s: once, up to a minute on two cores", name, retriever)
            if index is None:
                sentences = [Sentence(text, code, Origin(f"{code}.txt", n)) for n, text in enumerate(texts[code], 1)]
                options: dict[str, Any] = {"replace": True, "restart": True, "total": len(sentences), "show": show}
                build_for(retriever, unfinished / "index", sentences, encoder, code, **options)
                index = open_index(unfinished / "index", maker.settings)
            missing = sorted(others - index.manifest.thresholds.keys())
            with closing(progress(len(missing), "languages", "choosing cut-offs", show=show and bool(missing))) as bar:
                for source in missing:
                    _calibrate_on_lines(index, maker, texts[source], texts[code], source)
                    bar.update(1)
            if folder.exists():  # moved, not emptied: who has it open goes on with it
                folder.rename(unfinished / "damaged")
            index.folder.rename(folder)
            sync(folder.parent)
        shutil.rmtree(unfinished, ignore_errors=True)  # who comes right now may have taken it: it tidies up
    return folder


def _usable(folder: Path, maker: UnitMaker) -> Index | None:
    """The index in the folder, or None if it must be made (again)."""
    with suppress(UserError):
        return open_index(folder, maker.settings)
    return None


def _calibrate_on_lines(index: Index, maker: UnitMaker, lines: Sequence[str], targets: Sequence[str], src: str) -> None:
    """Choose the cut-off for one source language on lines spread over the corpus."""
    number = {index.sentence(n).text: n for n in range(index.manifest.sentences)}
    pairs = [(s, number[t]) for s, t in zip(lines, targets, strict=True) if s.strip() and t.strip()]
    pairs = pairs[:: -(-len(pairs) // CALIBRATION_LINES[maker.unit])]
    calibrate(index, maker, [s for s, _ in pairs], src, SAMPLE_DROP, [n for _, n in pairs])
