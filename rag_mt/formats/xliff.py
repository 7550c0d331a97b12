"""XLIFF 1.2 and 2.x: one segment per `trans-unit` or `segment` that is still to be translated."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from lxml import etree

from rag_mt.base.errors import UserError
from rag_mt.base.languages import base_code
from rag_mt.base.quality import is_faulty, is_sure
from rag_mt.base.types import Origin, Skips, TranslatedText
from rag_mt.formats.format import Segment, Side, usable
from rag_mt.formats.xliff_notes import renew
from rag_mt.formats.xml import XML_LANG, flatten, has_inner, insert_after, parse, read_head, rebuild, write

UNTRANSLATED = frozenset({"new", "needs-translation"})
"""States of XLIFF 1.2 in which the text of a target is a copy of the source or a leftover."""


class _Xliff:
    """XLIFF 1.0 to 1.2 and 2.0 to 2.2, read whole (at most 512 MB). Units with a translation, approved ones and those
    with `translate="no"` are kept as they are. Filled targets are marked for review: `needs-review-translation` in 1.2,
    unless their quality is estimated as high enough; `translated` in 2.x, with the sub-state `rag-mt:needs-review`
    where something is wrong, or `initial` where the places of inline codes were guessed. What the checks found in them
    is told by notes, which take the place of earlier ones."""

    name = "xliff"
    suffixes: tuple[str, ...] = (".xlf", ".xliff")

    def segments(self, file: Path, side: Side, skips: Skips) -> Iterator[Segment]:
        """The sources to translate, or the finished targets where the side's language is the target language. Raises
        UserError if it is neither, or if the side's target is not the document's."""
        kept = 0
        read_head(file, "xliff")
        for scope in _scopes(file, parse(file).getroot(), side):
            finished = scope.is_target(file, side.language)
            for unit in scope.units():
                for part in unit.targets if finished else unit.parts:
                    text = flatten(part)[0]
                    if text.strip() and unit.pending != finished:
                        original = flatten(unit.source)[0] if finished else ""
                        yield Segment(text, Origin(str(file), part.sourceline), original)
                    else:
                        kept += bool(text.strip())
        if kept:
            reason = "without a finished translation are left out" if finished else "that need no translation are kept"
            skips.remark(file, f"{kept} units {reason}")

    def translations(self, file: Path, side: Side, skips: Skips) -> Iterator[Segment]:
        """The targets that have a text, in whatever state, with the text of their codes; others are counted."""
        empty = 0
        read_head(file, "xliff")
        for scope in _scopes(file, parse(file).getroot(), side):
            for unit in scope.units():
                source = flatten(unit.source)[0]
                text = "" if unit.target is None else flatten(unit.target)[0]
                if text.strip() and source.strip():
                    yield Segment(text, Origin(str(file), unit.target.sourceline), source)
                else:
                    empty += bool(source.strip())
        if empty:
            skips.remark(file, f"{empty} units without a translation are left out")

    def fill(self, file: Path, side: Side, translations: Iterator[TranslatedText], out: BinaryIO) -> None:
        """The document with the empty targets filled and the target language set."""
        head = read_head(file, "xliff")
        tree = parse(file)
        for scope in _scopes(file, tree.getroot(), side):
            if not scope.element.get(scope.keys[1]):
                scope.element.set(scope.keys[1], side.target)
            for unit in scope.units():
                parts = [flatten(part) for part in unit.parts] if unit.pending else []
                translated = [next(translations) if text.strip() else TranslatedText(text) for text, _ in parts]
                if any(text.strip() for text, _ in parts) and all(map(usable, translated)):
                    elements = unit.ready_parts(side.target)
                    for element, (text, codes), translation in zip(elements, parts, translated, strict=True):
                        rebuild(element, translation.text, text, codes)
                    guessed = any(has_inner(*part) for part in parts)
                    unit.mark(guessed, all(map(is_sure, translated)), any(map(is_faulty, translated)))
                    found = [finding for translation in translated for finding in translation.findings]
                    renew(unit.holder, _child(unit.holder, "target"), found)
        write(tree, head, out)


@dataclass(frozen=True)
class _Unit:
    """A `trans-unit` (XLIFF 1) or `segment` (XLIFF 2)."""

    holder: Any
    source: Any
    target: Any
    major: str

    @property
    def pending(self) -> bool:
        """Whether it is to be translated and has no translation yet."""
        marks = (e.get("translate") for e in (self.holder, *self.holder.iterancestors()))
        if self.holder.get("approved") == "yes" or next(filter(None, marks), "yes") == "no":
            return False
        if self.target is None or not flatten(self.target)[0].strip():
            return True
        return self.major == "1" and self.target.get("state") in UNTRANSLATED

    @property
    def parts(self) -> list[Any]:
        """The elements whose texts are translated each by itself: the segments that `seg-source` is cut into, else the
        source."""
        return _segments(_child(self.holder, "seg-source")) or [self.source]

    @property
    def targets(self) -> list[Any]:
        return [] if self.target is None else [self.target]

    def ready_parts(self, language: str) -> list[Any]:
        """An element of the target for each of `parts`; segments get the `mrk` that they have in `seg-source`."""
        target, cut = self.target, _child(self.holder, "seg-source")
        if target is None:
            target = etree.Element(_tag(self.source, "target"))
            if self.source.get(XML_LANG):
                target.set(XML_LANG, language)
            insert_after(self.source if cut is None else cut, target)
        if not _segments(cut):
            return [target]
        target.text = cut.text
        target[:] = [deepcopy(child) for child in cut]
        return _segments(target)

    def mark(self, guessed: bool, sure: bool, faulty: bool) -> None:
        """Say whether people should look at the translation: unless it is `sure` in XLIFF 1, where it is `faulty` in
        XLIFF 2, and in both where the places of codes were `guessed`."""
        if self.major == "1":
            target = _child(self.holder, "target")
            target.set("state", "translated" if sure and not guessed else "needs-review-translation")
            target.set("state-qualifier", "mt-suggestion")
        else:
            self.holder.set("state", "initial" if guessed else "translated")
            why = "placed-codes" if guessed else "needs-review" if faulty else ""
            self.holder.attrib.pop("subState", None)
            if why:
                self.holder.set("subState", f"rag-mt:{why}")


@dataclass(frozen=True)
class _Scope:
    """The element that names the languages: each `file` in XLIFF 1, the root in XLIFF 2."""

    element: Any
    major: str

    @property
    def keys(self) -> tuple[str, str]:
        """The names of the attributes with the source and the target language."""
        return ("source-language", "target-language") if self.major == "1" else ("srcLang", "trgLang")

    def units(self) -> Iterator[_Unit]:
        holder = "trans-unit" if self.major == "1" else "segment"
        for element in self.element.iter(_tag(self.element, holder)):
            source = _child(element, "source")
            if source is not None:
                yield _Unit(element, source, _child(element, "target"), self.major)

    def is_target(self, file: Path, language: str) -> bool:
        """Whether `language` is the target language of the texts; false if it is their source language."""
        source, target = (self.element.get(k) or "" for k in self.keys)
        if language.lower() in (source.lower(), target.lower()):
            return language.lower() != source.lower()
        if base_code(language) == base_code(source):
            return False
        if target and base_code(language) == base_code(target):
            return True
        raise UserError(
            f"{file}: its {self.keys[0]} is {source or 'missing'!r}, not {language!r}: give --src {source or 'LANG'} "
            "or another file"
        )

    def check(self, file: Path, side: Side) -> None:
        """Raise UserError unless the texts can be translated from the side's language into its target."""
        key, source, target = self.keys[1], self.element.get(self.keys[0]), self.element.get(self.keys[1])
        if self.is_target(file, side.language):
            raise UserError(
                f"{file}: {side.language!r} is its {key}, but its sources are {source!r}: give --src {source}"
            )
        if target and base_code(target) != base_code(side.target):
            raise UserError(
                f"{file}: its {key} is {target!r}, not {side.target!r}: give --tgt {target} or another file"
            )


def _scopes(file: Path, root: Any, side: Side) -> list[_Scope]:
    """The parts of a document with their own languages, checked if the side is to be translated."""
    version = root.get("version") or "1.2"
    if version[0] not in "12":
        raise UserError(
            f"{file}: XLIFF version {version!r} is not known: expected 1.2 or 2.0, export it as one of them"
        )
    elements = [root] if version[0] == "2" else root.iter(_tag(root, "file"))
    scopes = [_Scope(element, version[0]) for element in elements]
    for scope in scopes if side.target else ():
        scope.check(file, side)
    return scopes


def _segments(cut: Any) -> list[Any]:
    """The `mrk` elements that mark segments in a `seg-source` or its copy; none if `cut` is None."""
    return [] if cut is None else [m for m in cut.iter(_tag(cut, "mrk")) if m.get("mtype") == "seg"]


def _tag(element: Any, name: str) -> str:
    """`name` in the namespace of `element`."""
    namespace = etree.QName(element).namespace
    return f"{{{namespace}}}{name}" if namespace else name


def _child(element: Any, name: str) -> Any:
    return element.find(_tag(element, name))


XLIFF = _Xliff()
