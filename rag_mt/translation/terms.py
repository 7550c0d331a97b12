"""The terms on their way through a translation, those of a glossary and the literals of the source (numbers and
placeholders): which stand in a sentence, what became of them, and how the language model is asked again for one that is
missing.

The second question is the first one with the beginning of its answer: the translation so far up to the words that the
encoder aligns with the term, or up to what stands there wrongly, and then the right translation, from which the model
goes on. A model that cannot be given a beginning (a chat on a server) is asked with the missing terms alone instead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from prompts.builder import PromptBuilder
from prompts.safety import encodable
from rag_mt.base.errors import UserError
from rag_mt.base.files import settings_hash
from rag_mt.base.languages import base_code
from rag_mt.base.terms import Term, TermMatch, Usage
from rag_mt.base.types import Encoder, LanguageModel, Prompt, Sentence, Span, Translation
from rag_mt.checks.literals import wrong_literals
from rag_mt.checks.rules import Pair
from rag_mt.glossary.glossary import Glossary
from rag_mt.text.words import word_spans

if TYPE_CHECKING:  # what searches is imported when something is searched
    from retrievers.encoders.alignment import EncoderAligner, Links

log = logging.getLogger("rag_mt")

ALIGN_LAYER = 6
"""The encoder's hidden layer whose states align words best (`python -m eval.alignment`)."""
_NO_LINKS = np.zeros((0, 2), np.int32)


@dataclass(frozen=True, slots=True)
class Lacking:
    """A translation that lacks terms: `missing` are those that were not asked for again yet, literals among them."""

    sentence: Sentence
    translation: Translation
    prompt: Prompt
    missing: tuple[Usage, ...]


@dataclass(frozen=True, slots=True)
class Asking:
    """A prompt that asks again for a term, or for several."""

    prompt: Prompt
    terms: tuple[Term, ...]

    def answered_by(self, wrong: Sequence[Usage]) -> bool:
        """Whether something of what was asked for is there, by what is still wrong."""
        return not {usage.match.term for usage in wrong}.issuperset(self.terms)


