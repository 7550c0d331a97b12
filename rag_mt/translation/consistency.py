"""What the translations of a document agree on, and the sentences that say it otherwise.

    translations -> terms that several sentences have, with the translation that goes with them -> sentences without it
    -> translated again with these terms -> the one of both that has more of them

The terms are proposed from the document's own sentences and translations as a glossary would be from a memory (see
`rag_mt.glossary.extraction`), and kept to as those of a glossary are (see `rag_mt.translation.terms`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Generic

from rag_mt.base.terms import Term, TermMatch
from rag_mt.base.types import Sentence, Translation
from rag_mt.glossary.extraction import proposed_terms
from rag_mt.glossary.glossary import Glossary
from rag_mt.translation.context import finished_pair, translate_together
from rag_mt.translation.repair import WHOLE
from rag_mt.translation.tasks import T

if TYPE_CHECKING:
    from rag_mt.translation.translator import Translator

MOST_PAIRS = 1024
"""The latest sentences whose translations count."""
LONGEST = 2
"""Words of a term, at most."""
LEAST = 2
"""Sentences that have a term, at least."""
SCORE = 0.5
"""Dice coefficient of a term and its translation, at least (`python -m eval.consistency`, part dev)."""
ASKED_AGAIN = "translated again to keep to the document's own terms"
"""How the note begins that says which terms a sentence was translated again for."""


class DocumentTerms(Generic[T]):
    """The terms of one document by what is translated of it so far; `task` makes the tasks that translate again, such
    as `SentenceTask`."""

    def __init__(self, translator: Translator, task: Callable[[Translator, Sentence], T]) -> None:
        self.translator, self._task = translator, task
        self._keeping = translator
        self._pairs: deque[tuple[str, str]] = deque(maxlen=MOST_PAIRS)
        self._before: deque[Translation] = deque(maxlen=translator.context)
        self._first_with: list[int] = []

    def again(self, translations: Sequence[Translation], known: Mapping[int, Translation]) -> dict[int, T]:
        """Tasks for those of the document's next translations that lack what the others agree on, by their numbers;
        `known` are second translations that are there. Without context equal sentences have one task."""
        pairs = [(made.source.text, made.text) for made in translations if made.ok]
        self._keeping = self.translator.with_glossary(self._glossary([*self._pairs, *pairs]))
        first = {made.source.text: n for n, made in reversed([*enumerate(translations)])}
        context = self.translator.context
        self._first_with = [n if context else first[made.source.text] for n, made in enumerate(translations)]
        tasks = {
            n: self._task(self._keeping, made.source)
            for n, made in enumerate(translations)
            if n == self._first_with[n] and n not in known and made.ok and self._lacking(made, self._matches(made))
        }
        document = [tasks.get(n) or finished_pair(made) for n, made in enumerate(translations)]
        translate_together([*map(finished_pair, self._before), *document], context)
        return tasks

    def kept(self, translations: Sequence[Translation], again: Mapping[int, Translation]) -> list[Translation]:
        """The translations, in the place of some their second ones, by number: where these have more of the terms, all
        that the glossary has, and lost no number or placeholder."""
        chosen = [
            self._better(made, again[n]) if n in again else made
            for n, made in zip(self._first_with, translations, strict=True)
        ]
        self._pairs.extend((made.source.text, made.text) for made in chosen if made.ok)
        self._before.extend(chosen)
        return chosen

    def _glossary(self, pairs: Sequence[tuple[str, str]]) -> Glossary:
        """The translator's own glossary, and for what is none of its terms those of the document."""
        own = self.translator.terms.glossary
        proposals = proposed_terms(pairs, own.source, own.target, longest=LONGEST, least=LEAST, score=SCORE)
        further = [Term(p.term, own.source, own.target, (p.translation,)) for p in proposals if not own.matches(p.term)]
        return Glossary(own.source, own.target, (*own.terms, *further))

    def _matches(self, made: Translation) -> tuple[TermMatch, ...]:
        return self._keeping.terms.glossary.first_matches(made.source.text)

    def _lacking(self, made: Translation, matches: Sequence[TermMatch]) -> list[Term]:
        """The terms of a sentence that its translation does not have."""
        return [usage.match.term for usage in self._keeping.terms.usages(matches, made.text) if not usage.ok]

    def _better(self, first: Translation, second: Translation) -> Translation:
        matches, own, keeper = self._matches(first), self.translator.terms, self._keeping.terms
        terms = own.usages(own.glossary.first_matches(first.source.text), second.text)
        lacked = self._lacking(first, matches)
        wrong = [
            sum(not usage.ok for usage in (*usages, *keeper.wrong_literals(first.source, made.text)))
            for made, usages in ((first, first.terms), (second, terms))
        ]
        whole = second.ok and len(second.text) > WHOLE * len(first.text)
        if not whole or len(self._lacking(second, matches)) >= len(lacked) or wrong[1] > wrong[0]:
            return first
        shown = ", ".join(f"{term.source} = {term.allowed[0]}" for term in lacked if term.allowed)
        notes = (*second.notes, f"{ASKED_AGAIN}: {shown}")
        return replace(second, source=first.source, terms=terms, notes=notes)
