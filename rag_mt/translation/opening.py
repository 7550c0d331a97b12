"""The parts of a translator, by what is said of them: retriever, adapter, glossary, encoder, estimator."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rag_mt.base.defaults import DEFAULT_ADAPTER, DEFAULT_ENCODER, WITHOUT_INDEX
from rag_mt.base.errors import AwayError, UserError
from rag_mt.base.languages import direction_group
from rag_mt.base.only import Only
from rag_mt.base.types import Encoder, Retriever, Skips
from rag_mt.glossary.glossary import Glossary
from rag_mt.models.offline.embedded import PREFIX
from rag_mt.models.weights import FOLDER, tell_if_left_out
from rag_mt.translation.index_adapters import adapter_beside
from retrievers.no_hints import NoHints

if TYPE_CHECKING:  # what searches is imported when something is searched
    from rag_mt.quality.estimator import Estimator
    from rag_mt.translation.index import Index
    from retrievers.registry import EncoderOpener

log = logging.getLogger("rag_mt")

NONE = "none"
"""No adapter."""
CONTEXT = "-context"
"""What the name of the shipped adapter for prompts with context has behind that of the other one."""


def opened_retriever(
    source: str,
    target: str,
    name: str | None,
    index: str | Path | Index | None,
    encoder: str | None,
    device: str,
    dtype: str,
    show: bool,
    encoders: EncoderOpener | None,
    only: Only | None = None,
) -> Retriever:
    """The retriever of that name, or that of the index, over the index, or `only` some files of it, or the sample
    index."""
    if only and not index:
        raise UserError(f"only files {only} are to be looked at, but no index is given: give one (--index DIR)")
    if not index and name in (None, WITHOUT_INDEX):
        if encoder is not None:
            raise UserError(f"encoder {encoder} is given, but nothing that searches: name a retriever or an index")
        if name is None:
            log.info(
                'translating without hints: retriever="ccpr" (--retriever ccpr) shows those of the sample index, '
                "and index (--index DIR) those of your own text"
            )
        return NoHints()
    from rag_mt.translation.index import Index
    from retrievers.calibration import default_index
    from retrievers.index.manifest import read_manifest
    from retrievers.registry import encoder_for, open_retriever, retriever_spec

    folder = index_folder(index)
    if folder and name is not None and not retriever_spec(name).needs_index:
        raise UserError(f"the retriever {name} searches no index, but {folder} is given: leave one of them out")
    manifest = read_manifest(folder) if folder else None
    if isinstance(index, Index) and name in (None, index.retriever) and encoder in (None, index.encoder):
        return index.open_retriever(source, target, only)
    if manifest and name in (None, manifest.retriever):
        name, encoder = manifest.retriever, encoder or manifest.encoder
    assert name is not None  # without an index there is a name
    opened = (encoders or encoder_for)(name, encoder, device, dtype)
    folder = folder or default_index(name, target, opened, show=show)
    languages = {"source_language": source, "target_language": target}
    return open_retriever(name, folder, opened, **languages, manifest=manifest, only=only)


def opened_glossary(glossary: Glossary | Sequence[str | Path], source: str, target: str) -> Glossary:
    """The glossary in files, or the open one; raises UserError if it is of other languages."""
    from rag_mt.glossary.reading import read_glossary

    if isinstance(glossary, str | Path):
        glossary = [glossary]
    if not isinstance(glossary, Glossary):
        return read_glossary(glossary, source, target, Skips())
    if (glossary.source, glossary.target) != (source, target):
        raise UserError(
            f"the glossary is from {glossary.source} into {glossary.target}: give one from {source} into {target}"
        )
    return glossary


def aligning_encoder(encoders: EncoderOpener | None, device: str, dtype: str) -> Encoder:
    """The encoder that aligns words."""
    from retrievers.registry import encoder_for

    return (encoders or encoder_for)("sentence", DEFAULT_ENCODER, device, dtype)


def estimator_for(device: str, dtype: str) -> Estimator:
    """What estimates the quality of translations."""
    from rag_mt.quality.estimator import shared_estimator

    return shared_estimator(device, dtype)


def index_folder(index: str | Path | Index | None) -> Path | None:
    """The folder of an index that is named or open."""
    return None if not index else Path(index) if isinstance(index, str | Path) else index.folder


def adapter_by_index(
    adapter: str | None, llm: str, source: str, target: str, index: Path | None, plain: bool, context: bool
) -> str | None:
    """`chosen_adapter`; with `plain` an index that is away has none, which is logged."""
    try:
        return chosen_adapter(adapter, llm, source, target, index, context)
    except AwayError:
        if not plain:
            raise
        log.warning("whether the index has an adapter of its own is not known: it is not used, also when it answers")
        return chosen_adapter(adapter, llm, source, target, None, context)


def chosen_adapter(
    adapter: str | None, llm: str, source: str, target: str, index: Path | None = None, context: bool = False
) -> str | None:
    """The folder of the adapter for a language model and direction (language codes), None for none.

    `adapter` is a folder, `none`, or `auto`: for the one that was tuned on the text of the index in the folder `index`
    (see `rag_mt.translation.index_adapters`), or else for the one that ships, which an embedded language model has for
    directions to or from English, and another one for prompts with `context`.
    """
    if adapter in (None, NONE):
        return None
    if adapter != DEFAULT_ADAPTER:
        return adapter
    if index and (beside := adapter_beside(index, llm, source)):
        return beside
    if not llm.startswith(PREFIX) or direction_group(source, target) == "other":
        return None
    tell_if_left_out(llm)
    name = llm.removeprefix(PREFIX)
    folder = FOLDER / (f"{name}{CONTEXT}" if context and context_changes_adapter(llm) else name)
    return str(folder) if folder.is_dir() else None


def context_changes_adapter(llm: str) -> bool:
    """Whether a language model has another adapter for prompts with context among those that ship."""
    return llm.startswith(PREFIX) and (FOLDER / f"{llm.removeprefix(PREFIX)}{CONTEXT}").is_dir()
