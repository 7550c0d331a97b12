"""What the checks found in a translation as HTML."""

from __future__ import annotations

from rag_mt.base.types import TranslatedText
from ui.page.markup import escaped, table


def findings_table(translated: TranslatedText) -> str:
    """The findings, a row each; empty without any."""
    rows = [
        (f"{'✕' if finding.severity == 'error' else '!'} {finding.severity}", escaped(finding.message), finding.rule)
        for finding in translated.findings
    ]
    return table("What the checks found in the translation", ("Severity", "Finding", "Rule"), rows) if rows else ""
