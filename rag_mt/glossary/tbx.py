"""Glossaries in TBX: basic and core, version 2 (`martif`) and version 3 (`tbx`, data categories as attributes or as
elements of their own)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rag_mt.base.errors import UserError
from rag_mt.base.types import Origin, Skips
from rag_mt.formats.opening import open_bytes
from rag_mt.formats.xml import XML_LANG, flatten, forget, iterate, local_name, read_head
from rag_mt.glossary.entries import Entry, clean, wrong_with
from rag_mt.glossary.languages import chosen, language_named

_CONCEPTS = ("termEntry", "conceptEntry")
_LANGUAGES = frozenset({"langSet", "langSec"})
_TERMS = frozenset({"tig", "ntig", "termSec"})
_NOTES = frozenset({"note", "definition"})
_FORBIDDEN = frozenset(
    {
        "deprecatedterm-admn-sts",
        "supersededterm-admn-sts",
        "deprecatedterm",
        "supersededterm",
        "deprecated",
        "superseded",
        "obsolete",
        "forbidden",
    }
)
"""Values of a term's data categories, in small letters, that forbid it."""


def tbx_entries(path: Path, source: str, target: str, skips: Skips) -> Iterator[Entry]:
    """The concepts that have terms in both languages; all others go to `skips`. Raises UserError for what is no TBX and
    for a file none of whose concepts has both."""
    read_head(path, "martif", "tbx")
    seen: dict[str, None] = {}
    both = False
    with open_bytes(path) as stream:
        for _, concept in iterate(path, stream, ("end",), _CONCEPTS):
            sections = {n: _language(s) for n, s in enumerate(concept) if local_name(s) in _LANGUAGES}
            seen |= dict.fromkeys(filter(None, sections.values()))
            sides = [chosen(code, sections) for code in (source, target)]
            origin = Origin(str(path), concept.sourceline)
            if not all(sides):
                skips.add(origin, f"no {target if sides[0] else source} side")
            else:
                both = True
                entry = _entry(concept, sides[0], sides[1], origin)
                if reason := wrong_with(entry):
                    skips.add(origin, reason)
                else:
                    yield entry
            forget(concept)
    if not both:
        known = ", ".join(list(seen)[:20]) or "none"
        raise UserError(
            f"{path} has no concept in both {source} and {target}: its languages are {known}; give a file that has both"
        )


def _entry(concept: Any, sources: list[int], targets: list[int], origin: Origin) -> Entry:
    """What a concept says in the sections of two languages. A source term that is forbidden may stand in a text
    nevertheless, so it is one like any other."""
    source_terms = [term for n in sources for term, _ in _terms(concept[n])]
    target_terms = [term for n in targets for term in _terms(concept[n])]
    others = [s for n, s in enumerate(concept) if local_name(s) in _LANGUAGES and n not in (*sources, *targets)]
    notes = dict.fromkeys(filter(None, _notes(concept, others)))
    allowed, forbidden = (
        [term for term, is_forbidden in target_terms if is_forbidden is kind] for kind in (False, True)
    )
    return Entry(source_terms, allowed, forbidden, origin, "; ".join(notes))


def _terms(section: Any) -> Iterator[tuple[str, bool]]:
    """The terms of a language in a concept, and whether each is forbidden."""
    for group in section:
        if local_name(group) in _TERMS:
            inner = list(group.iter("{*}*"))
            values = {_text(e).casefold() for e in inner if local_name(e) not in ("term", *_NOTES) and not len(e)}
            terms = [_text(e) for e in inner if local_name(e) == "term"]
            yield from ((term, not values.isdisjoint(_FORBIDDEN)) for term in terms[:1] if term)


def _notes(element: Any, left_out: list[Any]) -> Iterator[str]:
    """The notes and definitions in an element, but for the parts that are left out."""
    for child in element:
        if child in left_out:
            continue
        if local_name(child) in _NOTES or child.get("type") == "definition":
            yield _text(child)
        else:
            yield from _notes(child, left_out)


def _language(section: Any) -> str:
    name = str(section.get(XML_LANG) or section.get("lang") or "")
    return language_named(name.replace("_", "-"))


def _text(element: Any) -> str:
    return clean(flatten(element)[0])
