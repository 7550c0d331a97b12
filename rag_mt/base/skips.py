"""Counts what had to be left out, and where, so that nothing is dropped in silence."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field

from rag_mt.base.types import Origin

log = logging.getLogger("rag_mt")

NO_LETTERS = "no letters"
"""The reason for leaving out a sentence that does not make a build a partial one: rules, bare numbers."""


@dataclass
class Skips:
    """Left-out items by reason; the first `shown` of each reason are logged with their place, none if it is 0.

    `remarks` are on what is left as it is because it is meant to be: nothing is wrong with it.
    """

    shown: int = 5
    folder: str = ""  # left out of the places that are logged
    counts: Counter[str] = field(default_factory=Counter)
    remarks: list[str] = field(default_factory=list)

    def add(self, origin: Origin, reason: str) -> None:
        """Count one item; `reason` is a short phrase such as `not valid UTF-8`."""
        self.counts[reason] += 1
        place = str(origin).removeprefix(self.folder)
        if self.counts[reason] <= self.shown:
            log.warning("%s: %s", place, reason)
        elif self.shown and self.counts[reason] == self.shown + 1:
            log.warning("%s: %s (further ones are only counted)", place, reason)

    def remark(self, file: object, text: str) -> None:
        """Remember a remark on a whole file, and log it unless nothing is shown."""
        self.remarks.append(text)
        if self.shown:
            log.info("%s: %s", str(file).removeprefix(self.folder), text)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def summary(self) -> str:
        """One line such as `skipped 3 lines: 2 not valid UTF-8, 1 over-long line`, or an empty string."""
        if not self.counts:
            return ""
        parts = ", ".join(f"{n} {reason}" for reason, n in self.counts.most_common())
        return f"skipped {self.total} lines: {parts}"
