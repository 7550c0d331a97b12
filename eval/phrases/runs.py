"""Models under test in phrase retrieval, what they find, and how good it is.

A query is searched among every span of its set's own English sentences, and the phrases of an index.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from eval.data.phrase_pairs import MAX_WORDS, Spans, Words
from eval.data.phrase_sets import SEED, PhraseSet
from eval.metrics.formulas import mean_rows
from eval.phrases.alone import ALONE, open_alone
from eval.phrases.search import TopSurfaces
from eval.significance import Comparison, compare
from rag_mt.base.console import progress
from rag_mt.base.errors import UserError
from rag_mt.base.files import settings_hash
from rag_mt.base.languages import base_code
from rag_mt.base.types import Floats, Kind
from rag_mt.formats.parallel import letters_and_digits
from rag_mt.text.words import surface
from retrievers.ccpr.model import open_phrase_encoder
from retrievers.ccpr.retriever import CcprUnits
from retrievers.encoders.encoder import open_encoder
from retrievers.index.opening import map_sentences, map_spans, open_index
from retrievers.units.unit import NgramUnits, default_layer, ngrams, span_states

UNTRAINED = "untrained:"
SENTENCES_AT_ONCE = 256


@dataclass(frozen=True)
class Row:
    """A system of the table: a model, or one layer of an untrained encoder."""

    name: str
    fingerprint: str
    layer: int | None = None


@dataclass(frozen=True)
class PhraseModel:
    """One or several rows of the table, computed in one pass over the text.

    `default` is the row that stands for the model where none was chosen on development data. `span_vectors` gives for
    each row the vectors (n, dimension) of spans, int32 (n, 3) text number, start, end, of some texts.
    """

    name: str
    rows: tuple[Row, ...]
    default: int
    device: torch.device
    span_vectors: Callable[[Sequence[str], Spans, Kind], Iterable[Floats]]


def open_phrase_model(name: str, layers: str = "all", device: str = "auto", dtype: str = "auto") -> PhraseModel:
    """The model of a name: `untrained:ENCODER[@LAYER]`, `alone:ENCODER`, `alone:muse`, or a phrase model's.

    An untrained encoder represents a span by [h_start; h_end] of a hidden layer, one alone by its vector of the phrase
    without the rest of its sentence. `layers` (`all`, or numbers with
    commas) are those of one that is named without `@LAYER`.
    Raises UserError for what cannot be loaded and for layers that are not there.
    """
    if name.startswith(ALONE):
        alone = open_alone(name.removeprefix(ALONE), device, dtype)
        row = Row(name, settings_hash(dict(alone.settings)))
        return PhraseModel(
            name, (row,), 0, alone.device, lambda texts, spans, kind: [alone.span_vectors(texts, spans, kind)]
        )
    if not name.startswith(UNTRAINED):
        units = CcprUnits(open_phrase_encoder(name, device, dtype))
        row = Row(name, settings_hash([units.settings["units"], units.settings["fingerprint"]]))
        return PhraseModel(
            name, (row,), 0, units.encoder.device, lambda texts, spans, kind: [units.span_vectors(texts, spans)]
        )
    match = re.fullmatch(r"(.+?)(?:@(\d+))?", name.removeprefix(UNTRAINED))
    if match is None:
        raise UserError(f"model {name!r} names no encoder: give {UNTRAINED}ENCODER or {UNTRAINED}ENCODER@LAYER")
    encoder = open_encoder(match[1], device, dtype)
    wanted = match[2] or layers
    if wanted != "all" and not re.fullmatch(r"\d+(,\d+)*", wanted):
        raise UserError(f"layers {wanted!r} are neither `all` nor numbers such as 6,7,12")
    numbers = list(range(encoder.layers + 1)) if wanted == "all" else sorted(set(map(int, wanted.split(","))))
    if numbers[-1] > encoder.layers:
        raise UserError(f"{match[1]} has no layer {numbers[-1]}: choose among 0 to {encoder.layers}")
    full_name, usual = UNTRAINED + match[1], default_layer(encoder)

    def span_vectors(texts: Sequence[str], spans: Spans, kind: Kind) -> Iterator[Floats]:
        states = list(encoder.layer_states(texts, numbers))
        return (span_states([by_layer[n] for by_layer in states], spans) for n in range(len(numbers)))

    rows = tuple(
        Row(f"{full_name}@{n}", settings_hash(dict(NgramUnits(encoder, n, max_words=0).settings)), n) for n in numbers
    )
    default = numbers.index(usual) if usual in numbers else len(numbers) - 1
    return PhraseModel(full_name, rows, default, encoder.device, span_vectors)


def all_spans(texts: Sequence[str]) -> Spans:
    """Every span of up to six whole words with a letter, int32 (n, 3) text number, start, end, in that order."""
    words = Words.of(texts)
    first, last = ngrams(words.texts, np.diff(words.lettered) > 0, MAX_WORDS)
    return np.stack([words.texts[first], words.spans[first, 0], words.spans[last, 1]], axis=1)


def _blocks(texts: Sequence[str], spans: Spans) -> Iterator[tuple[list[str], Spans]]:
    """The texts, a few at once, with their rows of `spans` (n, 3 or more), whose first column is the text's number."""
    for begin in range(0, len(texts), SENTENCES_AT_ONCE):
        first, last = np.searchsorted(spans[:, 0], [begin, begin + SENTENCES_AT_ONCE])
        block = spans[first:last].copy()
        block[:, 0] -= begin
        yield list(texts[begin : begin + SENTENCES_AT_ONCE]), block


