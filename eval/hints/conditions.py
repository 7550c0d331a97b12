"""Hints for measuring: what CCPR finds for development sentences in an index, in their references, or in both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from eval.data.phrase_sets import development_half, read_alignments
from eval.hints.verdicts import Judge, Judged, function_words
from rag_mt.base.errors import UserError
from rag_mt.base.types import Floats, Hit, Origin, Sentence, Skips
from rag_mt.text.words import word_spans
from retrievers.ccpr.retriever import BestHits, CcprUnits, Segmentation, best_hits, candidates
from retrievers.dense import Searched
from retrievers.encoders.alignment import Links
from retrievers.index.build import build_index
from retrievers.index.opening import open_index
from retrievers.index.search import Index, LeftOut

INDEX, BOTH, OTHERS = "index", "index and references", "other references"
CONDITIONS = (INDEX, BOTH, OTHERS)
"""Where hints come from: the index, which does not hold the development data; the index and the references of all
sentences, so that the true phrase is there; the references of all other sentences, a small index of fitting text."""

SENTENCES_AT_ONCE = 128


@dataclass(frozen=True)
class Development:
    """Aligned development sentences of one direction, and who judges hints for them."""

    language: str
    sources: tuple[str, ...]
    references: tuple[str, ...]
    links: tuple[Links, ...]
    judge: Judge
    source_function: frozenset[str]


def development(
    data: Path, pairs: Path, language: str, half: str, limit: int | None, from_english: bool
) -> Development:
    """Half of the development data between a language and English, or some `limit` sentences spread over it."""
    corpus, rows = development_half(data, language, half, Skips(shown=0))
    if limit is not None and rows:
        rows = [rows[n] for n in np.unique(np.linspace(0, len(rows) - 1, min(limit, len(rows))).astype(int))]
    if not rows:
        raise UserError(f"{data}/dev/{language}-en.tsv has no sentences in half {half}: give more development data")
    links = read_alignments(pairs / f"{language}-en.dev.jsonl", rows)
    foreign = language, tuple(row[1] for row in rows), function_words(corpus.sources)
    english = "en", tuple(row[2] for row in rows), function_words(corpus.targets)
    source, target = (english, foreign) if from_english else (foreign, english)
    turned = tuple(own[:, ::-1] for own in links) if from_english else tuple(links)
    return Development(language, source[1], target[1], turned, Judge(target[0], target[2]), source[2])


class Joined:
    """Two indexes searched as one; units of the second one are numbered after those of the first."""

    def __init__(self, first: Index, second: Index) -> None:
        self.first, self.second = first, second

    def search(self, vectors: Floats, k: int, without: LeftOut | None = None) -> tuple[Floats, NDArray[np.int64]]:
        """The best `k` of both; `without` are sentences of the first one."""
        (scores, ids), (more, others) = self.first.search(vectors, k, without), self.second.search(vectors, k)
        others = np.where(others >= 0, others + len(self.first), -1)
        scores, ids = np.concatenate([scores, more], axis=1), np.concatenate([ids, others], axis=1)
        order = np.lexsort((ids, -scores, ids < 0), axis=-1)[:, :k]
        return np.take_along_axis(scores, order, axis=1), np.take_along_axis(ids, order, axis=1)

    def reconstruct(self, ids: NDArray[np.int64]) -> Floats:
        """The vectors of units."""
        vectors = np.empty((len(ids), self.first.manifest.dimension), np.float32)
        late = ids >= len(self.first)
        vectors[~late] = self.first.reconstruct(ids[~late])
        vectors[late] = self.second.reconstruct(ids[late] - len(self.first))
        return vectors

    def hit(self, unit: int, score: float) -> Hit:
        """The unit with that number."""
        late = unit - len(self.first)
        return self.first.hit(unit, score) if late < 0 else self.second.hit(late, score)


@contextmanager
def reference_index(data: Development, maker: CcprUnits, like: Index) -> Iterator[Index]:
    """A passing index of the references, built as `like` was."""
    language, retriever = like.manifest.language, like.manifest.retriever
    sentences = (Sentence(text, language, Origin("dev", n)) for n, text in enumerate(data.references, 1))
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / "references"
        build_index(folder, sentences, maker, retriever=retriever, language=language, show=False, form="exact")
        yield open_index(folder, maker.settings)


def judged_answers(
    data: Development, maker: CcprUnits, segmentation: Segmentation, index: Index, conditions: Sequence[str]
) -> dict[str, tuple[BestHits, Judged]]:
    """For each condition all possible hints for the sentences, and what they are worth."""
    parts: dict[str, list[BestHits]] = {name: [] for name in conditions}
    with reference_index(data, maker, index) as references:
        searched: dict[str, Searched] = {INDEX: index, BOTH: Joined(index, references), OTHERS: references}
        numbers = {references.sentence(n).text: n for n in range(references.manifest.sentences)}
        for begin in range(0, len(data.sources), SENTENCES_AT_ONCE):
            block = slice(begin, begin + SENTENCES_AT_ONCE)
            texts, own_references = data.sources[block], [numbers[text] for text in data.references[block]]
            asked = candidates(maker, texts, segmentation)
            if segmentation != "learned":  # without the segmentation's chances among the features
                asked = replace(asked, chances=None)
            for name in conditions:
                part = best_hits(searched[name], texts, asked, own_references if name == OTHERS else None)
                parts[name].append(replace(part, spans=part.spans + np.array([begin, 0, 0], np.int32)))
    whole = {name: gathered(own) for name, own in parts.items()}
    return {name: (own, judged(data, own)) for name, own in whole.items()}


def gathered(parts: Sequence[BestHits]) -> BestHits:
    """The hits of all parts, one part after the other."""
    return BestHits(
        np.concatenate([p.spans for p in parts]),
        tuple(hit for p in parts for hit in p.hits),
        {name: np.concatenate([p.features[name] for p in parts]) for name in parts[0].features},
        np.concatenate([p.unlike for p in parts]),
    )


def judged(data: Development, hints: BestHits) -> Judged:
    """The verdicts on the best hits, and the content words of the source that each hint covers."""
    bounds = np.searchsorted(hints.spans[:, 0], np.arange(len(data.sources) + 1)).tolist()
    verdicts, covered, content = [np.zeros(0, np.int8)], [np.zeros(0, np.int64)], 0
    for number, (source, reference, links) in enumerate(zip(data.sources, data.references, data.links, strict=True)):
        rows = slice(bounds[number], bounds[number + 1])
        spans = hints.spans[rows, 1:]
        verdicts.append(data.judge.verdicts(source, reference, links, spans, [h.text for h in hints.hits[rows]]))
        starts = [a for a, b in word_spans(source).tolist() if source[a:b].casefold() not in data.source_function]
        covered.append(np.searchsorted(starts, spans[:, 1]) - np.searchsorted(starts, spans[:, 0]))
        content += len(starts)
    return Judged(hints.spans, np.concatenate(verdicts), np.concatenate(covered), len(data.sources), content)
