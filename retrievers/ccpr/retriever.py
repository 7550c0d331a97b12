"""The retriever of CCPR: the phrases of a sentence, the nearest phrase of the index for each, and what to trust."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from rag_mt.base.errors import UserError
from rag_mt.base.files import settings_hash
from rag_mt.base.types import Encoder, Floats, Hint, Hit, Kind, Unit
from rag_mt.text.words import surface, words_in
from retrievers.ccpr.confidence import CHANCE, Confidence, back_features, search_features, string_features
from retrievers.ccpr.model import PhraseEncoder
from retrievers.dense import IndexRetriever, Searched, hints_apart, search_each
from retrievers.index.search import Index, LeftOut
from retrievers.units.unit import MAX_WORDS, QUERY_THRESHOLD, lettered, ngrams, rows_by_text, unit_settings

Segmentation = Literal["learned", "ngrams"]
"""Which spans of a sentence are looked up: those that the segmentation head sees, or all of up to four words."""

NEIGHBOURS = 10
"""Hits that are looked at for each phrase: the best one and those it is compared with."""

ALL = -1.0
"""A threshold below every probability."""

ALONE = 0.5
"""The weight of a phrase's vector out of context, that in context having 1. Chosen on development data: 1 finds a
little more in an index of other text, and much less where the translation itself is in the index."""


class CcprUnits:
    """The spans of whole words that the segmentation head takes for phrases (a UnitMaker; CCPR, section 5.2).

    A span has up to `max_words` words, at least one letter, and a probability above the threshold of its kind:
    `index_threshold` for text of the index ("passage"), `query_threshold` for sentences to translate ("query").
    Vectors are those of the phrase head, length 1 if the model is a normalised one.
    """

    unit: Unit = "phrase"
    block = 256

    def __init__(self, encoder: Encoder) -> None:
        if not isinstance(encoder, PhraseEncoder):
            raise UserError(
                f"the encoder {encoder.id} has no phrase heads: give a phrase model such as ccpr-e5-small, or use "
                "--retriever phrases"
            )
        self.encoder = encoder
        model = encoder.heads.settings
        self.thresholds: Mapping[Kind, float] = {"passage": model.index_threshold, "query": model.query_threshold}
        self.dimension = model.dimension
        self.settings: Mapping[str, Any] = {
            **unit_settings("ccpr", encoder, index_threshold=self.thresholds["passage"]),
            QUERY_THRESHOLD: self.thresholds["query"],
            **({} if model.normalised else {"normalised": False}),
        }

    def units(self, texts: Sequence[str], kind: Kind) -> tuple[Floats, NDArray[np.int32]]:
        """Vectors (units, dimension) and int32 (units, 3) text number, start, end, ordered by all three."""
        return self.scored(texts, self.thresholds[kind])[:2]

    @torch.inference_mode()
    def scored(self, texts: Sequence[str], threshold: float) -> tuple[Floats, NDArray[np.int32], Floats]:
        """As `units`, with the probability of each unit (units,)."""
        heads, size = self.encoder.heads, self.dimension
        vectors, spans = [np.zeros((0, size), np.float32)], [np.zeros((0, 3), np.int32)]
        chances = [np.zeros(0, np.float32)]
        for rows, tokens, starts, ends in self.encoder.projected(texts):
            # 1. The words of the batch, (words, 3) text number, start, end, and their n-grams as first and last word.
            batch = np.repeat(np.arange(len(rows), dtype=np.int32), [len(t.words) for t in tokens])
            words = np.column_stack([np.array(rows, np.int32)[batch], np.concatenate([t.words for t in tokens])])
            has_letter = [lettered(texts[row], t.words) for row, t in zip(rows, tokens, strict=True)]
            grams = ngrams(batch, np.concatenate(has_letter), heads.settings.max_words)
            first, last = (torch.from_numpy(ends_of).to(starts.device) for ends_of in grams)
            # 2. What each word adds to a span as its first and as its last one, (words, dimension + segment width).
            at = torch.from_numpy(batch.astype(np.int64)).to(starts.device)
            bounds = torch.from_numpy(np.concatenate([t.bounds for t in tokens]).astype(np.int64)).to(starts.device)
            starts, ends = starts[at, bounds[:, 0]], ends[at, bounds[:, 1]]
            # 3. The spans that are likely enough.
            chance = torch.sigmoid(heads.decided(starts[:, size:][first] + ends[:, size:][last]))
            likely = torch.nonzero(chance > threshold).squeeze(1)
            first, last = first[likely], last[likely]
            vectors.append(heads.vectors(starts[first, :size] + ends[last, :size]).cpu().numpy())
            chances.append(chance[likely].cpu().numpy())
            a, b = first.cpu().numpy(), last.cpu().numpy()
            spans.append(np.stack([words[a, 0], words[a, 1], words[b, 2]], axis=1))
        all_spans = np.concatenate(spans)
        order = np.lexsort((all_spans[:, 2], all_spans[:, 1], all_spans[:, 0]))
        return np.concatenate(vectors)[order], all_spans[order], np.concatenate(chances)[order]

    @torch.inference_mode()
    def span_vectors(self, texts: Sequence[str], spans: NDArray[np.int32]) -> Floats:
        """Vectors (spans, dimension) of given spans of whole words, int32 (spans, 3) text number, start, end. A span
        whose words the model does not see (cut off, unknown to the tokenizer) has a vector of zeros."""
        vectors = np.zeros((len(spans), self.dimension), dtype=np.float32)
        by_text = rows_by_text(spans, len(texts))
        for numbers, tokens, starts, ends in self.encoder.projected(texts):
            for at, (number, text_tokens) in enumerate(zip(numbers, tokens, strict=True)):
                rows = by_text[number]
                a, b = text_tokens.first_token(spans[rows, 1]), text_tokens.last_token(spans[rows, 2])
                seen = np.flatnonzero((a >= 0) & (b >= 0))
                if len(seen):
                    edges = starts[at, a[seen].astype(np.int64)] + ends[at, b[seen].astype(np.int64)]
                    vectors[rows[seen]] = self.encoder.heads.vectors(edges).cpu().numpy()
        return vectors


@dataclass(frozen=True)
class Candidates:
    """All spans of some texts with their vectors, int32 (spans, 3) and (spans, dimension), ordered by text, start and
    end; `chances`, the probability that each is a phrase, or None; the rows `asked` that are looked up, and the vectors
    `queries` (asked, dimension) that they are looked up by."""

    spans: NDArray[np.int32]
    vectors: Floats
    chances: Floats | None
    asked: NDArray[np.int64]
    queries: Floats


@dataclass(frozen=True)
class BestHits:
    """The best hit of each phrase that was looked up and found something: `spans` int32 (n, 3) text number, start, end;
    `hits`, with the score of the search; `features` by name, arrays (n,); `unlike` (n,), whether the numbers in hit and
    phrase differ."""

    spans: NDArray[np.int32]
    hits: tuple[Hit, ...]
    features: dict[str, Floats]
    unlike: NDArray[np.bool_]

    def take(self, rows: NDArray[np.int64]) -> BestHits:
        """Those in these rows."""
        features = {name: values[rows] for name, values in self.features.items()}
        return BestHits(self.spans[rows], tuple(self.hits[n] for n in rows.tolist()), features, self.unlike[rows])


class CcprRetriever(IndexRetriever):
    """The phrases of a sentence that the `segmentation` asks for, each with its best hit.

    The score of a hit is the confidence in it, from 0 to 1: the probability that it translates the phrase (see
    `Confidence`). Hits below `cut_off`, and hits with other numbers than the phrase, are not shown. Of hits of the same
    surface the one with the highest similarity counts. Source spans of hints do not overlap.
    """

    maker: CcprUnits
    segmentation: Segmentation = "learned"

    def __init__(
        self, name: str, index: Index, maker: CcprUnits, confidence: Confidence, cut_off: float | None = None
    ) -> None:
        super().__init__(name, index, maker, confidence.minimum if cut_off is None else cut_off)
        self.confidence = confidence

    @property
    def settings(self) -> Mapping[str, Any]:
        """All that could change the hints of a sentence."""
        confidence = settings_hash(asdict(self.confidence))
        return {**super().settings, "segmentation": self.segmentation, "confidence": confidence}

    def _block(self, texts: Sequence[str], without: Sequence[LeftOut] | None) -> list[tuple[Hint, ...]]:
        best = best_hits(self.index, texts, candidates(self.maker, texts, self.segmentation), without)
        trust = self.confidence.of(best.features, best.unlike)
        trusted = np.flatnonzero((trust > 0) & (trust >= (self.cut_off or 0)))
        best, trust = best.take(trusted), trust[trusted]
        return hints_apart(len(texts), best.spans, trust, lambda row: replace(best.hits[row], score=float(trust[row])))


def candidates(maker: CcprUnits, texts: Sequence[str], segmentation: Segmentation = "learned") -> Candidates:
    """All spans of the texts; asked are those of the segmentation (learned: above the maker's threshold for queries),
    by what they mean in their sentence and by themselves (see `with_themselves`)."""
    vectors, spans, chances = maker.scored(texts, ALL)
    learned = segmentation == "learned"
    asked = np.flatnonzero(chances > maker.thresholds["query"] if learned else words_in(texts, spans) <= MAX_WORDS)
    return Candidates(spans, vectors, chances, asked, with_themselves(maker, texts, spans[asked], vectors[asked]))


def with_themselves(maker: CcprUnits, texts: Sequence[str], spans: NDArray[np.int32], vectors: Floats) -> Floats:
    """The vectors (spans, dimension) of phrases with a share of those added that they have when they are read as a text
    of their own, of the length that the model gives all vectors. In context alone the nearest phrase is often one with
    another meaning from a like sentence: an index of other text has the word, but seldom in the same context."""
    if not len(spans):
        return vectors
    phrases = [texts[n][a:b] for n, a, b in spans.tolist()]
    rows = {phrase: row for row, phrase in enumerate(dict.fromkeys(phrases))}
    whole = np.array([(row, 0, len(phrase)) for phrase, row in rows.items()], np.int32)
    alone = maker.span_vectors(list(rows), whole)
    mixed = vectors + ALONE * alone[[rows[phrase] for phrase in phrases]]
    normalised = maker.encoder.heads.settings.normalised
    lengths = np.maximum(np.linalg.norm(mixed, axis=1, keepdims=True), 1e-9) if normalised else 1 + ALONE
    return (mixed / lengths).astype(np.float32, copy=False)


def best_hits(
    index: Searched,
    texts: Sequence[str],
    phrases: Candidates,
    without: Sequence[LeftOut] | None = None,
    k: int = NEIGHBOURS,
) -> BestHits:
    """Look up those of the phrases that are asked for and describe the best hit of each; phrases without any hit are
    left out. `without[i]` is what is left out of the index for text i."""
    bounds = np.searchsorted(phrases.spans[phrases.asked, 0], np.arange(len(texts) + 1))
    scores, ids = search_each(index, phrases.queries, bounds, k, without)
    # 1. The units (phrases, k), best first, -1 where there is none, and a number for the surface of each.
    there = np.flatnonzero(ids[:, 0] >= 0)
    rows, scores, ids = phrases.asked[there], scores[there], ids[there]
    units, places = np.unique(ids, return_inverse=True)
    known = {unit: index.hit(unit, 0.0) for unit in units.tolist() if unit >= 0}
    numbers: dict[str, int] = {}
    surfaces = [-1 if u < 0 else numbers.setdefault(surface(known[u].text), len(numbers)) for u in units.tolist()]
    hits = tuple(
        replace(known[unit], score=score) for unit, score in zip(ids[:, 0].tolist(), scores[:, 0].tolist(), strict=True)
    )
    # 2. The features of the best.
    spans = phrases.spans[rows]
    queries = [(texts[n], a, b) for n, a, b in spans.tolist()]
    letters, unlike = string_features(queries, [(h.sentence.text, h.span.start, h.span.end) for h in hits])
    features = search_features(scores, np.array(surfaces, np.int64)[places.reshape(ids.shape)]) | letters
    features |= back_features(index.reconstruct(ids[:, 0]), rows, phrases.vectors, phrases.spans)
    features["names unlike, margin"] = features["names unlike"] * features["margin"]
    if phrases.chances is not None:
        chance = np.clip(phrases.chances[rows].astype(np.float64), 1e-6, 1 - 1e-6)
        features[CHANCE] = np.log(chance / (1 - chance)).astype(np.float32)
    return BestHits(spans, hits, features, unlike)