class Distractors:
    """The phrases of an index of English, of all sentences or of a seeded sample with at least `limit` phrases.

    Sentences that stand in `left_out` (by casefolded letters and digits) are not taken. Only the places of the phrases
    are read: each model makes its own vectors. Raises UserError for an index of anything but English phrases.
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
        allowed = np.array([letters_and_digits(text.as_py()) not in left_out for text in self._texts], dtype=bool)
        self.dropped = int((~allowed).sum())
        sizes = np.diff(self._bounds)
        chosen = np.flatnonzero(allowed & (sizes > 0))
        if limit is not None:
            mixed = np.random.default_rng(SEED).permutation(chosen)
            enough = int(np.searchsorted(np.cumsum(sizes[mixed]), limit)) + 1
            chosen = np.sort(mixed[:enough])
        self._chosen = chosen
        self.sentences, self.phrases = len(chosen), int(sizes[chosen].sum())
        self.facts = {
            "folder": folder.name,
            "fingerprint": settings_hash([manifest.as_dict(), limit]),
            "phrases": self.phrases,
            "sentences": self.sentences,
            "sentences left out": self.dropped,
        }

    def blocks(self) -> Iterator[tuple[list[str], Spans]]:
        """A few sentences at once, with their phrases (n, 3)."""
        for begin in range(0, len(self._chosen), SENTENCES_AT_ONCE):
            numbers = self._chosen[begin : begin + SENTENCES_AT_ONCE].tolist()
            parts = [np.array(self._spans[self._bounds[n] : self._bounds[n + 1]]) for n in numbers]
            for row, part in enumerate(parts):
                part[:, 0] = row
            yield [self._texts[n].as_py() for n in numbers], np.concatenate(parts)


@dataclass(frozen=True)
class Outcomes:
    """What happened to each query of a set, parallel arrays of its length.

    Of several trainings all but `sentences` have a row for each training (trainings, queries).
    `ranks` is the rank of the true surface among the retrieved distinct surfaces, from 1, 0 where it is not among them;
    `instances` whether the first hit is the true span of the true sentence; `overlaps` whether the first hit lies in
    the true sentence and shares a word with the true span; `sentences` the sentence of the query. `candidates` is how
    many spans were searched.
    """

    ranks: NDArray[np.int64]
    instances: NDArray[np.bool_]
    overlaps: NDArray[np.bool_]
    sentences: NDArray[np.int64]
    candidates: int


def of_trainings(parts: Sequence[Outcomes]) -> Outcomes:
    """What happened to the queries of a set with each of several trainings of a model."""
    if len(parts) == 1:
        return parts[0]
    ranks, instances, overlaps = (
        np.stack([getattr(part, name) for part in parts]) for name in ("ranks", "instances", "overlaps")
    )
    return Outcomes(ranks, instances, overlaps, parts[0].sentences, parts[0].candidates)


def accuracies(by_set: Sequence[Outcomes]) -> list[float]:
    """Accuracy@1 by surface of each training, averaged over sets."""
    rows = [np.atleast_2d(outcomes.ranks == 1).mean(axis=1) for outcomes in by_set]
    values: list[float] = np.mean(rows, axis=0).tolist()
    return values


def outcomes(
    found_surfaces: NDArray[np.int64],
    first_spans: NDArray[np.int64],
    true_surfaces: NDArray[np.int64],
    true_spans: NDArray[np.int64],
    sentences: NDArray[np.int64],
    candidates: int,
) -> Outcomes:
    """The outcomes of retrieved surfaces (queries, k), best first and distinct.

    `first_spans` and `true_spans` (queries, 3) are the sentence, start and end of the first hit and of the truth; the
    sentence of a hit that is not in the set is negative.
    """
    equal = found_surfaces == true_surfaces[:, None]
    ranks = np.where(equal.any(axis=1), equal.argmax(axis=1) + 1, 0)
    same = (first_spans[:, 0] == true_spans[:, 0]) & (first_spans[:, 0] >= 0)
    overlaps = same & (first_spans[:, 1] < true_spans[:, 2]) & (true_spans[:, 1] < first_spans[:, 2])
    instances = same & (first_spans[:, 1:] == true_spans[:, 1:]).all(axis=1)
    return Outcomes(ranks, instances, overlaps, sentences, candidates)


@dataclass(frozen=True)
class Scores:
    """Shares of 1: accuracy@1 by surface and by instance, mean reciprocal rank by surface, overlap."""

    accuracy: float
    instance: float
    mrr: float
    overlap: float


def scores(outcomes: Outcomes) -> Scores:
    """The scores of a set."""
    reciprocal = np.where(outcomes.ranks > 0, 1 / np.maximum(outcomes.ranks, 1), 0)
    values = ((outcomes.ranks == 1).mean(), outcomes.instances.mean(), reciprocal.mean(), outcomes.overlaps.mean())
    return Scores(*map(float, values))


def average(parts: Sequence[Scores]) -> Scores:
    """The mean over sets, each counting the same."""
    return Scores(*np.mean([(s.accuracy, s.instance, s.mrr, s.overlap) for s in parts], axis=0).tolist())


def difference(system: Sequence[Outcomes], baseline: Sequence[Outcomes]) -> Comparison:
    """The difference in accuracy@1 by surface, averaged over sets; sentences are the clusters, since the queries of a
    sentence overlap. Where a system was trained several times, p is about other trainings too.

    `system[i]` and `baseline[i]` are outcomes of the same queries; raises ValueError for others.
    """
    clusters = []
    for number, (ours, theirs) in enumerate(zip(system, baseline, strict=True)):
        if not np.array_equal(ours.sentences, theirs.sentences):
            raise ValueError("the outcomes to compare are not those of the same queries")
        clusters.append(np.array([f"{number} {sentence}" for sentence in ours.sentences.tolist()], dtype=np.str_))
    right = [[mean_rows(own.ranks == 1) for own in side] for side in (system, baseline)]
    several = any(outcome.ranks.ndim > 1 for outcome in (*system, *baseline))
    return compare(right[0], right[1], "mean", clusters, other_trainings=several)


def run_model(
    model: PhraseModel, sets: Sequence[PhraseSet], distractors: Distractors | None, k: int = 10, show: bool = True
) -> list[list[Outcomes]]:
    """For each row of the model its outcomes on each set; the texts are read once, whatever the number of rows.

    Memory holds the queries' vectors and a block of candidates, never all candidates.
    """
    device = model.device if model.device.type == "cuda" else "cpu"
    targets = [list(dict.fromkeys(phrase_set.targets)) for phrase_set in sets]
    spans = [all_spans(texts) for texts in targets]
    total = sum(len(phrase_set.sources) for phrase_set in sets) + sum(map(len, targets))
    bar = progress(total + (distractors.sentences if distractors else 0), "sentences", model.name, show=show)
    searches: list[list[TopSurfaces]] = []  # [set][row]

    def add(blocks: Iterable[tuple[list[str], Spans]], number: int, to: Sequence[Sequence[TopSurfaces]]) -> None:
        """Show candidates, numbered from `number`, to the searches of some sets."""
        for texts, block in blocks:
            surfaces = np.array([hash(surface(texts[n][a:b])) for n, a, b in block.tolist()], dtype=np.int64)
            numbers = number + np.arange(len(block))
            for row, vectors in enumerate(model.span_vectors(texts, block, "passage")):
                for by_row in to:
                    by_row[row].add(vectors, surfaces, numbers)
            number += len(block)
            bar.update(len(texts))

    for phrase_set, texts, own_spans in zip(sets, targets, spans, strict=True):
        parts: list[Sequence[Floats]] = []
        for sources, queries in _blocks(phrase_set.sources, phrase_set.queries):
            parts.append(list(model.span_vectors(sources, queries[:, :3], "query")))
            bar.update(len(sources))
        searches.append([TopSurfaces(np.concatenate(part), k, device) for part in zip(*parts, strict=True)])
        add(_blocks(texts, own_spans), 0, searches[-1:])
    if distractors:
        add(distractors.blocks(), max(map(len, spans), default=0), searches)
    bar.close()
    return [
        [
            _outcomes(phrase_set, texts, own_spans, by_row[row])
            for phrase_set, texts, own_spans, by_row in zip(sets, targets, spans, searches, strict=True)
        ]
        for row in range(len(model.rows))
    ]


def _outcomes(phrase_set: PhraseSet, texts: Sequence[str], spans: Spans, search: TopSurfaces) -> Outcomes:
    best = search.best()
    first = best["number"][:, 0]
    inside = (first >= 0) & (first < len(spans))
    hits = np.full((len(first), 3), -1, dtype=np.int64)
    hits[inside] = spans[first[inside]]
    numbers = {text: n for n, text in enumerate(texts)}
    truth = phrase_set.queries[:, [0, 3, 4]].astype(np.int64)
    truth[:, 0] = np.array([numbers[text] for text in phrase_set.targets], dtype=np.int64)[phrase_set.queries[:, 0]]
    surfaces = np.array([hash(s) for s in phrase_set.surfaces], dtype=np.int64)
    # Surfaces of gaps are -1, which the number of a real surface may be too.
    ranked = np.where(best["number"] >= 0, best["surface"], ~surfaces[:, None])
    return outcomes(ranked, hits, surfaces, truth, phrase_set.queries[:, 0].astype(np.int64), search.seen)
