"""What the checks found in a translation as HTML."""

from __future__ import annotations

from rag_mt.base.findings import Severity
from rag_mt.base.types import TranslatedText
from ui.page.markup import escaped, table

MARKS: dict[Severity, str] = {"error": "✕", "warning": "!", "note": "·"}
"""So that the severity is told by more than its word."""


def findings_table(translated: TranslatedText) -> str:
    """The findings, a row each; empty without any."""
    rows = [
        (f"{MARKS[finding.severity]} {finding.severity}", escaped(finding.message), finding.rule)
        for finding in translated.findings
    ]
    return table("What the checks found in the translation", ("Severity", "Finding", "Rule"), rows) if rows else ""
