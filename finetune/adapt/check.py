"""Whether an adapter is better than what it began with: chrF of the held-out sentences, by paired bootstrap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest, Result

LEVEL = 0.05


@dataclass(frozen=True)
class Scores:
    """chrF and BLEU before and after, and the p-value of the difference of chrF by sacreBLEU's paired bootstrap."""

    chrf_before: float
    chrf: float
    bleu_before: float
    bleu: float
    p: float

    @property
    def better(self) -> bool:
        """Whether the adapter is worth keeping."""
        return self.chrf > self.chrf_before and self.p < LEVEL

    def describe(self) -> str:
        """For people."""
        return (
            f"chrF {self.chrf_before:.1f} -> {self.chrf:.1f} (p {self.p:.3f}, paired bootstrap), "
            f"BLEU {self.bleu_before:.1f} -> {self.bleu:.1f}"
        )


def scores(before: Sequence[str], after: Sequence[str], references: Sequence[str]) -> Scores:
    """The scores of two systems' translations of the same sentences."""
    (chrf_before, bleu_before), (chrf, bleu) = (
        (CHRF().corpus_score(texts, [references]).score, BLEU().corpus_score(texts, [references]).score)
        for texts in (before, after)
    )
    if list(before) == list(after):
        return Scores(chrf_before, chrf, bleu_before, bleu, 1.0)
    systems: list[tuple[str, Sequence[str]]] = [("before", before), ("after", after)]
    _, results = PairedTest(systems, {"chrF": CHRF()}, [references], test_type="bs")()
    compared = results["chrF2"][1]
    assert isinstance(compared, Result) and compared.p_value is not None
    return Scores(chrf_before, chrf, bleu_before, bleu, float(compared.p_value))
