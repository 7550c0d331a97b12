"""BLEU (Papineni et al. 2002), chrF (Popović 2015) and chrF++ (Popović 2017), counted by sacreBLEU (Post 2018)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from rag_mt.base.errors import UserError
from rag_mt.base.languages import base_code, language


class NgramMetric:
    """The n-gram counts of a metric of sacreBLEU, with sacreBLEU's own signature (a Metric)."""

    def __init__(self, name: str, formula: str, counter: BLEU | CHRF) -> None:
        self.name, self.formula, self._counter = name, formula, counter
        counter.corpus_score(["a"], [["a"]])  # tells it that there is one reference, which its signature names
        self.signature = str(counter.get_signature())

    def statistics(
        self, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
    ) -> NDArray[np.float64]:
        """The columns of the formula in `eval.metrics.formulas`: (sentences, 10) or (sentences, 3 * orders)."""
        return np.array(self._counter._extract_corpus_statistics(hypotheses, [references]), np.float64)


def open_bleu(target: str) -> NgramMetric:
    """BLEU with sacreBLEU's tokenizer for the target language; raises UserError where that is not installed."""
    code = base_code(target)
    try:
        return NgramMetric("BLEU", "bleu", BLEU(trg_lang=code))
    except (RuntimeError, ImportError):  # tokenizers of Japanese and Korean are packages of their own
        raise UserError(
            f"BLEU of {language(target).name} needs another tokenizer: `pip install 'sacrebleu[{code}]'`, or leave "
            "bleu out of --metrics"
        ) from None


def open_chrf(word_order: int = 0) -> NgramMetric:
    """chrF over n-grams of 1 to 6 characters or, with n-grams of 1 and 2 words besides, chrF++."""
    return NgramMetric("chrF" + "+" * word_order, "chrf", CHRF(word_order=word_order))
