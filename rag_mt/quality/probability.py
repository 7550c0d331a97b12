"""What the language model's own probability of a translation adds to the estimate of its quality.

With s the estimate of a pair alone and g = exp(mean log-probability of a token of the translation), which is a
geometric mean,

    estimate = s + per_probability * (g - mean g) + per_score * (s - mean s)

where the means are those of the model's own translations in a direction. `finetune.quality.probability` fits the two
factors on people's assessments of others' translations: as much is expected from people by the estimate as by s alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.errors import UserError
from rag_mt.base.quality import BEST, Said


@dataclass(frozen=True)
class Probability:
    """The factors for translations by the language model `llm`; `means` has the mean estimate and the mean probability
    of a token by direction (`de-en`)."""

    llm: str
    per_probability: float
    per_score: float
    means: Mapping[str, Sequence[float]]

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Probability:
        """The factors that are stored in the settings of an estimator; raises UserError if they do not fit."""
        try:
            return cls(**stored)
        except TypeError as error:
            raise UserError(
                f"the estimator's settings do not fit this version of rag_mt ({error}): fit it again"
            ) from error

    def added(self, scores: NDArray[np.float64], said: Said) -> NDArray[np.float64]:
        """Estimates (pairs,) from 0 to 100 with what the model has said; those as they are of which it has not, and of
        other models and directions."""
        means = self.means.get(said.direction)
        if said.llm != self.llm or means is None:
            return scores
        probabilities = np.exp([np.nan if logprob is None else logprob for logprob in said.logprobs])
        added = self.per_probability * (probabilities - means[1]) + self.per_score * (scores - means[0])
        return np.clip(scores + np.nan_to_num(added), 0, BEST)
