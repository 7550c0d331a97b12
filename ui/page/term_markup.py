"""What became of a glossary's terms in a translation as HTML."""

from __future__ import annotations

from rag_mt.base.terms import Usage
from rag_mt.base.types import TranslatedText
from ui.page.markup import escaped, table, tagged


def terms_table(translated: TranslatedText, source: str, target: str) -> str:
    """The terms of the glossary that stand in the source, a row each, with what became of them; empty without any. The
    languages are codes."""
    rows = [
        _row(usage, sentence.source.text, sentence.text, source, target)
        for sentence in translated.sentences
        for usage in sentence.terms
    ]
    columns = ("In the source", "Glossary", "In the translation", "Kept", "Note", "From")
    return table("Terms of the glossary", columns, rows) if rows else ""


def _row(usage: Usage, text: str, translation: str, source: str, target: str) -> tuple[str, ...]:
    term = usage.match.term
    wanted = "<br>".join(
        [*(tagged(t, target) for t in term.allowed), *(f"not {tagged(t, target)}" for t in term.forbidden)]
    )
    uses = "<br>".join(tagged(use.span.of(translation), target) for use in (*usage.allowed, *usage.forbidden))
    kept = "✓ yes" if usage.ok else "✕ no"
    note, origin = escaped(term.note), escaped(str(term.origin))
    return tagged(usage.match.span.of(text), source), wanted, uses, kept, note, origin
