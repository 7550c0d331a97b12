"""The score under which hits are not shown, chosen on development text and stored in the index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rag_mt.errors import UserError
from rag_mt.types import Sentence
from retrievers.dense import DenseRetriever
from retrievers.index import Index
from retrievers.locks import LOCK, alone_in
from retrievers.manifest import read_manifest, write_manifest
from retrievers.units import UnitMaker

DROP = 0.25
"""The share of hits that is dropped: the weakest quarter, as the CCPR authors' code does per test set. A stored score
does it for one sentence alone as well."""


def calibrate(
    index: Index,
    maker: UnitMaker,
    texts: Sequence[str],
    source_language: str,
    drop: float = DROP,
    without: Sequence[int] | None = None,
) -> float:
    """The `drop` quantile of the scores of the hits for `texts`, now the cut-off for `source_language`.

    It is written into the manifest of the index as it is by then (no other file changes). Scores are those of the
    hints that would be shown, overlaps resolved. `without[i]` is a sentence of the index to leave out for text i.
    Raises UserError if no text has a hit, or if the index was replaced meanwhile.
    """
    if not 0 <= drop < 1:
        raise UserError(f"a share of {drop} of the hits cannot be dropped: expected a number from 0 to below 1")
    retriever = DenseRetriever(index.manifest.retriever, index, maker)
    found = retriever.retrieve([Sentence(t, source_language) for t in texts], without)
    scores = [hint.hit.score for hints in found for hint in hints]
    if not scores:
        raise UserError(
            f"none of the {len(texts)} sentences to calibrate with has a hit in {index.folder}: "
            "give development text with words in it"
        )
    score = float(np.quantile(np.array(scores, dtype=np.float64), drop))
    threshold = {"score": score, "drop": drop, "sentences": len(texts)}
    with alone_in(index.folder, f"a calibration of index {index.folder}", wait=True):
        try:
            manifest = read_manifest(index.folder)  # others may have calibrated other languages meanwhile
            if manifest.files != index.manifest.files:
                raise UserError(f"index {index.folder} was replaced during its calibration: calibrate it again")
            index.manifest = replace(manifest, thresholds={**manifest.thresholds, source_language: threshold})
            write_manifest(index.folder, index.manifest)
        finally:
            (index.folder / LOCK).unlink(missing_ok=True)
    return score
