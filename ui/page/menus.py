"""What the page offers to choose from: languages by their native names, systems, the user's indexes, example texts."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache

from rag_mt.base.defaults import DEFAULT_RETRIEVER
from rag_mt.base.files import EXAMPLES
from rag_mt.base.languages import Language, language
from retrievers.registry import RETRIEVERS
from ui.page.translating import AUTO
from ui.server.service import Service

ROW = "row.tsv"
"""The texts of the examples row: a line per subject and a column per language, all lines of two short sentences whose
phrases the sample index has."""
SUBJECTS = {
    "news": "News",
    "travel": "Travel",
    "health": "Health",
    "economy": "Economy",
    "culture": "Culture",
    "help": "Product help",
}

Entries = list[tuple[str, str]]
"""What is shown, and the value behind it."""

DETECT: tuple[str, str] = ("Auto-detect", AUTO)
SAMPLE: tuple[str, str] = ("Default text", "")
FITTING: tuple[str, str] = ("As the text was indexed for", "")
NO_GLOSSARY: tuple[str, str] = ("None", "")
MIN_QUALITY = [("None", ""), ("Find what is below good", "good"), ("Find what is poor", "fair")]
FORMALITY = [("As it comes", ""), ("Formal", "more"), ("Informal", "less")]

RETRIEVER_NAMES = {
    "ccpr": "Phrases in context (ccpr)",
    "sentence": "Nearest sentence (sentence)",
    "memory": "Similar sentences, where they help (memory)",
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


def source_entries(service: Service, detected: str = "") -> Entries:
    """Detection first, with the language that was detected if there is one, then all source languages."""
    first = (f"Detected: {language(detected).name}", AUTO) if detected else DETECT
    return [first, *_entries([known.code for known in service.offer.languages])]


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


def retriever_entries() -> Entries:
    """The retrieval systems, the default first."""
    names = sorted(RETRIEVERS, key=lambda name: name != DEFAULT_RETRIEVER)
    return [(RETRIEVER_NAMES.get(name, name), name) for name in names]


def index_entries(service: Service, owner: str, target: str) -> Entries:
    """The default text and the owner's indexes in the target language."""
    return [SAMPLE] + [
        (f"{index.name} ({index.retriever}, {index.sentences} sentences)", index.id)
        for index in service.indexes.of(owner)
        if index.language == target
    ]


def glossary_entries(service: Service, owner: str, target: str) -> Entries:
    """No glossary, and the owner's glossaries into the target language."""
    return [NO_GLOSSARY] + [
        (f"{glossary.name} (from {language(glossary.source).native}, {len(glossary.terms)} terms)", glossary.id)
        for glossary in service.glossaries.of(owner)
        if glossary.target == target
    ]


def _entries(codes: list[str]) -> Entries:
    languages = sorted((language(code) for code in codes), key=lambda known: known.native.casefold())
    return [(shown_language(known), known.code) for known in languages]


@cache
def examples() -> Mapping[str, Mapping[str, str]]:
    """The texts of the examples row by subject, in the order of `SUBJECTS`, and language."""
    with (EXAMPLES / ROW).open(encoding="utf-8", newline="") as file:
        rows = {row.pop("subject"): row for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)}
    return {subject: rows[subject] for subject in SUBJECTS}


def example(subject: str, code: str) -> str:
    """The subject's text in a language that `example_languages` has."""
    return examples()[subject][code]


def example_languages() -> set[str]:
    """The codes of the languages that every subject has a text in."""
    return set.intersection(*(set(texts) for texts in examples().values()))
