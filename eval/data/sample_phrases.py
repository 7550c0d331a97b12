"""Phrase sets of the sample corpus, to try XPR out where there is no data: they measure nothing."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import numpy as np

from eval.data.phrase_sets import PhraseSet, sample_sets
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.fingerprints import remembered_sha256, settings_hash
from rag_mt.base.languages import WMT16
from rag_mt.base.paths import cache_dir
from rag_mt.text.words import surface
from retrievers.calibration import SAMPLE_CORPUS
from retrievers.encoders.alignment import EncoderAligner
from retrievers.encoders.encoder import open_encoder
from retrievers.xpr.examples import MANIFEST, SPLITS, ExampleSet, Side, sentence_table, write_examples

QUICK = "quick form on the sample corpus, aligned by an encoder alone: measures nothing"
PAIRS = 400
"""Aligned phrases of a language, at most."""


def sample_phrases(device: str = "auto", dtype: str = "auto") -> Path:
    """A folder of phrase sets like those of `finetune.xpr.data`, made once and kept in the cache.

    The pairs are phrases that an encoder's own states align, their examples the sentences that they are aligned in:
    translations of each other, unlike those of real sets.
    """
    corpus = [remembered_sha256(path) for path in sorted(SAMPLE_CORPUS.glob("*.txt"))]
    folder = cache_dir() / "xpr-sample" / settings_hash([corpus, DEFAULT_ENCODER, PAIRS])
    missing = [code for code in WMT16 if not (folder / f"{code}-en" / MANIFEST).is_file()]
    if missing:
        aligner = EncoderAligner(open_encoder(DEFAULT_ENCODER, device, dtype))
        for own in sample_sets(SAMPLE_CORPUS, aligner, missing, PAIRS):
            as_examples(own, folder / f"{own.language}-en")
    return folder


def as_examples(own: PhraseSet, folder: Path) -> ExampleSet:
    """Write aligned phrases as a set of examples: a phrase stands in one pair, further translations are `known`."""
    texts = own.sources, own.targets
    phrases: tuple[dict[str, tuple[int, str]], dict[str, tuple[int, str]]] = ({}, {})
    examples: tuple[set[tuple[int, ...]], set[tuple[int, ...]]] = (set(), set())
    rows: dict[tuple[int, int], int] = {}
    for sentence, *spans in own.queries.tolist():
        counts, pair = [len(side) for side in phrases], [0, 0]
        for side, (start, end) in enumerate((spans[:2], spans[2:])):
            text = texts[side][sentence][start:end]
            pair[side], _ = phrases[side].setdefault(surface(text), (counts[side], text))
            examples[side].add((pair[side], sentence, start, end))
        fifth = crc32(surface(text).encode()) % 5
        rows.setdefault((pair[0], pair[1]), (0, 0, 0, 1, 2)[fifth] if pair == counts else SPLITS.index("known"))
    source, target = (
        Side(
            language,
            tuple(text for _, text in phrases[side].values()),
            sentence_table(texts[side], [f"{language}.txt"] * len(own.lines), own.lines),
            np.array(sorted(examples[side]), np.int32).reshape(-1, 4),
        )
        for side, language in enumerate((own.language, "en"))
    )
    pairs = np.array([(*pair, split) for pair, split in rows.items()], np.int32).reshape(-1, 3)
    sizes = {split: {"pairs": int((pairs[:, 2] == n).sum())} for n, split in enumerate(SPLITS)}
    return write_examples(folder, f"{own.language}-en", (source, target), pairs, {"made": QUICK, "statistics": sizes})
