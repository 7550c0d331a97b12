"""How good a translation is thought to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Grade = Literal["good", "fair", "poor"]
GRADES: tuple[Grade, ...] = get_args(Grade)
"""The best first."""
LEAST: dict[Grade, float] = {"good": 70.0, "fair": 50.0, "poor": 0.0}
"""The lowest score of a grade. From 70 on people find the meaning closely kept, below 50 much of it lost."""


@dataclass(frozen=True, slots=True, order=True)
class Estimate:
    """`score`: what people are expected to give the translation, from 0 to 100, without a reference at hand."""

    score: float

    @property
    def grade(self) -> Grade:
        """The score in one word."""
        return next(grade for grade in GRADES if self.score >= LEAST[grade])

    def __str__(self) -> str:
        return f"{self.grade} ({self.score:.0f})"
