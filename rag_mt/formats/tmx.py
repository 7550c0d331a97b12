"""TMX translation memories, read, filled and written as a stream: one segment per translation unit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO
from xml.sax.saxutils import escape

from lxml import etree

from rag_mt import __version__
from rag_mt.base.languages import base_code
from rag_mt.base.types import Origin, Skips, TranslatedText
from rag_mt.formats.format import Segment, Side, usable
from rag_mt.formats.opening import BOM, open_bytes
from rag_mt.formats.xml import (
    XML_LANG,
    epilog,
    flatten,
    forget,
    insert_after,
    iterate,
    legal,
    local_name,
    read_head,
    rebuild,
    shell,
)

OURS = "rag-mt"
"""The name of the maker of a variant or a memory."""

_CR = {"\r": "&#13;"}
_PARENTS = {"tu": "body", "body": "tmx", "tmx": ""}


class _Tmx:
    """TMX 1.1 to 1.4b. Filling adds the target variant to every unit that has none with a text: a translation that is
    there stays, unless it is an earlier one of ours. The output is UTF-8 with the line ends of the input."""

    name = "tmx"
    suffixes: tuple[str, ...] = (".tmx",)

    def segments(self, file: Path, side: Side, skips: Skips) -> Iterator[Segment]:
        """The plain text of each unit's variant in the side's language, to be indexed with that of its first variant in
        another one; units whose translation into the side's target is kept are counted."""
        kept = 0
        for unit in _units(file):
            variant = _variant(unit, side.language)
            text = _text(variant)
            origin = Origin(str(file), unit.sourceline)
            if not text:
                skips.add(origin, f"no {side.language} side")
            elif side.target and _keeps(unit, variant, side.target):
                kept += 1
            else:
                yield Segment(text, origin, "" if side.target else _other_text(unit, side.language))
        if kept:
            skips.remark(file, f"{kept} units have a translation into {side.target} already, which is kept")

    def translations(self, file: Path, side: Side, skips: Skips) -> Iterator[Segment]:
        """The variants in the target language beside those in the side's own; units that lack one are skips."""
        for source, target in self.pairs(file, side.language, side.target, skips):
            yield Segment(target.text, target.origin, source.text)

    def pairs(self, file: Path, source: str, target: str, skips: Skips) -> Iterator[tuple[Segment, Segment]]:
        """The plain texts of each unit's variants in two languages; units that lack one are skips."""
        for unit in _units(file):
            source_text, target_text = (_text(_variant(unit, code)) for code in (source, target))
            origin = Origin(str(file), unit.sourceline)
            if source_text and target_text:
                yield Segment(source_text, origin), Segment(target_text, origin)
            else:
                skips.add(origin, f"no {target if source_text else source} side")

    def fill(self, file: Path, side: Side, translations: Iterator[TranslatedText], out: BinaryIO) -> None:
        """The memory with source and target variants; header, notes, other languages and translations that are there
        already (one in `en-GB` is one for `en`) are kept."""
        head = read_head(file, "tmx")

        def write(text: str) -> None:
            out.write(head.encode(text, "utf-8"))

        out.write(BOM if head.mark else b"")
        write(head.prolog("UTF-8"))
        with open_bytes(file) as stream:
            for event, element in iterate(file, stream, ("start", "end"), tuple(_PARENTS)):
                if not _in_place(element):
                    continue
                if event == "start":  # what stands before it is complete now, with the text between
                    if element.getparent() is not None:
                        write(_take_content(element.getparent(), element))
                    if local_name(element) != "tu":
                        write(etree.tostring(shell(element), encoding="unicode").removesuffix("/>") + ">")
                elif local_name(element) == "tu":
                    _fill_unit(element, side, translations)
                else:
                    prefix = f"{element.prefix}:" if element.prefix else ""
                    write(f"{_take_content(element)}</{prefix}{local_name(element)}>")
            write(epilog(element))  # the root ended last


TMX = _Tmx()


@dataclass(frozen=True)
class Variant:
    """A text of a new unit in one language; `properties` say what is known of it, by names such as `file`."""

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
        "creationtool": OURS,
        "creationtoolversion": __version__,
        "segtype": segments,
        "o-tmf": OURS,
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
                    file.write(_unit_element(unit), "\n")
            file.write("\n")


