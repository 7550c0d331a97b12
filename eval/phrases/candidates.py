"""What a phrase query is searched among: every span of a set's own English sentences, and the phrases of an index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eval.data.phrase_pairs import MAX_WORDS
from eval.data.phrase_sets import SEED, PhraseSet
from eval.phrases.models import PhraseModel
from eval.phrases.scores import Outcomes, outcomes
from eval.phrases.search import TopSurfaces
from rag_mt.base.console import progress
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import settings_hash
from rag_mt.base.languages import base_code
from rag_mt.base.types import Floats
from rag_mt.formats.parallel import letters_and_digits
from rag_mt.text.words import surface, word_spans
from retrievers.index.search import map_sentences, map_spans, open_index
from retrievers.units.unit import ngrams

SENTENCES_AT_ONCE = 256

Spans = NDArray[np.int32]


@dataclass(frozen=True)
class Block:
    """Candidates of a few sentences: `spans` (n, 3) text number, start, end, and a number for each surface (n,)."""

    texts: list[str]
    spans: Spans
    surfaces: NDArray[np.int64]


def block(texts: Sequence[str], spans: Spans) -> Block:
    """The block of those spans; equal surfaces have equal numbers in all blocks of a process."""
    surfaces = [hash(surface(texts[n][a:b])) for n, a, b in spans.tolist()]
    return Block(list(texts), spans, np.array(surfaces, dtype=np.int64))


def all_spans(texts: Sequence[str]) -> Spans:
    """Every span of up to six whole words with a letter, int32 (n, 3) text number, start, end."""
    spans = [word_spans(text) for text in texts]
    words = np.concatenate([np.zeros((0, 2), np.int32), *spans])
    numbers = np.repeat(np.arange(len(texts), dtype=np.int32), [len(own) for own in spans])
    rows = zip(numbers.tolist(), words.tolist(), strict=True)
    lettered = np.array([any(map(str.isalpha, texts[n][a:b])) for n, (a, b) in rows], dtype=bool)
    first, last = ngrams(numbers, lettered, MAX_WORDS)
    return np.stack([numbers[first], words[first, 0], words[last, 1]], axis=1).astype(np.int32)


def own_blocks(texts: Sequence[str]) -> Iterator[Block]:
    """Every span of the texts."""
    for begin in range(0, len(texts), SENTENCES_AT_ONCE):
        part = texts[begin : begin + SENTENCES_AT_ONCE]
        yield block(part, all_spans(part))


class Distractors:
    """The phrases of an index of English, of all sentences or of a seeded sample with at least `limit` phrases.

    Sentences that stand in `left_out` (by casefolded letters and digits) are not taken.

    Only the places of the phrases are read: each model makes its own vectors. Raises UserError for an index of
    anything but English phrases.
    """

    def __init__(self, folder: Path, left_out: frozenset[str], limit: int | None = None) -> None:
        manifest = open_index(folder).manifest
        if manifest.unit != "phrase" or base_code(manifest.language) != "en":
            raise UserError(
                f"index {folder} holds units of kind {manifest.unit} in {manifest.language!r}: give an index of "
                "English phrases (`rag-mt index build --retriever phrases --lang en`)"
            )
        self._spans, self._texts = map_spans(folder), map_sentences(folder).column("text")
        self._bounds = np.searchsorted(self._spans[:, 0], np.arange(manifest.sentences + 1))
        kept = np.array([letters_and_digits(text.as_py()) not in left_out for text in self._texts], dtype=bool)
        self.dropped = int((~kept).sum())
        sizes = np.diff(self._bounds)
        chosen = np.flatnonzero(kept & (sizes > 0))
        if limit is not None:
            mixed = np.random.default_rng(SEED).permutation(chosen)
            enough = int(np.searchsorted(np.cumsum(sizes[mixed]), limit)) + 1
            chosen = np.sort(mixed[:enough])
        self._chosen = chosen
        self.sentences, self.phrases = len(chosen), int(sizes[chosen].sum())
        self.fingerprint = settings_hash([manifest.as_dict(), limit])

    def blocks(self) -> Iterator[Block]:
        """All phrases, sentence by sentence."""
        for begin in range(0, len(self._chosen), SENTENCES_AT_ONCE):
            numbers = self._chosen[begin : begin + SENTENCES_AT_ONCE]
            parts = [np.array(self._spans[self._bounds[n] : self._bounds[n + 1]]) for n in numbers]
            for row, part in enumerate(parts):
                part[:, 0] = row
            yield block([self._texts[int(n)].as_py() for n in numbers], np.concatenate(parts))


@dataclass(frozen=True)
class SetResult:
    """What a row of the table found for one set, and how many candidates there were."""

    outcomes: Outcomes
    candidates: int


def run_model(
    model: PhraseModel, sets: Sequence[PhraseSet], distractors: Distractors | None, k: int = 10, show: bool = True
) -> list[list[SetResult]]:
    """For each row of the model its result on each set; the texts are read once, whatever the number of rows.

    Memory holds the queries' vectors and a block of candidates, never all candidates.
    """
    device = model.device if model.device.type == "cuda" else "cpu"
    targets = [list(dict.fromkeys(own.targets)) for own in sets]
    total = sum(len(own.sources) for own in sets) + sum(map(len, targets))
    bar = progress(total + (distractors.sentences if distractors else 0), "sentences", model.name, show=show)
    tops = []  # [set][row]
    spans = []
    for own, texts in zip(sets, targets, strict=True):
        tops.append([TopSurfaces(vectors, k, device) for vectors in _query_vectors(model, own, bar.update)])
        places, seen = [np.zeros((0, 3), np.int32)], 0
        for part in own_blocks(texts):
            numbers = seen + np.arange(len(part.spans))
            for top, vectors in zip(tops[-1], model.span_vectors(part.texts, part.spans, "passage"), strict=True):
                top.add(vectors, part.surfaces, numbers)
            places.append(part.spans + np.array([(len(places) - 1) * SENTENCES_AT_ONCE, 0, 0], dtype=np.int32))
            seen += len(numbers)
            bar.update(len(part.texts))
        spans.append(np.concatenate(places))
    most, seen = max((len(own) for own in spans), default=0), 0
    for part in distractors.blocks() if distractors else ():
        numbers = most + seen + np.arange(len(part.spans))
        for row, vectors in enumerate(model.span_vectors(part.texts, part.spans, "passage")):
            for own_tops in tops:
                own_tops[row].add(vectors, part.surfaces, numbers)
        seen += len(numbers)
        bar.update(len(part.texts))
    bar.close()
    return [
        [
            SetResult(_outcomes(own, texts, own_spans, own_tops[row]), own_tops[row].seen)
            for own, texts, own_spans, own_tops in zip(sets, targets, spans, tops, strict=True)
        ]
        for row in range(len(model.rows))
    ]


def _query_vectors(model: PhraseModel, own: PhraseSet, update: Callable[[int], object]) -> list[Floats]:
    """For each row the vectors of the set's queries."""
    parts: list[list[Floats]] = [[] for _ in model.rows]
    bounds = np.searchsorted(own.queries[:, 0], np.arange(0, len(own.sources) + SENTENCES_AT_ONCE, SENTENCES_AT_ONCE))
    for number, (first, last) in enumerate(pairwise(bounds.tolist())):
        begin = number * SENTENCES_AT_ONCE
        spans = own.queries[first:last, :3] - np.array([begin, 0, 0], dtype=np.int32)
        texts = own.sources[begin : begin + SENTENCES_AT_ONCE]
        for part, vectors in zip(parts, model.span_vectors(texts, spans, "query"), strict=True):
            part.append(vectors)
        update(len(texts))
    return [np.concatenate(part) for part in parts]


def _outcomes(own: PhraseSet, texts: Sequence[str], spans: Spans, top: TopSurfaces) -> Outcomes:
    found = top.found()
    first = found.numbers[:, 0]
    inside = (first >= 0) & (first < len(spans))
    hits = np.full((len(first), 3), -1, dtype=np.int64)
    hits[inside] = spans[first[inside]]
    place = {text: n for n, text in enumerate(texts)}
    truth = own.queries[:, [0, 3, 4]].astype(np.int64)
    truth[:, 0] = np.array([place[text] for text in own.targets], dtype=np.int64)[own.queries[:, 0]]
    surfaces = np.array([hash(s) for s in own.surfaces], dtype=np.int64)
    # Surfaces of gaps are -1, which the number of a real surface may be too.
    ranked = np.where(found.numbers >= 0, found.surfaces, ~surfaces[:, None])
    return outcomes(ranked, hits, surfaces, truth, own.queries[:, 0].astype(np.int64))
