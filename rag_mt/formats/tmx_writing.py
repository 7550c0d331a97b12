"""A new translation memory, TMX 1.4, written unit by unit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO

from lxml import etree

from rag_mt import __version__
from rag_mt.formats.xml import XML_LANG, legal


@dataclass(frozen=True)
class Variant:
    """A text of a unit in one language; `properties` say what is known of it, by names such as `file`."""

    language: str
    text: str
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Unit:
    """Texts that translate each other; `created` is a date as TMX writes it, or empty."""

    variants: tuple[Variant, ...]
    properties: Mapping[str, str] = field(default_factory=dict)
    created: str = ""


def write_memory(out: BinaryIO, units: Iterable[Unit], source: str, segments: str = "sentence") -> None:
    """Write the units. `source` is their source language, or `*all*`; `segments` is what a segment is: `sentence`,
    `paragraph`, ... Characters that XML cannot hold become U+FFFD."""
    header = {
        "creationtool": "rag-mt",
        "creationtoolversion": __version__,
        "segtype": segments,
        "o-tmf": "rag-mt",
        "adminlang": "en",
        "srclang": source,
        "datatype": "plaintext",
    }
    with etree.xmlfile(out, encoding="utf-8") as file:
        file.write_declaration()
        with file.element("tmx", version="1.4"):
            file.write("\n", etree.Element("header", header), "\n")
            with file.element("body"):
                file.write("\n")
                for unit in units:
                    file.write(_element(unit), "\n")
            file.write("\n")


def _element(unit: Unit) -> etree._Element:
    element = etree.Element("tu", {"creationdate": unit.created} if unit.created else {})
    _add_properties(element, unit.properties)
    for variant in unit.variants:
        child = etree.SubElement(element, "tuv", {XML_LANG: variant.language})
        _add_properties(child, variant.properties)
        etree.SubElement(child, "seg").text = legal(variant.text)
    return element


def _add_properties(parent: etree._Element, properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        etree.SubElement(parent, "prop", {"type": f"x-{name}"}).text = legal(value)
