"""What is missing in the translation of one sentence is asked for again: terms of the glossary, and numbers and
placeholders of the source.

    translation -> lacks something -> prompt with the beginning of the answer -> better translation, or the same

Each term is asked for once; for numbers and placeholders there is one question in all.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rag_mt.base.terms import Term, Usage
from rag_mt.base.types import Completion, Prompt, Sentence, Translation
from rag_mt.text.answers import takes_up
from rag_mt.translation.terms import Asking, Lacking, TermKeeper

WHOLE = 0.6
"""Share of the characters of the translation so far that one with less missing has at least: others broke off."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the model: its prompt, the completion, and the translation read from it."""

    prompt: Prompt
    completion: Completion
    translation: Translation

    @property
    def text(self) -> str:
        """The translation; empty where none could be read."""
        return self.translation.text if self.translation.ok else ""

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes on the answer, without those on its prompt."""
        return self.translation.notes[len(self.prompt.notes) :]


@dataclass(frozen=True, slots=True)
class _Version:
    """An answer with the literals that are wrong in it (see `rag_mt.checks.literals`)."""

    answer: Answer
    literals: tuple[Usage, ...]

    @property
    def wrong(self) -> list[Usage]:
        """The terms and literals that are not as they should be."""
        return [*(usage for usage in self.answer.translation.terms if not usage.ok), *self.literals]


@dataclass(eq=False)
class Repair:
    """The answer to a sentence on its way to a better one. `best` is the version with the fewest wrong terms and
    literals, `current` the one that is being worked on, `asking` the question for something that it lacks, and
    `answers` are the answers to such questions, which were about the terms `asked`."""

    keeper: TermKeeper
    sentence: Sentence
    best: _Version
    current: _Version
    asking: Asking | None = None
    answers: list[Answer] = field(default_factory=list)
    asked: set[Term] = field(default_factory=set)
    literals_asked: bool = False

    @classmethod
    def of(cls, keeper: TermKeeper, sentence: Sentence, answer: Answer) -> Repair | None:
        """The repair of an answer whose translation knows its terms; None where nothing is missing that could be asked
        for."""
        version = _Version(answer, keeper.wrong_literals(sentence, answer.text))
        repair = cls(keeper, sentence, version, version)
        return repair if repair.lacking.missing else None

    @property
    def lacking(self) -> Lacking:
        """What is known of the current version, and what of its terms and literals was not asked for yet."""
        answer = self.current.answer
        terms = [usage for usage in answer.translation.terms if not usage.ok and usage.match.term not in self.asked]
        literals = () if self.literals_asked else self.current.literals
        missing = tuple(usage for usage in (*terms, *literals) if usage.match.term.allowed)
        return Lacking(self.sentence, answer.translation, answer.prompt, missing)

    @property
    def ended(self) -> bool:
        """Whether there is nothing left to ask for."""
        return self.asking is None and not self.lacking.missing

    def ask(self, asking: Asking) -> None:
        """Take a question for what is missing."""
        self.asking = asking
        self.asked.update(asking.terms)
        self.literals_asked |= any(usage.match.term in asking.terms for usage in self.current.literals)

    def take(self, answer: Answer) -> bool:
        """Take the answer to the question, and return whether it is the best so far. It is worked on if it has what was
        asked for and lacks no more than before: another term that got lost behind it is asked for next."""
        assert self.asking is not None
        made, best, asking = answer.translation, self.best.answer, self.asking
        self.asking = None
        self.answers.append(answer)
        whole = made.ok and len(made.text) > WHOLE * len(best.text)
        if not whole or not set(answer.notes) <= set(best.notes):
            return False
        new = replace(
            best.translation,
            text=made.text,
            logprob=None,
            used=tuple(takes_up(made.text, hint) for hint in best.translation.hints),
            terms=self.keeper.usages([usage.match for usage in best.translation.terms], made.text),
        )
        wrong_literals = self.keeper.wrong_literals(self.sentence, made.text)
        taken = _Version(Answer(best.prompt, answer.completion, new), wrong_literals)
        if len(taken.wrong) <= len(self.current.wrong) and asking.answered_by(taken.wrong):
            self.current = taken
        better = len(taken.wrong) < len(self.best.wrong)
        if better:
            self.best = taken
        return better
