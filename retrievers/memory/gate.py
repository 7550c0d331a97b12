"""Whether what a memory has is worth showing: the gain that is expected of it.

The gain of hints is the log-probability that the language model gives the right translation with them less that without
them, in nats. `gate.json` holds a linear regression of it and what that was fitted on (`python -m finetune.memory
gate`):

    similarity    of the best hit
    dice          of the best hit and the draft (4-grams of characters)
    novelty       share of the best hit's words that the draft does not have
    hits          their number
    length        ln of the sentence's number of characters
    surprisal     mean surprisal of the draft's tokens in nats, where it is known
    de-en         1 for this direction, 0 for others, and so on: some languages the model knows less of

Whatever the gain, hints without a word that the draft does not have say nothing new and are not shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json, write_json
from rag_mt.base.types import Floats
from rag_mt.models.weights import FOLDER
from rag_mt.text.words import terms_in
from retrievers.ccpr.confidence import Doubles
from retrievers.memory.regression import Regression
from retrievers.memory.similarity import MODEL

FILE = "gate.json"
FEATURES = ("similarity", "dice", "novelty", "hits", "length")
SURPRISAL = "surprisal"
LEAST_SIMILARITY = 0.2
"""Of the best hit, from which on hints are shown where no gate was fitted: nearly always, because a consensus over
several answers forgives wrong ones (reports/domains-dev.md)."""


@dataclass(frozen=True)
class Gate:
    """The expected gain by features, and the `bound` that it must be above; `fitted` tells of the data."""

    model: Regression
    bound: float
    fitted: Mapping[str, Any]

    def gains(self, features: Mapping[str, Floats], direction: str) -> Doubles:
        """The gain in nats that is expected of each sentence's hits (sentences,) in a direction such as `de-en`; one
        that the gate was not fitted on counts as the mean of those that it was."""
        fitted_on = [name for name in self.model.features if name not in (*FEATURES, SURPRISAL)]
        if direction in fitted_on:
            size = len(next(iter(features.values())))
            features = {**features, **{name: np.full(size, name == direction, np.float32) for name in fitted_on}}
        return self.model.value(features)

    def save(self, path: Path) -> None:
        write_json(path, {"model": self.model.as_dict(), "bound": self.bound, "fitted": self.fitted})

    @staticmethod
    def load(path: Path) -> Gate:
        """Read it; raises UserError for a file of another make."""
        try:
            stored = read_json(path)
            return Gate(Regression.of(stored["model"]), float(stored["bound"]), stored["fitted"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(
                f"{path} is no gate ({error}): fit it again with `python -m finetune.memory gate`"
            ) from None


def stored(folder: Path) -> Gate | None:
    """The gate of a memory's own folder, else the one that ships, if there is one."""
    return next((Gate.load(path) for path in (folder / FILE, FOLDER / MODEL / FILE) if path.is_file()), None)


def novelty(hit: str, draft: str, language: str) -> float:
    """The share of the words of a hit, ends cut off, that a draft in the same language does not have, from 0 to 1."""
    terms = terms_in(language).of(hit)
    known = set(terms_in(language).of(draft))
    return sum(term not in known for term in terms) / max(len(terms), 1)
