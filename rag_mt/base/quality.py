"""How good a translation is thought to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from rag_mt.base.errors import UserError
from rag_mt.base.findings import Finding

if TYPE_CHECKING:
    from rag_mt.base.types import TranslatedText

Grade = Literal["good", "fair", "poor"]
GRADES: tuple[Grade, ...] = get_args(Grade)
"""The best first."""
LEAST: dict[Grade, float] = {"good": 70.0, "fair": 50.0, "poor": 0.0}
"""The lowest score of a grade. From 70 on people find the meaning closely kept, below 50 much of it lost."""
BEST = 100.0
QUALITY = "quality"
"""The rule that finds estimates too low."""
ABOUT_QUALITY = "the estimate of the quality is below what was asked for"


@dataclass(frozen=True, slots=True, order=True)
class Estimate:
    """`score`: what people are expected to give the translation, from 0 to 100, without a reference at hand."""

    score: float

    @property
    def grade(self) -> Grade:
        """The score in one word."""
        return next(grade for grade in GRADES if self.score >= LEAST[grade])

    def __str__(self) -> str:
        return f"{self.grade}, {self.score:.0f} of 100"

    def below(self, least: float) -> list[Finding]:
        """The finding that the estimate is below a score; none if it is not."""
        return [Finding(QUALITY, "warning", f"quality estimated as {self}")] if self.score < least else []


@dataclass(frozen=True, slots=True)
class Said:
    """What the language model `llm` has said of its translations in a direction such as `de-en`: for each the mean of
    the logarithms of its tokens' probabilities, None where it is not known."""

    llm: str
    direction: str
    logprobs: Sequence[float | None]


def least_score(text: str | None) -> float | None:
    """The score that a grade, or a number from 0 to 100, stands for, None where nothing is asked for; raises UserError
    for anything else."""
    if not text:
        return None
    known = {str(grade): score for grade, score in LEAST.items()}
    if text in known:
        return known[text]
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= BEST:
        raise UserError(f"{text!r} is no quality: give good, fair or a number from 0 to 100")
    return value


def is_faulty(translated: TranslatedText) -> bool:
    """Whether a check found an error in a translation, or its quality is estimated too low."""
    return any(finding.severity == "error" or finding.rule == QUALITY for finding in translated.findings)


def is_sure(translated: TranslatedText) -> bool:
    """Whether the quality of a translation is estimated high enough, and nothing else is wrong with it."""
    return translated.estimate is not None and not is_faulty(translated)
