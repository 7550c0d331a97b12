"""chrF (Popović 2015) and chrF++ (Popović 2017) by sacreBLEU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.chrf import CHRF


class Chrf:
    """chrF or, with n-grams of 1 and 2 words, chrF++ (a Metric)."""

    formula = "chrf"

    def __init__(self, word_order: int = 0) -> None:
        self.name = "chrF" + "+" * word_order
        self._chrf = CHRF(word_order=word_order)
        self._chrf.corpus_score(["a"], [["a"]])  # tells it that there is one reference, which its signature names
        self.signature = str(self._chrf.get_signature())

    def statistics(
        self, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
    ) -> NDArray[np.float64]:
        """See `eval.metrics.formulas.chrf`: (sentences, 3 * orders)."""
        made = self._chrf._extract_corpus_statistics(hypotheses, [references])
        return np.array(made, np.float64).reshape(-1, 3 * self._chrf.order)


def open_chrf() -> Chrf:
    """chrF: n-grams of 1 to 6 characters."""
    return Chrf()


def open_chrf_words() -> Chrf:
    """chrF++: n-grams of words too."""
    return Chrf(word_order=2)
