"""What a memory did for a text as HTML: what changed since the draft, and what it has for each sentence."""

from __future__ import annotations

from rag_mt.base.types import Recalled, TranslatedText, Translation
from ui.page.markup import comparison, escaped, table, tagged

TITLES = ("Draft: no hints", "With what the memory has")
NOTHING = "nothing"


def recalls(translated: TranslatedText) -> list[tuple[Translation, Recalled]]:
    """The sentences that a memory was asked about, with its answers."""
    return [(t, t.recalled) for t in translated.sentences if t.recalled is not None]


def memory_part(translated: TranslatedText, source: str, target: str) -> str:
    """The drafts beside the translation, and a table of what was recalled for each sentence; empty without a memory.
    The languages are codes."""
    sentences = recalls(translated)
    if not sentences:
        return ""
    texts = (" ".join(text) for text in zip(*((t.draft, t.text) for t, _ in sentences), strict=True))
    columns = ("Sentence", "The memory has", "Shown to the model", "Other translations")
    rows = [
        (
            tagged(translation.source.text, source),
            _hits(recalled, target) or NOTHING,
            "✓ yes" if recalled.shown else "○ no: the draft is the translation",
            "<br>".join(tagged(text, target) for text in translation.alternatives),
        )
        for translation, recalled in sentences
    ]
    return comparison(next(texts), next(texts), TITLES, target) + table(
        "What the memory has for each sentence", columns, rows
    )


def _hits(recalled: Recalled, code: str) -> str:
    """The hits with their similarity and origin, one on a line."""
    return "<br>".join(
        f"{hint.hit.score:.2f} {tagged(hint.phrase, code)} <small>{escaped(str(hint.hit.sentence.source))}</small>"
        for hint in recalled.hints
    )
