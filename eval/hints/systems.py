"""What makes hints, for measuring: a retriever with its segmentation, looking into an index, references, or both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from eval.data.phrase_sets import development_half, read_alignments
from eval.hints.coverage import Judged
from eval.hints.verdicts import Judge, function_words
from rag_mt.base.errors import UserError
from rag_mt.base.types import Floats, Hit, Origin, Sentence, Skips
from rag_mt.text.words import word_spans
from retrievers.ccpr.retriever import Answers, Candidates, CcprUnits, Segmentation, answers, candidates
from retrievers.dense import Searched
from retrievers.encoders.alignment import Links
from retrievers.index.build import build_index
from retrievers.index.search import Index, LeftOut, open_index
from retrievers.units.unit import NgramUnits

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
    data: Path, pairs: Path, language: str, half: str, limit: int | None, from_english: bool = False
) -> Development:
    """Half of the development data between a language and English, or some `limit` sentences spread over it."""
    corpus, rows = development_half(data, language, half, Skips(shown=0))
    function = function_words(corpus.sources), function_words(corpus.targets)
    if limit is not None and rows:
        rows = [rows[n] for n in np.unique(np.linspace(0, len(rows) - 1, min(limit, len(rows))).astype(int))]
    if not rows:
        raise UserError(f"{data}/dev/{language}-en.tsv has no sentences in half {half}: give more development data")
    links = read_alignments(pairs / f"{language}-en.dev.jsonl", rows)
    foreign, english = tuple(row[1] for row in rows), tuple(row[2] for row in rows)
    if from_english:
        turned = tuple(own[:, ::-1] for own in links)
        return Development(language, english, foreign, turned, Judge(language, function[0]), function[1])
    return Development(language, foreign, english, tuple(links), Judge("en", function[1]), function[0])


@dataclass(frozen=True)
class System:
    """A unit maker with a segmentation: `learned` (the maker's own phrases) or `ngrams` (all spans of up to four words
    as queries)."""

    maker: CcprUnits | NgramUnits
    segmentation: Segmentation = "learned"

    def asked(self, texts: Sequence[str]) -> Candidates:
        """The spans of the texts and which of them are looked up."""
        if isinstance(self.maker, NgramUnits):
            vectors, spans = self.maker.units(texts, "query")
            return Candidates(spans, vectors, None, np.arange(len(spans)), vectors)
        made = candidates(self.maker, texts, self.segmentation)
        return made if self.segmentation == "learned" else replace(made, chances=None)


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
        made = np.empty((len(ids), self.first.manifest.dimension), np.float32)
        late = ids >= len(self.first)
        made[~late] = self.first.reconstruct(ids[~late])
        made[late] = self.second.reconstruct(ids[late] - len(self.first))
        return made

    def hit(self, unit: int, score: float) -> Hit:
        """The unit with that number."""
        late = unit - len(self.first)
        return self.first.hit(unit, score) if late < 0 else self.second.hit(late, score)


@contextmanager
def reference_index(own: Development, system: System, like: Index) -> Iterator[Index]:
    """A passing index of the references, built as `like` was."""
    with TemporaryDirectory() as folder:
        made = Path(folder) / "references"
        language = like.manifest.language
        sentences = (Sentence(t, language, Origin("dev", n)) for n, t in enumerate(own.references, 1))
        retriever = like.manifest.retriever
        build_index(made, sentences, system.maker, retriever=retriever, language=language, show=False, form="exact")
        yield open_index(made, system.maker.settings)


def judged_answers(
    own: Development, system: System, index: Index, references: Index, conditions: Sequence[str]
) -> dict[str, tuple[Answers, Judged]]:
    """For each condition all possible hints for the sentences, and what they are worth."""
    places = {references.sentence(n).text: n for n in range(references.manifest.sentences)}
    looked: dict[str, tuple[Searched, bool]] = {
        INDEX: (index, False),
        BOTH: (Joined(index, references), False),
        OTHERS: (references, True),
    }
    parts: dict[str, list[Answers]] = {name: [] for name in conditions}
    for begin in range(0, len(own.sources), SENTENCES_AT_ONCE):
        texts = own.sources[begin : begin + SENTENCES_AT_ONCE]
        asked = system.asked(texts)
        without = [places[t] for t in own.references[begin : begin + SENTENCES_AT_ONCE]]
        for name in conditions:
            searched, apart = looked[name]
            found = answers(searched, texts, asked, without if apart else None)
            shift = np.array([begin, 0, 0], np.int32)
            parts[name].append(Answers(found.spans + shift, found.hits, found.features, found.unlike))
    return {name: (found := gathered(made), judged(own, found)) for name, made in parts.items()}


def gathered(parts: Sequence[Answers]) -> Answers:
    """Answers one after the other."""
    return Answers(
        np.concatenate([p.spans for p in parts]),
        tuple(hit for p in parts for hit in p.hits),
        {name: np.concatenate([p.features[name] for p in parts]) for name in parts[0].features},
        np.concatenate([p.unlike for p in parts]),
    )


def judged(own: Development, found: Answers) -> Judged:
    """The verdicts on the best hits, and the content words of the source that each hint covers."""
    bounds = np.searchsorted(found.spans[:, 0], np.arange(len(own.sources) + 1)).tolist()
    verdicts, covered, content = [np.zeros(0, np.int8)], [np.zeros(0, np.int64)], 0
    for number, (source, reference, links) in enumerate(zip(own.sources, own.references, own.links, strict=True)):
        rows = slice(bounds[number], bounds[number + 1])
        spans = found.spans[rows, 1:]
        verdicts.append(own.judge.verdicts(source, reference, links, spans, [h.text for h in found.hits[rows]]))
        words = word_spans(source)
        kept = np.array([source[a:b].casefold() not in own.source_function for a, b in words.tolist()], dtype=bool)
        starts = words[kept, 0]
        covered.append(np.searchsorted(starts, spans[:, 1]) - np.searchsorted(starts, spans[:, 0]))
        content += len(starts)
    return Judged(found.spans, np.concatenate(verdicts), np.concatenate(covered), len(own.sources), content)