class TermKeeper:
    """Keeps the terms of a glossary, which may have none, and literals in the translations of one translator.
    `open_encoder` loads what aligns words, when the place of a term is looked for for the first time."""

    def __init__(
        self,
        glossary: Glossary,
        prompts: PromptBuilder,
        llm: LanguageModel,
        open_encoder: Callable[[], Encoder],
    ) -> None:
        self.glossary, self.prompts = glossary, prompts
        self.forced = prompts.wrapper not in ("chat", "translategemma") or llm.continues_chats
        self._open_encoder = open_encoder

    @property
    def settings(self) -> dict[str, Any]:
        """What of the glossary could change an output, JSON-able."""
        terms = [(t.source, t.allowed, t.forbidden, t.note, t.case_sensitive) for t in self.glossary.terms]
        return {"terms": len(terms), "hash": settings_hash(terms)}

    def usages(self, matches: Sequence[TermMatch], text: str) -> tuple[Usage, ...]:
        """What became of the terms in a translation."""
        return tuple(self.glossary.used(match, text) for match in matches)

    def wrong_literals(self, sentence: Sentence, text: str) -> tuple[Usage, ...]:
        """The literals that are wrong in a translation (see `rag_mt.checks.literals`)."""
        return wrong_literals(Pair(sentence.text, text, self.prompts.source, self.prompts.target))

    def ask(self, lacking: Sequence[Lacking]) -> list[Asking | None]:
        """For each translation the prompt that asks again for what it lacks, None where there is no way."""
        starts = self._starts(lacking) if self.forced else ([] for _ in lacking)
        return [self._begun(*each) or self._stressed(each[0]) for each in zip(lacking, starts, strict=True)]

    def _stressed(self, lacking: Lacking) -> Asking | None:
        matches = {usage.match.term: usage.match for usage in lacking.missing}
        shown = lacking.prompt
        prompt = self.prompts.build(lacking.sentence, shown.hints, tuple(matches.values()), shown.context)
        return Asking(prompt, tuple(matches)) if prompt.terms else None

    def _begun(self, lacking: Lacking, starts: Sequence[int | None]) -> Asking | None:
        places = [(at, usage) for at, usage in zip(starts, lacking.missing, strict=False) if at is not None]
        if not places:
            return None
        at, usage = min(places, key=lambda place: place[0])
        before = lacking.translation.text[:at]
        term = self._form(usage, lacking.sentence.text, first=not any(map(str.isalnum, before)))
        beginning = f"{before.rstrip()}{_gap(before)}{term}"
        return Asking(self.prompts.begun(lacking.prompt, beginning), (usage.match.term,))

    def _starts(self, lacking: Sequence[Lacking]) -> Iterator[list[int | None]]:
        """For each missing term of each translation where the words begin that it is aligned with, or what stands there
        that is forbidden."""
        unknown = [n for n, each in enumerate(lacking) if not all(usage.forbidden for usage in each.missing)]
        links = dict(zip(unknown, self._links([lacking[n] for n in unknown]), strict=True))
        for number, each in enumerate(lacking):
            yield [
                usage.forbidden[0].span.start if usage.forbidden else _aligned(usage.match.span, each, links[number])
                for usage in each.missing
            ]

    def _links(self, lacking: Sequence[Lacking]) -> list[tuple[Links, Links]]:
        """The word alignments of translations in both directions; none where there is no encoder."""
        if not lacking or self.aligner is None:
            return [(_NO_LINKS, _NO_LINKS)] * len(lacking)
        pairs = [(encodable(each.sentence.text), encodable(each.translation.text)) for each in lacking]
        return list(zip(*self.aligner.directed(pairs), strict=True))

    @cached_property
    def aligner(self) -> EncoderAligner | None:
        """What aligns words, None where its encoder cannot be loaded."""
        from retrievers.encoders.alignment import EncoderAligner  # loaded when a place is looked for for the first time

        try:
            return EncoderAligner(self._open_encoder(), ALIGN_LAYER)
        except UserError as error:
            log.warning("what is missing is asked for without its place, for want of an encoder: %s", error)
            return None

    def _form(self, usage: Usage, source: str, first: bool) -> str:
        """The translation to go on from: with a capital at the beginning of the sentence, and elsewhere with a small
        letter where the source has the term with one and the glossary with a capital."""
        match = usage.match
        term, translation = match.term, match.term.allowed[0]
        written, listed = match.span.of(source), term.source
        if first:
            return translation[:1].upper() + translation[1:]
        lowered = listed[:1].isupper() and written[:1].islower() and translation[1:2].islower()
        if lowered and base_code(term.target_language) not in CAPITAL_NOUNS:
            return translation[:1].lower() + translation[1:]
        return translation


def _aligned(span: Span, lacking: Lacking, links: tuple[Links, Links]) -> int | None:
    """Where the words of the translation begin that those at a span of the source are aligned with; for a placeholder
    that is no word, those of the next word."""
    words, others = word_spans(encodable(lacking.sentence.text)), word_spans(encodable(lacking.translation.text))
    behind = np.flatnonzero(words[:, 1] > span.start)
    own = [n for n in behind.tolist() if words[n, 0] < span.end] or behind[:1].tolist()
    # Links that both directions have are the surest; each word has one to its nearest word at least.
    found = [{tuple(link) for link in side.tolist() if link[0] in own} for side in links]
    linked = [link[1] for link in (found[0] & found[1] or found[1])]
    return int(others[min(linked)][0]) if linked else None


CAPITAL_NOUNS = frozenset({"de", "lb"})
"""Languages whose nouns have capitals."""


def _gap(before: str) -> str:
    """What stands between the beginning of a translation and the next word."""
    return " " if before[-1:].isspace() else ""
