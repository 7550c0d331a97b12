"""Phrases of texts for the index and for queries by XPR: one vector for all sentences that a phrase stands in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.errors import UserError
from rag_mt.base.types import Encoder, Floats, Kind, Unit
from rag_mt.text.words import surface, word_spans
from retrievers.units.unit import MAX_WORDS, lettered, ngrams, unit_settings
from retrievers.xpr.examples import Rows, Side, sentence_table
from retrievers.xpr.model import SENTENCES, XprEncoder

FREQUENT_SHARE = 0.05
"""A word of more than this share of the sentences neither begins nor ends a phrase of the index (`of the`)."""
FREQUENT_LEAST = 10
"""A word that occurs less often than this is never too frequent, however little text there is."""
POOLED = 8192
"""Sentences whose phrases are put together: about 250,000 phrases, of which each needs a vector in memory."""


class XprUnits:
    """Runs of up to four whole words, each phrase once, with the mean over its example sentences (a UnitMaker).

    Of text for the index ("passage") the phrases of `pooled` sentences are found: runs of words that neither begin nor
    end with a frequent word. What says the same, letter case aside, is one unit, which points to its first place and
    whose vector comes from its first 32 places among these (XPR, section 3.4). A phrase that stands in later
    ones as well has a further unit there: to put all sentences of a text together would need the sums of all its
    phrases in memory. Of a sentence to translate ("query") every run of words is a unit, in its context.
    """

    unit: Unit = "phrase"
    block = 1024
    pooled = POOLED

    def __init__(self, encoder: Encoder, max_words: int = MAX_WORDS) -> None:
        if not isinstance(encoder, XprEncoder):
            raise UserError(
                f"the encoder {encoder.id} is not opened for XPR: give an XPR model or a bare encoder with "
                "--retriever xpr, or use --retriever phrases"
            )
        if not encoder.settings.sentences:
            raise UserError(
                f"{encoder.id} was trained on phrases without sentences, and phrases are read in theirs here: give a "
                "model trained with data.sentences of 1 or more"
            )
        self.encoder, self.max_words = encoder, max_words
        self.dimension = encoder.settings.hidden
        limits = {"max_words": max_words, "frequent_share": FREQUENT_SHARE, "sentences": SENTENCES, "pooled": POOLED}
        self.settings: Mapping[str, Any] = unit_settings("xpr", encoder, layer=encoder.settings.layer, **limits)

    def units(self, texts: Sequence[str], kind: Kind) -> tuple[Floats, Rows]:
        """Vectors of length 1 (units, hidden) and int32 (units, 3) text number, start, end, ordered by all three."""
        layer = self.encoder.settings.layer
        spans, frequent = self._runs(texts)
        if kind == "query":
            states = self.encoder.example_states(texts, spans, layer)
            seen = states.any(axis=1)
            return self.encoder.project(states[seen]), spans[seen]
        spans = spans[~frequent]
        numbers: dict[str, int] = {}
        owners = [numbers.setdefault(surface(texts[n][a:b]), len(numbers)) for n, a, b in spans.tolist()]
        order = np.argsort(owners, kind="stable")
        examples = np.insert(spans, 0, owners, axis=1)[order]
        side = Side("", tuple(numbers), sentence_table(texts), examples)
        states = self.encoder.side_states(side, np.arange(len(numbers)), SENTENCES, layer)
        seen = states.any(axis=1)  # numbers are those of first places, which so come in order
        return self.encoder.project(states[seen]), examples[side.bounds[:-1][seen], 1:]

    def _runs(self, texts: Sequence[str]) -> tuple[Rows, NDArray[np.bool_]]:
        """All runs of up to `max_words` words with a letter, (runs, 3) text number, start, end, ordered by all three;
        and whether each begins or ends with a frequent word."""
        spans = [word_spans(text) for text in texts]
        words = np.concatenate([np.zeros((0, 3), np.int32), *(np.insert(s, 0, n, axis=1) for n, s in enumerate(spans))])
        casefolded = [texts[n][a:b].casefold() for n, a, b in words.tolist()]
        has_letter = np.concatenate([np.zeros(0, bool), *map(lettered, texts, spans)])
        counts = Counter(casefolded)
        least = max(FREQUENT_LEAST, FREQUENT_SHARE * len(texts))
        frequent = np.array([counts[word] > least for word in casefolded], dtype=bool)
        first, last = ngrams(words[:, 0], has_letter, self.max_words)
        runs = np.stack([words[first, 0], words[first, 1], words[last, 2]], axis=1).astype(np.int32)
        return runs, frequent[first] | frequent[last]
