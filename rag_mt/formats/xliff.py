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
from rag_mt.base.types import Origin, Skips, TranslatedText
from rag_mt.formats.format import Segment, Side, usable
from rag_mt.formats.inline import flatten, has_inner, rebuild
from rag_mt.formats.xml import XML_LANG, insert_after, parse, read_head, write

UNTRANSLATED = frozenset({"new", "needs-translation"})
"""States of XLIFF 1.2 in which the text of a target is a copy of the source or a leftover."""


@dataclass(frozen=True)
class Xliff:
    """XLIFF 1.0 to 1.2 and 2.0 to 2.2, read whole (at most 512 MB).

    Units with a translation, approved ones and those with `translate="no"` are kept as they are. Filled targets are
    marked for review: `needs-review-translation` in 1.2; in 2.x `translated`, or `initial` where the places of inline
    codes were guessed.
    """

    name: str = "xliff"
    suffixes: tuple[str, ...] = (".xlf", ".xliff")

    def segments(self, file: Path, side: Side, skips: Skips) -> Iterator[Segment]:
        """The sources to translate, or the finished targets where the side's language is the target language.

        Raises UserError if it is neither.
        """
        read_head(file, "xliff")
        kept = 0
        for scope in _scopes(file, parse(file).getroot()):
            targets = scope.is_target(file, side.language)
            for unit in scope.units():
                parts = ([unit.target] if unit.target is not None else []) if targets else unit.parts
                for part in parts:
                    text = flatten(part)[0]
                    if text.strip() and unit.pending != targets:
                        yield Segment(text, Origin(str(file), part.sourceline))
                    else:
                        kept += bool(text.strip())
        if kept:
            reason = "without a finished translation are left out" if targets else "that need no translation are kept"
            skips.remark(file, f"{kept} units {reason}")

    def check(self, file: Path, side: Side, target: str) -> None:
        """Raise UserError if `fill` would, for the languages that the document names."""
        read_head(file, "xliff")
        for scope in _scopes(file, parse(file).getroot()):
            scope.check(file, side.language, target)

    def fill(self, file: Path, side: Side, target: str, translations: Iterator[TranslatedText], out: BinaryIO) -> None:
        """The document with the empty targets filled and the target language set.

        Raises UserError if the document is for another target language or `side` is its target language.
        """
        head = read_head(file, "xliff")
        tree = parse(file)
        for scope in _scopes(file, tree.getroot()):
            scope.claim(file, side.language, target)
            for unit in scope.units():
                parts = [flatten(part) for part in unit.parts] if unit.pending else []
                translated = [next(translations) if text.strip() else TranslatedText(text) for text, _ in parts]
                if any(text.strip() for text, _ in parts) and all(map(usable, translated)):
                    places = unit.ready_places(target)
                    for place, (text, codes), made in zip(places, parts, translated, strict=True):
                        rebuild(place, made.text, text, codes)
                    unit.mark(guessed=any(has_inner(*part) for part in parts))
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
        if self.holder.get("approved") == "yes" or not self._translatable():
            return False
        if self.target is None or not flatten(self.target)[0].strip():
            return True
        return self.major == "1" and self.target.get("state") in UNTRANSLATED

    def _translatable(self) -> bool:
        marks = (e.get("translate") for e in (self.holder, *self.holder.iterancestors()))
        return next((m for m in marks if m), "yes") != "no"

    @property
    def parts(self) -> list[Any]:
        """The elements whose texts are translated each by itself: the segments that `seg-source` is cut into, else the
        source."""
        return _segments(_child(self.holder, "seg-source")) or [self.source]

    def ready_places(self, language: str) -> list[Any]:
        """An element of the target for each of `parts`; segments get the `mrk` that they have in `seg-source`."""
        target, cut = self._ready_target(language), _child(self.holder, "seg-source")
        if not _segments(cut):
            return [target]
        target.text = cut.text
        target[:] = [deepcopy(child) for child in cut]
        return _segments(target)

    def _ready_target(self, language: str) -> Any:
        """The target element, made if it is not there."""
        if self.target is not None:
            return self.target
        new = etree.Element(_tag(self.source, "target"))
        if self.source.get(XML_LANG):
            new.set(XML_LANG, language)
        after = _child(self.holder, "seg-source")
        insert_after(self.source if after is None else after, new)
        return new

    def mark(self, guessed: bool) -> None:
        """Say that people should look at the translation."""
        if self.major == "1":
            target = _child(self.holder, "target")
            target.set("state", "needs-review-translation")
            target.set("state-qualifier", "mt-suggestion")
        else:
            self.holder.set("state", "initial" if guessed else "translated")
            self.holder.attrib.pop("subState", None)
            if guessed:
                self.holder.set("subState", "rag-mt:placed-codes")


@dataclass(frozen=True)
class _Scope:
    """The element that names the languages: each `file` in XLIFF 1, the root in XLIFF 2."""

    element: Any
    major: str

    @property
    def keys(self) -> tuple[str, str]:
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

    def check(self, file: Path, source: str, target: str) -> None:
        """Raise UserError unless the texts are to be translated from `source` to `target`."""
        key, present = self.keys[1], self.element.get(self.keys[1])
        if self.is_target(file, source):
            raise UserError(
                f"{file}: {source!r} is its {key}, but its sources are {self.element.get(self.keys[0])!r}: "
                f"give --src {self.element.get(self.keys[0])}"
            )
        if present and base_code(present) != base_code(target):
            raise UserError(f"{file}: its {key} is {present!r}, not {target!r}: give --tgt {present} or another file")

    def claim(self, file: Path, source: str, target: str) -> None:
        """Set the target language if there is none, after `check`."""
        self.check(file, source, target)
        if not self.element.get(self.keys[1]):
            self.element.set(self.keys[1], target)


def _scopes(file: Path, root: Any) -> list[_Scope]:
    """The parts of a document with their own languages."""
    version = root.get("version") or "1.2"
    if version[0] not in "12":
        raise UserError(
            f"{file}: XLIFF version {version!r} is not known: expected 1.2 or 2.0, export it as one of them"
        )
    if version[0] == "2":
        return [_Scope(root, "2")]
    return [_Scope(f, "1") for f in root.iter(_tag(root, "file"))]


def _segments(cut: Any) -> list[Any]:
    """The `mrk` elements that mark segments in a `seg-source` or its copy; none if `cut` is None."""
    return [] if cut is None else [m for m in cut.iter(_tag(cut, "mrk")) if m.get("mtype") == "seg"]


def _tag(element: Any, name: str) -> str:
    """`name` in the namespace of `element`."""
    namespace = etree.QName(element).namespace
    return f"{{{namespace}}}{name}" if namespace else name


def _child(element: Any, name: str) -> Any:
    return element.find(_tag(element, name))


FORMAT = Xliff()
