"""The glossary of a language pair."""

from __future__ import annotations

from dataclasses import dataclass, field

from rag_mt.base.terms import Term, TermMatch, Usage
from rag_mt.glossary.matching import Finder
from rag_mt.glossary.usage import usage_in


@dataclass(frozen=True, slots=True)
class Glossary:
    """The terms of one language pair, each once. Dictionaries are loaded when the first sentence is looked at."""

    source: str
    target: str
    terms: tuple[Term, ...] = ()
    _finders: list[Finder] = field(default_factory=list, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.terms)

    def matches(self, sentence: str) -> tuple[TermMatch, ...]:
        """The terms that occur in a source sentence, in order, without overlaps. Longer terms win over shorter ones;
        small and capital letters are alike except for abbreviations (`IT`) and case-sensitive terms."""
        if not self.terms:
            return ()
        if not self._finders:
            self._finders.append(Finder(self.terms, self.source))
        return self._finders[0].matches(sentence)

    def first_matches(self, sentence: str) -> tuple[TermMatch, ...]:
        """The terms of a source sentence, each once: where it stands first, as a word of its own if it does."""
        matches = sorted(self.matches(sentence), key=lambda match: match.in_compound)
        first = {match.term: match for match in reversed(matches)}
        return tuple(sorted(first.values(), key=lambda match: match.span))

    def used(self, match: TermMatch, output: str) -> Usage:
        """Which translations of a match's term occur in an output. One occurrence will do however often the term stands
        in the source."""
        return usage_in(match, output, self.target)
