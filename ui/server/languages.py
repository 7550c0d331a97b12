"""Which languages a server translates between, and which one a text is written in."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lingua import IsoCode639_1, LanguageDetectorBuilder

from rag_mt.base.defaults import DEFAULT_LLM
from rag_mt.base.errors import UserError
from rag_mt.base.languages import DIRECTIONS, Language, base_code, language

MOST_CHARS = 2000
"""Characters that are looked at to tell a text's language."""

LONGEST_CODE = 35
"""Characters of the longest language tag (RFC 5646, section 4.4.1) or English name of a language."""


@dataclass(frozen=True)
class Offer:
    """The directions (source, target) that a server translates in."""

    directions: tuple[tuple[str, str], ...]

    @property
    def languages(self) -> tuple[Language, ...]:
        """All languages, in the order of their English names."""
        codes = {code for direction in self.directions for code in direction}
        return tuple(sorted((language(code) for code in codes), key=lambda known: known.name))

    def targets_of(self, source: str) -> tuple[str, ...]:
        """The languages that text in `source` can be translated into, itself left out."""
        return tuple(sorted(target for s, target in self.directions if s == source))

    def sources_of(self, target: str) -> tuple[str, ...]:
        """The languages that can be translated into `target`."""
        return tuple(sorted(source for source, t in self.directions if t == target))

    def known(self, code: str) -> str:
        """The code of an offered language, whatever case or name it was given by; raises UserError."""
        codes = [known.code for known in self.languages]
        wanted = code.strip()
        if len(wanted) <= LONGEST_CODE:  # what is longer is no code, and `language` would remember it
            with suppress(UserError):  # then it is none of the codes
                wanted = language(wanted).code
        if wanted not in codes:
            raise UserError(f"language {code[:40]!r} is not offered: choose one of {', '.join(codes)}")
        return wanted

    def check(self, source: str, target: str) -> None:
        """Raise UserError for a direction that is not offered."""
        if (source, target) not in self.directions:
            targets = ", ".join(self.targets_of(source)) or "none"
            raise UserError(
                f"{language(source).name} is not translated into {language(target).name}: "
                f"targets from {source} are {targets}"
            )


def offer_of(codes: Sequence[str] = (), llm: str = DEFAULT_LLM) -> Offer:
    """The directions between all of the languages; without any named, the ones that the adapter of the default
    language model was tuned on (to and from English), and with another model all between those languages.

    Raises UserError for an unknown language, or a single one.
    """
    if not codes and llm == DEFAULT_LLM:
        return Offer(DIRECTIONS)
    known = list(dict.fromkeys(language(c).code for c in codes or {code for pair in DIRECTIONS for code in pair}))
    if len(known) < 2:
        raise UserError(f"languages {', '.join(codes)}: expected at least two, such as de,en")
    return Offer(tuple((a, b) for a in known for b in known if a != b))


@dataclass(frozen=True, slots=True)
class Detected:
    """A language that a text may be in, and how sure that is, from 0 to 1."""

    code: str
    confidence: float


class Detector:
    """Tells the language of a text among a few, without a network. The statistics are read at the first use."""

    def __init__(self, codes: Sequence[str]) -> None:
        """Languages that lingua does not know are never detected."""
        known = {name.lower() for name in dir(IsoCode639_1) if name.isupper()}
        self._codes = {code: base_code(code) for code in codes if base_code(code) in known}
        self._lingua: Any = None
        self._lock = threading.Lock()

    def detect(self, text: str) -> list[Detected]:
        """The possible languages, the likeliest first; empty for a text that says nothing (digits, another script)."""
        values = self._opened().compute_language_confidence_values(text[:MOST_CHARS]) if self._codes else []
        confidence = {value.language.iso_code_639_1.name.lower(): value.value for value in values}
        candidates = [Detected(code, confidence.get(base, 0.0)) for code, base in self._codes.items()]
        return sorted((d for d in candidates if d.confidence > 0), key=lambda d: (-d.confidence, d.code))

    def best(self, text: str) -> Detected | None:
        """The likeliest language, or None for a text that says nothing."""
        return next(iter(self.detect(text)), None)

    def warm(self) -> None:
        """Read the statistics now."""
        self.detect("Rain fell all night long.")

    def _opened(self) -> Any:
        with self._lock:
            if self._lingua is None:
                codes = {getattr(IsoCode639_1, base.upper()) for base in self._codes.values()}
                self._lingua = LanguageDetectorBuilder.from_iso_codes_639_1(*codes).build()
            return self._lingua
