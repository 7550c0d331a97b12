"""The adapters that come with rag_mt: for the embedded language model, one for each method and group of directions."""

from __future__ import annotations

from pathlib import Path

from rag_mt.defaults import DEFAULT_ADAPTER
from rag_mt.languages import direction_group
from retrievers.registry import retriever_spec

FOLDER = Path(__file__).parents[1] / "finetune" / "shipped"
NONE = "none"
EMBEDDED = "embedded:"


def method_of(retriever: str) -> str:
    """What the prompts of a retriever show: `plain`, `phrase` or `sentence` (passages are shown as sentences are)."""
    spec = retriever_spec(retriever)
    if not spec.needs_index:
        return "plain"
    return "phrase" if spec.unit == "phrase" else "sentence"


def chosen_adapter(adapter: str | None, llm: str, retriever: str, source: str, target: str) -> str | None:
    """The folder of the adapter that `adapter` names for a language model, retriever and direction (language codes),
    None for none; `auto` is the shipped one, which directions to or from English of embedded models have."""
    if adapter in (None, NONE):
        return None
    if adapter != DEFAULT_ADAPTER:
        return adapter
    if not llm.startswith(EMBEDDED):
        return None
    group = direction_group(source, target).replace("_", "-")
    folder = FOLDER / llm.removeprefix(EMBEDDED) / f"{method_of(retriever)}.{group}"
    return str(folder) if folder.is_dir() else None
