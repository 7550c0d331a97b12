"""The adapters that come with rag_mt: for the embedded language model, one for each method and group of directions.

What a retriever finds no hint for is translated with the plain adapter, as if there were no retrieval: that of phrases,
which learnt from hints too, has a higher loss to English without any (reports/lora-training.md; 1.751, plain 1.742)."""

from __future__ import annotations

from typing import NamedTuple

from rag_mt.base.defaults import DEFAULT_ADAPTER
from rag_mt.base.languages import direction_group
from rag_mt.models.weights import FOLDER
from retrievers.registry import retriever_spec

NONE, PLAIN = "none", "plain"
EMBEDDED = "embedded:"


def method_of(retriever: str) -> str:
    """What the prompts of a retriever show: `plain`, `phrase` or `sentence` (passages are shown as sentences are)."""
    spec = retriever_spec(retriever)
    if not spec.needs_index:
        return PLAIN
    return "phrase" if spec.unit == "phrase" else "sentence"


class Adapters(NamedTuple):
    """The folder of an adapter, and that of the one for prompts without hints if it is another; None for none."""

    adapter: str | None = None
    plain_adapter: str | None = None


def chosen_adapters(adapter: str | None, llm: str, retriever: str, source: str, target: str) -> Adapters:
    """The adapters that `adapter` names for a language model, retriever and direction (language codes); `auto` are the
    shipped ones, which directions to or from English of embedded models have. A folder is for all prompts."""
    if adapter in (None, NONE):
        return Adapters()
    if adapter != DEFAULT_ADAPTER:
        return Adapters(adapter)
    if not llm.startswith(EMBEDDED):
        return Adapters()
    own, plain = (_shipped(llm, method, source, target) for method in (method_of(retriever), PLAIN))
    return Adapters(own, plain if own and plain != own else None)


def _shipped(llm: str, method: str, source: str, target: str) -> str | None:
    group = direction_group(source, target).replace("_", "-")
    folder = FOLDER / llm.removeprefix(EMBEDDED) / f"{method}.{group}"
    return str(folder) if folder.is_dir() else None
