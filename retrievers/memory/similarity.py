"""How similar a stored sentence is to the unknown translation of a sentence: the chrF that it is expected to have if it
were pasted as the translation, from 0 to 1.

`similarity.json` holds a logistic regression for sentences with and without a draft, in memories of one and of two
languages, and what they were fitted on (`python -m finetune.memory`).
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
from retrievers.memory.features import Candidates
from retrievers.memory.regression import Regression

FILE = "similarity.json"
MODEL = "memory-e5-small"
"""The weights that ship."""


def kind(draft: bool, original: bool) -> str:
    """What a regression is for."""
    return f"{'draft' if draft else 'source'}{' and original' if original else ''}"


KINDS = tuple(kind(draft, original) for draft in (False, True) for original in (False, True))


@dataclass(frozen=True)
class Similarity:
    """The regressions by kind (see KINDS); `fitted` tells of the data and of how well they do."""

    models: Mapping[str, Regression]
    fitted: Mapping[str, Any]

    def of(self, candidates: Candidates) -> Floats:
        """The similarity of each candidate (candidates,), from 0 to 1."""
        original = candidates.features.get("original", np.zeros(len(candidates.rows))) > 0
        draft = candidates.drafted[candidates.rows]
        scores = np.zeros(len(candidates.rows), dtype=np.float32)
        for of_draft in (False, True):
            for of_original in (False, True):
                rows = np.flatnonzero((draft == of_draft) & (original == of_original))
                if len(rows):
                    features = {name: values[rows] for name, values in candidates.features.items()}
                    scores[rows] = self.models[kind(of_draft, of_original)].chance(features)
        return scores

    def save(self, path: Path) -> None:
        models = {name: model.as_dict() for name, model in self.models.items()}
        write_json(path, {"models": models, "fitted": self.fitted})

    @staticmethod
    def load(path: Path) -> Similarity:
        """Read it; raises UserError for a file of another make."""
        try:
            stored = read_json(path)
            models = {name: Regression.of(stored["models"][name]) for name in KINDS}
            return Similarity(models, stored["fitted"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(
                f"{path} is no model of similarity ({error}): fit it again with `python -m finetune.memory`"
            ) from None


def stored(folder: Path) -> Similarity:
    """The model of a memory's own folder, else the one that ships."""
    own = folder / FILE
    return Similarity.load(own if own.is_file() else FOLDER / MODEL / FILE)