def _unit_element(unit: Unit) -> etree._Element:
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


def _units(file: Path) -> Iterator[Any]:
    """The translation units of a memory, each valid until the next one is asked for."""
    read_head(file, "tmx")
    with open_bytes(file) as stream:
        for _, unit in iterate(file, stream, ("end",), ("tu",)):
            if _in_place(unit):
                yield unit
                forget(unit)


def _in_place(element: Any) -> bool:
    parent = element.getparent()
    return (local_name(parent) if parent is not None else "") == _PARENTS[local_name(element)]


def _take_content(parent: Any, before: Any = None) -> str:
    """Remove the content of an element, or what stands `before` a child, and return it as XML."""
    content = [escape(parent.text or "", _CR)]
    parent.text = None
    for child in list(parent) if before is None else list(before.itersiblings(preceding=True))[::-1]:
        if local_name(child) == "body":  # written when it ended
            content.append(escape(child.tail or "", _CR))
        else:
            content.append(etree.tostring(child, encoding="unicode"))
        parent.remove(child)
    return "".join(content)


def _variant(unit: Any, language: str) -> Any:
    """The variant in exactly this language, else the first one in the same base language, else None."""
    return _first(unit, language, base_code(language))


def _translation(unit: Any, source: Any, target: str) -> Any:
    """The variant in exactly the target language or, for a target without a region, in one of its regions."""
    return _first(unit, target, target.lower(), source)


def _first(unit: Any, language: str, base: str, other_than: Any = None) -> Any:
    """The first variant in the language, else the first one with the base code, else None."""
    variants = [v for v in unit if local_name(v) == "tuv" and v is not other_than]
    codes = [_language(v) for v in variants]
    exact = [v for v, code in zip(variants, codes, strict=True) if code == language.lower()]
    near = [v for v, code in zip(variants, codes, strict=True) if base_code(code) == base]
    return next(iter(exact + near), None)


def _text(variant: Any) -> str:
    """The plain text of a variant; empty if it has none or only white space."""
    segment = _segment(variant)
    text = flatten(segment)[0] if segment is not None else ""
    return text if text.strip() else ""


def _other_text(unit: Any, language: str) -> str:
    """The plain text of the unit's first variant with a text in another language, or an empty string."""
    variants = [v for v in unit if local_name(v) == "tuv"]
    others = (_text(v) for v in variants if base_code(_language(v)) != base_code(language))
    return next(filter(None, others), "")


def _language(variant: Any) -> str:
    return str(variant.get(XML_LANG) or variant.get("lang") or "").replace("_", "-").lower()


def _segment(variant: Any) -> Any:
    return next((c for c in variant if local_name(c) == "seg"), None) if variant is not None else None


def _fill_unit(unit: Any, side: Side, translations: Iterator[TranslatedText]) -> None:
    """Give a unit with a source text its target variant, unless it keeps the one that it has."""
    variant = _variant(unit, side.language)
    if not _text(variant) or _keeps(unit, variant, side.target):
        return
    translated, old = next(translations), _translation(unit, variant, side.target)
    if not usable(translated):
        return
    segment = deepcopy(_segment(variant))
    text, codes = flatten(segment)
    rebuild(segment, translated.text, text, codes)
    key = XML_LANG if variant.get(XML_LANG) else "lang"
    new = etree.Element(variant.tag, {key: side.target, "creationtool": OURS, "creationid": OURS})
    new.text = variant.text if not (variant.text or "").strip() else None
    new.append(segment)
    segment.tail = variant[-1].tail
    if old is None:
        insert_after(variant, new)
    else:
        new.set(key, old.get(XML_LANG) or old.get("lang"))
        new.tail = old.tail
        unit.replace(old, new)


def _keeps(unit: Any, source: Any, target: str) -> bool:
    """Whether the unit has a translation into the target language that is none of ours."""
    variant = _translation(unit, source, target)
    return bool(_text(variant)) and variant.get("creationtool") != OURS
