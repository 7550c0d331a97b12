"""What a glossary says, and what is seen of it in a source sentence and in its translation."""

from __future__ import annotations

from dataclasses import dataclass

from rag_mt.base.types import NOWHERE, Origin, Span


@dataclass(frozen=True, slots=True)
class Term:
    """A term of the source language with its translations: any of `allowed` will do, none of `forbidden` may be used.
    One of both has something in it. With `case_sensitive` only the term's own capitals and small letters match."""

    source: str
    source_language: str
    target_language: str
    allowed: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    note: str = ""
    case_sensitive: bool = False
    origin: Origin = NOWHERE

    def __post_init__(self) -> None:
        if not self.allowed and not self.forbidden:
            raise ValueError(f"term {self.source!r} has no translation, neither an allowed nor a forbidden one")


@dataclass(frozen=True, slots=True)
class TermMatch:
    """A term at `span` of a source sentence. With `in_compound` it is only a part of a longer word there, whose
    translation may well do without the term's."""

    term: Term
    span: Span
    in_compound: bool = False


@dataclass(frozen=True, slots=True)
class Use:
    """One of a term's translations at `span` of an output."""

    translation: str
    span: Span


@dataclass(frozen=True, slots=True)
class Usage:
    """Where a match's translations stand in an output, both in the order of the text."""

    match: TermMatch
    allowed: tuple[Use, ...] = ()
    forbidden: tuple[Use, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether an allowed translation is there, if the term has any, and no forbidden one. What is a part of a
        compound in the source need not be one in the output."""
        return not self.missing and not self.forbidden

    @property
    def faults(self) -> list[str]:
        """What is wrong, one sentence each."""
        term = self.match.term
        missing = [f"term not used: {term.source} = {' or '.join(term.allowed)}"] if self.missing else []
        return [*missing, *(f"forbidden term used: {use.translation}" for use in self.forbidden)]

    @property
    def missing(self) -> bool:
        """Whether a translation should be there and is not."""
        return bool(self.match.term.allowed) and not self.allowed and not self.match.in_compound
