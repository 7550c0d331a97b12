"""What the lists of the page offer: languages by their native names, systems, the user's indexes."""

from __future__ import annotations

from rag_mt.base.languages import Language, language
from retrievers.registry import retriever_spec
from ui.page.translating import AUTO
from ui.server.service import Service

Entries = list[tuple[str, str]]
"""What is shown, and the value behind it."""

DETECT: tuple[str, str] = ("Auto-detect", AUTO)
SAMPLE: tuple[str, str] = ("Default text", "")
FITTING: tuple[str, str] = ("As the text was indexed for", "")

RETRIEVER_NAMES = {
    "ccpr": "Phrases in context (ccpr)",
    "sentence": "Nearest sentence (sentence)",
    "phrases": "Phrases, untrained (phrases)",
    "xpr": "Phrases by their sentences (xpr)",
    "passage": "Passages (passage)",
    "bm25": "Names and numbers in common (bm25)",
    "hybrid": "Passages, names and numbers (hybrid)",
    "none": "None: plain translation (none)",
}
ADAPTER_NAMES = {"auto": "The one made for the direction (auto)", "none": "None"}


def shown_language(known: Language) -> str:
    """A language by the name that its speakers give it, with the English one where it differs."""
    return known.native if known.native == known.name else f"{known.native} · {known.name}"


def source_entries(service: Service) -> Entries:
    """Detection first, then all source languages."""
    return [DETECT, *_entries([known.code for known in service.offer.languages])]


def target_entries(service: Service, source: str) -> Entries:
    """The languages that the source can be translated into; all of them while it is not known."""
    codes = [known.code for known in service.offer.languages] if source == AUTO else service.offer.targets_of(source)
    return _entries(list(codes))


def fitting_target(service: Service, source: str, wanted: str) -> str:
    """`wanted` where the source can be translated into it, else English, else the first that it can."""
    codes = [code for _, code in target_entries(service, source)]
    return wanted if wanted in codes else "en" if "en" in codes else codes[0]


def first_target(service: Service) -> str:
    """The target language of a page that is opened: English where it is offered."""
    return fitting_target(service, AUTO, "en")


def retriever_entries(service: Service) -> Entries:
    """The retrieval systems, after the one that fits the text that is searched."""
    return [FITTING, *((RETRIEVER_NAMES.get(name, name), name) for name in service.retrievers)]


def index_retriever_entries(service: Service) -> Entries:
    """The retrieval systems that an index can be built for, the default first."""
    return [entry for entry in retriever_entries(service) if entry[1] and retriever_spec(entry[1]).needs_index]


def adapter_entries(service: Service) -> Entries:
    """The adapters of the language models, the default first."""
    return [(ADAPTER_NAMES.get(name, name), name) for name in service.adapters]


def index_entries(service: Service, owner: str, target: str) -> Entries:
    """The default text and the owner's indexes in the target language."""
    indexes = [index for index in service.indexes.of(owner) if index.language == target]
    return [
        SAMPLE,
        *((f"{index.name} ({index.retriever}, {index.sentences} sentences)", index.id) for index in indexes),
    ]


def own_index_entries(service: Service, owner: str) -> Entries:
    """All of the owner's indexes."""
    return [(f"{index.name} ({language(index.language).native})", index.id) for index in service.indexes.of(owner)]


def _entries(codes: list[str]) -> Entries:
    languages = sorted((language(code) for code in codes), key=lambda known: known.native.casefold())
    return [(shown_language(known), known.code) for known in languages]
