"""How near the text of an index comes to a reference: the chrF of its nearest sentence, taken as the translation."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from eval.metrics.formulas import BETA, Rows, chrf, open_chrf
from eval.report.runs import Runs
from rag_mt.base.console import progress
from rag_mt.base.errors import UserError
from rag_mt.base.types import Skips
from rag_mt.formats.opening import read_lines

Place = tuple[str, str, str]
"""Domain, target language and reference."""
ORDER = 4
"""n-grams of so many characters propose the candidates."""
BUCKETS = 1 << 20
CANDIDATES = 8
"""Index sentences for each reference of which chrF itself is computed."""
TOGETHER = 100
"""References that are compared with all sentences at once: bounds the memory."""


def nearest_of(runs: Runs, folder: Path, show: bool = True) -> dict[Place, float]:
    """The chrF, of 1, of the sentence of FOLDER/DOMAIN.LANG.txt that is nearest to each reference of the runs.

    Raises UserError for a text that is not there.
    """
    references: dict[tuple[str, str], dict[str, None]] = {}
    for run in runs.by_place.values():
        references.setdefault((run.domain, run.target), {}).update(dict.fromkeys(r.reference for r in run.records))
    paths = {key: folder / f"{'.'.join(key)}.txt" for key in references}
    if missing := next((path for path in paths.values() if not path.is_file()), None):
        raise UserError(f"there is no {missing}: make it with `python -m eval.data.domain_text --output {folder}`")
    nearest: dict[Place, float] = {}
    with closing(progress(sum(map(len, references.values())), "references", "nearest sentences", show=show)) as bar:
        for key, path in paths.items():
            texts = [line.text for line in read_lines(path, Skips()) if line.text]
            chosen = list(references[key])
            for reference, value in zip(chosen, nearest_chrf(chosen, texts) / 100, strict=True):
                nearest[*key, reference] = float(value)
            bar.update(len(chosen))
    return nearest


def nearest_chrf(references: Sequence[str], texts: Sequence[str]) -> Rows:
    """The highest chrF (0 to 100) of a text by each reference, over the `CANDIDATES` that share most n-grams."""
    wanted, there = _ngrams(references), _ngrams(texts)
    lengths = np.maximum(np.asarray(there.sum(axis=1)).ravel(), 1)
    count = min(CANDIDATES, len(texts))
    candidates = np.zeros((len(references), count), dtype=np.int64)
    for begin in range(0, len(references), TOGETHER):
        rows = wanted[begin : begin + TOGETHER]
        shared = (rows @ there.T).toarray()
        # F of this one order: chrF averages six of them
        scores = shared / (lengths + BETA**2 * np.maximum(np.asarray(rows.sum(axis=1)), 1))
        candidates[begin : begin + TOGETHER] = np.argpartition(-scores, count - 1, axis=1)[:, :count]
    hypotheses = [texts[n] for n in candidates.ravel().tolist()]
    repeated = [reference for reference in references for _ in range(count)]
    best: Rows = chrf(open_chrf().statistics([], hypotheses, repeated)).reshape(-1, count).max(axis=1)
    return best


def _ngrams(texts: Sequence[str]) -> Any:
    """Whether each text has each n-gram of characters, blanks aside and by hash, (texts, buckets), sparse."""
    squeezed = ["".join(text.split()) for text in texts]
    characters = np.frombuffer("".join(squeezed).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    owner: NDArray[np.int64] = np.repeat(np.arange(len(texts)), [len(text) for text in squeezed])
    hashes = np.zeros(max(len(characters) - ORDER + 1, 0), dtype=np.uint64)
    for n in range(ORDER):
        hashes = hashes * np.uint64(0x9E3779B97F4A7C15) + characters[n : n + len(hashes)]
    whole = owner[: len(hashes)] == owner[ORDER - 1 :]  # an n-gram does not reach into the next text
    columns = (hashes >> np.uint64(64 - BUCKETS.bit_length() + 1)).astype(np.int64)
    cells = np.unique(owner[: len(hashes)][whole] * BUCKETS + columns[whole])
    shape = (len(texts), BUCKETS)
    return csr_matrix((np.ones(len(cells), dtype=np.float32), (cells // BUCKETS, cells % BUCKETS)), shape=shape)
