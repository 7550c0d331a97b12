"""All translations of a file or job, checked one after the other, and against each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rag_mt.base.findings import Finding, Severity
from rag_mt.base.types import Origin
from rag_mt.checks.rules import RULES, Pair, Rule, check
from rag_mt.text.words import surface

INCONSISTENT = "inconsistent"
"""The rule that compares segments with each other."""
ABOUT_INCONSISTENT = "the same text is translated in another way before"


@dataclass(frozen=True, slots=True)
class Checked:
    """A translation with its place, and what was found in it."""

    pair: Pair
    origin: Origin
    findings: tuple[Finding, ...]


@dataclass
class Checker:
    """Checks translations by some rules, by default all; `counts` are the findings so far by rule, `segments` the
    translations."""

    rules: Sequence[Rule] = tuple(RULES.values())
    inconsistent: bool = True
    segments: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    severities: Counter[Severity] = field(default_factory=Counter)
    _before: dict[str, tuple[str, Origin]] = field(default_factory=dict, repr=False)

    def check(self, pair: Pair, origin: Origin, more: Sequence[Finding] = ()) -> Checked:
        """What is found in a translation, also in comparison with earlier ones, and `more` that is known of it."""
        findings = [*check(pair, self.rules), *more]
        if self.inconsistent and pair.target.strip():
            findings += self._other_before(pair, origin)
        self.segments += 1
        self.counts.update(finding.rule for finding in findings)
        self.severities.update(finding.severity for finding in findings)
        return Checked(pair, origin, tuple(findings))

    def check_all(self, translations: Iterable[tuple[Pair, Origin]]) -> Iterator[Checked]:
        """Those of several translations, in order."""
        return (self.check(*translation) for translation in translations)

    def _other_before(self, pair: Pair, origin: Origin) -> list[Finding]:
        text, place = self._before.setdefault(surface(pair.source), (pair.target, origin))
        if surface(text) == surface(pair.target):
            return []
        return [Finding(INCONSISTENT, "warning", f"translated before as {text.strip()!r} ({place})")]
