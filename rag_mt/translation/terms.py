"""The terms of a glossary on their way through a translation: which stand in a sentence, what became of them, and how
the language model is asked again for one that is missing.

The second question is the first one with the beginning of its answer: the translation so far up to the words that the
encoder aligns with the term, and then the glossary's translation, from which the model goes on. A model that cannot be
given a beginning (a chat on a server) is asked with the missing terms alone instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from prompts.builder import PromptBuilder
from prompts.safety import encodable, one_line
from rag_mt.base.files import settings_hash
from rag_mt.base.languages import base_code
from rag_mt.base.terms import Term, TermMatch, Usage
from rag_mt.base.types import Encoder, LanguageModel, Prompt, Sentence, Translation
from rag_mt.text.words import word_spans

if TYPE_CHECKING:
    from rag_mt.glossary.glossary import Glossary

ALIGN_LAYER = 6
"""The encoder's hidden layer whose states align words best (`python -m eval.alignment`)."""


@dataclass(frozen=True, slots=True)
class Lacking:
    """A translation that lacks terms: `missing` are those that were not asked for again yet."""

    sentence: Sentence
    translation: Translation
    prompt: Prompt
    missing: tuple[Usage, ...]


@dataclass(frozen=True, slots=True)
class Asking:
    """A prompt that asks again for a term, or for several."""

    prompt: Prompt
    terms: tuple[Term, ...]

    def answered_by(self, usages: Sequence[Usage]) -> bool:
        """Whether what was asked for is there."""
        return any(usage.ok for usage in usages if usage.match.term in self.terms)


class TermKeeper:
    """Keeps the terms of a glossary in the translations of one translator. `open_encoder` loads what aligns words, when
    a term is missing for the first time."""

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
        """All that could change an output, JSON-able."""
        terms = [(t.source, t.allowed, t.forbidden, t.note, t.case_sensitive) for t in self.glossary.terms]
        return {"terms": len(terms), "hash": settings_hash(terms), "layer": ALIGN_LAYER}

    def usages(self, matches: Sequence[TermMatch], text: str) -> tuple[Usage, ...]:
        """What became of the terms in a translation."""
        return tuple(self.glossary.used(match, text) for match in matches)

    def ask(self, lacking: Sequence[Lacking]) -> list[Asking | None]:
        """For each translation the prompt that asks again for what it lacks, None where there is no way."""
        return list(self._begun(lacking)) if self.forced else [self._stressed(each) for each in lacking]

    def _stressed(self, lacking: Lacking) -> Asking:
        matches = [usage.match for usage in lacking.missing]
        prompt = self.prompts.build(lacking.sentence, lacking.prompt.hints, matches, lacking.prompt.context)
        return Asking(prompt, tuple(match.term for match in matches))

    def _begun(self, lacking: Sequence[Lacking]) -> Iterator[Asking | None]:
        for each, starts in zip(lacking, self._starts(lacking), strict=True):
            places = [(at, usage) for at, usage in zip(starts, each.missing, strict=True) if at is not None]
            if not places:
                yield None
                continue
            at, usage = min(places, key=lambda place: place[0])
            before = each.translation.text[:at]
            term = self._form(usage, each.sentence.text, first=not any(map(str.isalnum, before)))
            blank = "" if each.prompt.chat else " "
            prompt = replace(each.prompt, begun=f"{blank}{one_line(before)}{_gap(before)}{term}", notes=())
            yield Asking(prompt, (usage.match.term,))

    def _starts(self, lacking: Sequence[Lacking]) -> Iterator[list[int | None]]:
        """For each missing term of each translation where the words begin that it is aligned with, the words of a
        forbidden translation that is there first of all."""
        pairs = [(encodable(each.sentence.text), encodable(each.translation.text)) for each in lacking]
        forward, backward = self._aligner.directed(pairs)
        for each, pair, *directions in zip(lacking, pairs, forward, backward, strict=True):
            words = [word_spans(side) for side in pair]
            starts: list[int | None] = []
            for usage in each.missing:
                if usage.forbidden:
                    starts.append(usage.forbidden[0].span.start)
                    continue
                span = usage.match.span
                own = [n for n, (start, end) in enumerate(words[0].tolist()) if start < span.end and end > span.start]
                # Links that both directions have are the surest; each word has one to its nearest word at least.
                links = [{tuple(link) for link in links.tolist() if link[0] in own} for links in directions]
                linked = [link[1] for link in (links[0] & links[1] or links[1])]
                starts.append(int(words[1][min(linked)][0]) if linked else None)
            yield starts

    @cached_property
    def _aligner(self) -> Any:
        from retrievers.encoders.alignment import EncoderAligner  # loaded when a term is missing for the first time

        return EncoderAligner(self._open_encoder(), ALIGN_LAYER)

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


CAPITAL_NOUNS = frozenset({"de", "lb"})
"""Languages whose nouns have capitals."""


def _gap(before: str) -> str:
    """What stands between the beginning of a translation and the next word."""
    return " " if before[-1:].isspace() else ""


def lacks(usages: Sequence[Usage]) -> int:
    """How many terms are not as the glossary wants them."""
    return sum(not usage.ok for usage in usages)
