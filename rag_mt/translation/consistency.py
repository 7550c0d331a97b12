"""What the translations of a document agree on, and the sentences that say it otherwise.

    translations -> terms that several sentences have, with the translation that goes with them -> sentences without it
    -> translated again with these terms -> the one of both that has more of them

The terms are proposed from the document's own sentences and translations as a glossary would be from a memory (see
`rag_mt.glossary.extraction`), and kept to as those of a glossary are (see `rag_mt.translation.terms`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Generic

import numpy as np
from numpy.typing import NDArray

from prompts.safety import encodable
from rag_mt.base.terms import Term, TermMatch
from rag_mt.base.types import Sentence, Span, Translation
from rag_mt.glossary.extraction import proposed_terms
from rag_mt.glossary.glossary import Glossary
from rag_mt.text.words import word_spans
from rag_mt.translation.context import finished_pair, translate_together
from rag_mt.translation.repair import WHOLE
from rag_mt.translation.tasks import T

if TYPE_CHECKING:
    from rag_mt.translation.translator import Translator
    from retrievers.encoders.alignment import Links

MOST_PAIRS = 1024
"""The latest sentences whose translations count."""
LONGEST = 2
"""Words of a term, at most."""
LEAST = 2
"""Sentences that have a term, at least."""
SCORE = 0.5
"""Dice coefficient of a term and its translation, at least (`python -m eval.consistency`, part dev)."""
SHARE = 0.5
"""Of the sentences with a term and its translation those whose words are aligned, at least."""
ASKED_AGAIN = "translated again to keep to the document's own terms"
"""How the note begins that says which terms a sentence was translated again for."""


class DocumentTerms(Generic[T]):
    """The terms of one document by what is translated of it so far; `task` makes the tasks that translate again, such
    as `SentenceTask`. `least` and `score` are those of `proposed_terms`, `share` is that of the places
    where a term stands beside its translation in which the encoder aligns both."""

    def __init__(
        self,
        translator: Translator,
        task: Callable[[Translator, Sentence], T],
        least: int = LEAST,
        score: float = SCORE,
        share: float = SHARE,
    ) -> None:
        self.translator, self._task = translator, task
        self._least, self._score, self._share = least, score, share
        self._links: dict[tuple[str, str], Links] = {}
        self._own = frozenset(translator.terms.glossary.terms)
        self._keeping = translator
        self._pairs: deque[tuple[str, str]] = deque(maxlen=MOST_PAIRS)
        self._before: deque[Translation] = deque(maxlen=translator.context)
        self.first_with: list[int] = []
        """For each translation of the last call of `again` the number of the one that stands for it."""

    def again(self, translations: Sequence[Translation], known: Mapping[int, Translation]) -> dict[int, T]:
        """Tasks for those of the document's next translations that lack what the others agree on, by their numbers;
        `known` are second translations that are there. Without context equal sentences have one task."""
        pairs = [(made.source.text, made.text) for made in translations if made.ok]
        self._keeping = self.translator.with_glossary(self._glossary([*self._pairs, *pairs]))
        first = {made.source.text: n for n, made in reversed([*enumerate(translations)])}
        context = self.translator.context
        self.first_with = [n if context else first[made.source.text] for n, made in enumerate(translations)]
        tasks = {
            n: self._task(self._keeping, made.source)
            for n, made in enumerate(translations)
            if n == self.first_with[n] and n not in known and made.ok and self._lacking(made, self._matches(made))
        }
        second = {n: (made.source.text, made.draft) for n, made in known.items()}
        document = [tasks.get(n) or second.get(n) or finished_pair(made) for n, made in enumerate(translations)]
        translate_together([*map(finished_pair, self._before), *document], context)
        return tasks

    def kept(self, translations: Sequence[Translation], again: Mapping[int, Translation]) -> list[Translation]:
        """The translations, in the place of some their second ones, by number: where these have more of the terms, all
        that the glossary has, and lost no number or placeholder."""
        chosen = [
            self._better(made, again[n]) if n in again else made
            for n, made in zip(self.first_with, translations, strict=True)
        ]
        self._pairs.extend((made.source.text, made.text) for made in chosen if made.ok)
        self._before.extend(chosen)
        return chosen

    def _glossary(self, pairs: Sequence[tuple[str, str]]) -> Glossary:
        """The translator's own glossary, and for what is none of its terms those of the document."""
        own = self.translator.terms.glossary
        proposals = proposed_terms(pairs, own.source, own.target, longest=LONGEST, least=self._least, score=self._score)
        further = [Term(p.term, own.source, own.target, (p.translation,)) for p in proposals if not own.matches(p.term)]
        return Glossary(own.source, own.target, (*own.terms, *self._aligned(further, pairs)))

    def _aligned(self, terms: Sequence[Term], pairs: Sequence[tuple[str, str]]) -> list[Term]:
        """The terms that are mostly aligned with their translations; all where nothing aligns."""
        aligner = self.translator.terms.aligner if terms and self._share else None
        if aligner is None:
            return list(terms)
        distinct = list(dict.fromkeys(pairs))
        new = [pair for pair in distinct if pair not in self._links]
        links = aligner.align([(encodable(source), encodable(text)) for source, text in new])
        known = self._links | dict(zip(new, links, strict=True))
        self._links = {pair: known[pair] for pair in distinct}
        glossary = Glossary(self.translator.source, self.translator.target, tuple(terms))
        there: Counter[Term] = Counter()
        linked: Counter[Term] = Counter()
        for (source, text), own in self._links.items():
            ends = word_spans(encodable(source))[own[:, 0]], word_spans(encodable(text))[own[:, 1]]
            for match in glossary.first_matches(source):
                for use in glossary.used(match, text).allowed[:1] if len(own) else ():
                    there[match.term] += 1
                    linked[match.term] += bool(np.any(_inside(ends[0], match.span) & _inside(ends[1], use.span)))
        return [term for term in terms if linked[term] >= self._share * there[term]]

    def _matches(self, made: Translation) -> tuple[TermMatch, ...]:
        """The document's terms in a sentence, without those of the translator's own glossary."""
        matches = self._keeping.terms.glossary.first_matches(made.source.text)
        return tuple(match for match in matches if match.term not in self._own)

    def _lacking(self, made: Translation, matches: Sequence[TermMatch]) -> list[Term]:
        """Those of the terms that the translation does not have."""
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
        still = self._lacking(second, matches)
        if not whole or len(still) >= len(lacked) or wrong[1] > wrong[0]:
            return first
        shown = ", ".join(f"{term.source} = {term.allowed[0]}" for term in lacked if term not in still)
        notes = (*second.notes, f"{ASKED_AGAIN}: {shown}")
        return replace(second, source=first.source, terms=terms, notes=notes)


def _inside(words: NDArray[np.int32], span: Span) -> NDArray[np.bool_]:
    """Which words (n, 2) touch a span."""
    return (words[:, 1] > span.start) & (words[:, 0] < span.end)
