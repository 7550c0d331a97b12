"""Sentence pairs of an adaptation: back-translations that can be trusted, the user's own pairs, and general ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from simplemma.strategies.dictionaries.dictionary_factory import SUPPORTED_LANGUAGES

from eval.data.suites import file_rows
from finetune.adapt.config import OWN_HELD_OUT, TextConfig
from finetune.adapt.sentences import Target
from finetune.lora.examples import Pair, unusable
from rag_mt.base.console import progress
from rag_mt.base.files import SAMPLE_CORPUS
from rag_mt.base.languages import base_code, language
from rag_mt.base.types import Encoder, Origin, Skips, Translation
from rag_mt.formats.parallel import letters_and_digits
from retrievers.mining.sides import foreign

OWN, GENERAL = "own", "general"
"""The domains of the user's pairs and of those for replay."""
ENCODED = 256
"""Pairs that are encoded between two steps of the progress bar."""


class PairFilter:
    """Judges pairs of a direction; what is dropped goes to `skips` by reason."""

    def __init__(self, source: str, target: str, settings: TextConfig, encoder: Encoder) -> None:
        self.source, self.target, self.settings, self.encoder = source, target, settings, encoder
        known = {base_code(code) for code in (source, target)} <= set(SUPPORTED_LANGUAGES)
        self._foreign: Callable[[str], bool] = foreign(source, target) if known else lambda text: False
        self._name = language(source).name

    def kept(self, pairs: Sequence[Pair], skips: Skips) -> list[Pair]:
        """The pairs of a fitting length whose source is in its language, no copy, not seen before and, by the cosine of
        both sides' vectors, a translation."""
        seen: set[str] = set()
        fitting = []
        for pair in pairs:
            keys = letters_and_digits(pair.source), letters_and_digits(pair.target)
            if reason := unusable(pair.source, pair.target, keys, self.settings.limits):
                skips.add(pair.origin, reason)
            elif self._foreign(pair.source):
                skips.add(pair.origin, f"whose source is not in {self._name}")
            elif keys[0] in seen:
                skips.add(pair.origin, "with a source that was seen before")
            else:
                seen.add(keys[0])
                fitting.append(pair)
        kept = []
        with progress(len(fitting), "pairs", "comparing both sides", show=bool(fitting)) as bar:
            for begin in range(0, len(fitting), ENCODED):
                part = fitting[begin : begin + ENCODED]
                vectors = self.encoder.encode([text for pair in part for text in (pair.source, pair.target)])
                cosines = np.einsum("ij,ij->i", vectors[::2], vectors[1::2]).tolist()
                for pair, cosine in zip(part, cosines, strict=True):
                    if cosine < self.settings.least_cosine:
                        skips.add(pair.origin, f"with a similarity of both sides below {self.settings.least_cosine:g}")
                    else:
                        kept.append(pair)
                bar.update(len(part))
        return kept


def answered(
    targets: Sequence[Target], translations: Iterable[Translation], source: str, target: str, skips: Skips
) -> list[Pair]:
    """Pairs of the sentences with their back-translations into the language `source`, but for failed ones. The line of
    a pair's origin is the number of its sentence."""
    pairs = []
    for number, (sentence, translation) in enumerate(zip(targets, translations, strict=True)):
        if translation.ok:
            origin = Origin(sentence.origin.file, number)
            pairs.append(Pair(source, target, translation.text, sentence.text, "", origin))
        else:
            skips.add(sentence.origin, "whose back-translation failed")
    return pairs


def own_pairs(files: Sequence[str], source: str, target: str, domain: str = OWN) -> list[Pair]:
    """The pairs of TSV and TMX files; raises UserError for other files."""
    return [
        Pair(source, target, one, other, domain, Origin(name, line))
        for name in files
        for line, one, other in file_rows(Path(name), source, target)
    ]


def kept_for_check(own: Sequence[Pair], settings: TextConfig) -> tuple[list[Pair], list[Pair]]:
    """The user's pairs to learn from, and those that the check is on, drawn at random: none where they are few."""
    wanted = settings.to_hold_out(len(own))
    if wanted * OWN_HELD_OUT > len(own):
        return list(own), []
    drawn = set(np.random.default_rng([settings.seed, 3]).permutation(len(own))[:wanted].tolist())
    return [p for n, p in enumerate(own) if n not in drawn], [p for n, p in enumerate(own) if n in drawn]


def general_pairs(files: Sequence[str], source: str, target: str) -> list[Pair]:
    """The pairs of files or, without any, of the sample corpus, if it has both languages."""
    if files:
        return own_pairs(files, source, target, GENERAL)
    texts = [SAMPLE_CORPUS / f"{base_code(code)}.txt" for code in (source, target)]
    if not all(path.is_file() for path in texts):
        return []
    sides = [path.read_text(encoding="utf-8").splitlines() for path in texts]
    rows = enumerate(zip(*sides, strict=True), 1)
    return [Pair(source, target, one, other, GENERAL, Origin("sample corpus", n)) for n, (one, other) in rows]


def replayed(general: Sequence[Pair], examples: int, settings: TextConfig) -> list[Pair]:
    """As many of the general pairs as make up their share beside so many other examples, drawn at random."""
    count = round(examples * settings.replay / (1 - settings.replay))
    order = np.random.default_rng([settings.seed, 2]).permutation(len(general))[:count]
    return [general[n] for n in order.tolist()]
