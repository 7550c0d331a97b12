"""The adapters that come with rag_mt: for the embedded language model, one for each method and group of directions.

Sentences without any hint are translated with the plain adapter, as if there were no retrieval: the adapter for
phrases, which was trained with hints, has a higher loss to English without them (reports/lora-training.md: 1.751,
plain 1.742).
"""

from __future__ import annotations

from typing import NamedTuple

from rag_mt.base.defaults import DEFAULT_ADAPTER
from rag_mt.base.languages import direction_group
from rag_mt.models.weights import FOLDER
from retrievers.registry import retriever_spec

NONE, PLAIN = "none", "plain"
EMBEDDED = "embedded:"


def method_of(retriever: str) -> str:
    """The kind of adapter for a retriever's prompts: `plain`, `phrase` or `sentence` (which passages use too)."""
    spec = retriever_spec(retriever)
    if not spec.needs_index:
        return PLAIN
    return "phrase" if spec.unit == "phrase" else "sentence"


class Adapters(NamedTuple):
    """The folder of an adapter, and the folder of another one for prompts without hints; None where there is none."""

    adapter: str | None = None
    plain_adapter: str | None = None


def chosen_adapters(adapter: str | None, llm: str, retriever: str, source: str, target: str) -> Adapters:
    """The adapters for a language model, retriever and direction (language codes).

    `adapter` is a folder, which serves for all prompts, `none`, or `auto` for the ones that ship: embedded language
    models have them for directions to or from English.
    """
    if adapter in (None, NONE):
        return Adapters()
    if adapter != DEFAULT_ADAPTER:
        return Adapters(adapter)
    if not llm.startswith(EMBEDDED):
        return Adapters()
    hinted, plain = (_shipped(llm, method, source, target) for method in (method_of(retriever), PLAIN))
    return Adapters(hinted, plain if hinted and plain != hinted else None)


def _shipped(llm: str, method: str, source: str, target: str) -> str | None:
    group = direction_group(source, target).replace("_", "-")
    folder = FOLDER / llm.removeprefix(EMBEDDED) / f"{method}.{group}"
    return str(folder) if folder.is_dir() else None
