"""What a rule finds in a translation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rag_mt.base.types import Origin

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found in a translation: `error` is what makes it wrong to ship, `warning` what a translator should
    look at, `note` what differs and may well be meant."""

    rule: str
    severity: Severity
    message: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.message} [{self.rule}]"

    def at(self, origin: Origin) -> str:
        """The finding as a line with its place; what it quotes may have line ends."""
        return " ".join(f"{origin}: {self}".splitlines())
