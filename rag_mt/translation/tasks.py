"""The flow, written once: a sentence becomes a prompt with hints, a language model answers, a translation is read.

All that translates (`Translator`, streams, file jobs, the server and evaluation) makes tasks and puts them into a
queue (`rag_mt.translation.queue`), which a language model empties.

Where the retriever is a memory (a `DraftRetriever`) the model answers a plain prompt first:

    sentence -> plain prompt -> draft -> recall -> hints to show -> prompts with hints -> translation
                                                -> else the draft is the translation

so that what nothing is recalled for costs and says what it does without a retriever. With `consensus` hints are shown
together (the first MOST_SIMILAR) and each alone, all at the same time, and of the draft and these answers the one is
taken that the others and the hits support most: what a wrong hint led to, the others do not say.

With context the sentences of a document are drafted first too, with the hints that are retrieved, and their second
prompts show the drafts of those around them (see `rag_mt.translation.context`). They show drafts alone, never what
became of them, so that the prompts do not depend on which sentence is finished first.

With a glossary the prompts show the terms of a sentence. Terms, numbers and placeholders that are missing in the
translation are asked for again (see `rag_mt.translation.repair`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast

from prompts.builder import MOST_SIMILAR
from prompts.safety import encodable
from rag_mt.base.terms import TermMatch, Usage
from rag_mt.base.types import (
    Completion,
    DraftRetriever,
    Hint,
    Hit,
    Neighbour,
    Prompt,
    Recalled,
    Retriever,
    Sentence,
    Span,
    Translation,
)
from rag_mt.checks.literals import has_literals
from rag_mt.translation.repair import Answer, Repair
from rag_mt.translation.terms import Asking

if TYPE_CHECKING:
    from rag_mt.translation.translator import Translator

Pair = tuple[str, str]
"""A sentence that is translated already with its translation; an empty one is not shown."""
DRAFT_STANDS = "the draft stands"
"""How the note begins that says that no translation could be read from the answer with hints or context."""
REUSED = "translated before: reused"
"""How the note begins that says where a translation was taken from."""


@dataclass(eq=False)
class SentenceTask:
    """One sentence on its way: its prompt once hints are found, the answer as far as it is, the `first` whole one, and
    the completion and the translation at the end.

    `hints` are those that were retrieved. `neighbours` are the sentences around it by their distance, tasks or pairs of
    what is translated already; tasks of a document that are translated `together` are drafted first.

    With a memory there are a `draft` and what was `recalled` for it in between, `hinted` are the prompts with hints or
    context, which are answered independently once the draft is `continued`, and `candidates` the answers by their
    numbers; at the end `prompt` and `completion` are those of the answer that was chosen. `terms` are the glossary's of
    the sentence; what the chosen answer lacks is asked for by a `repair`. `hints_away` is as in `Translation`,
    and a `plain` task had no memory when it was begun."""

    translator: Translator
    sentence: Sentence
    prompt: Prompt | None = None
    answer: str = ""
    completion: Completion | None = None
    translation: Translation | None = None
    first: Answer | None = None
    draft: Answer | None = None
    recalled: Recalled | None = None
    hinted: list[Prompt] = field(default_factory=list)
    candidates: dict[int, Answer] = field(default_factory=dict)
    hints: Sequence[Hint] = ()
    neighbours: tuple[tuple[int, SentenceTask | Pair], ...] = ()
    together: bool = False
    continued: bool = False
    terms: tuple[TermMatch, ...] = ()
    repair: Repair | None = None
    hints_away: str = ""
    plain: bool = False

    @property
    def wanted(self) -> bool:
        """Whether anybody waits for the translation."""
        return True

    @property
    def drafts(self) -> bool:
        """Whether the first answer is a draft."""
        return self.together or (self.translator.memory is not None and not self.plain)

    @property
    def so_far(self) -> str | None:
        """The translation that the sentences around it are shown, empty where none could be read; None as long as there
        is none."""
        if self.draft is not None:
            return self.draft.text
        return None if self.translation is None else self.translation.draft

    @property
    def context(self) -> tuple[Neighbour, ...]:
        """The sentences around it that have translations to show."""
        parts = [
            (n, *(part if isinstance(part, tuple) else (part.sentence.text, part.so_far)))
            for n, part in self.neighbours
        ]
        return tuple(Neighbour(offset, source, text) for offset, source, text in parts if text)

    @property
    def ready(self) -> bool:
        """Whether it can be prepared for what is asked next: those around it are drafted too."""
        tasks = (part for _, part in self.neighbours if isinstance(part, SentenceTask))
        return self.draft is None or self.continued or all(task.so_far is not None for task in tasks)

    @property
    def questions(self) -> list[Prompt]:
        """The prompts without an answer that can be answered now."""
        if self.translation is not None or self.prompt is None:
            return []
        if self.repair is not None:
            return [] if self.repair.asking is None else [self.repair.asking.prompt]
        if self.draft is None:
            return [self.prompt]
        return [prompt for number, prompt in enumerate(self.hinted) if number not in self.candidates]

    @property
    def waits(self) -> bool:
        """Whether the task has to be prepared for what is asked next."""
        if self.translation is not None:
            return False
        if self.repair is not None:
            return self.repair.asking is None
        return self.prompt is None or (self.draft is not None and not self.continued)

    @property
    def prompts(self) -> list[Prompt]:
        """All prompts so far, that of the draft first."""
        first = self.prompt if self.draft is None else self.draft.prompt
        again = [] if self.repair is None else [answer.prompt for answer in self.repair.answers]
        return [*([] if first is None else [first]), *self.hinted, *again]

    @property
    def answers(self) -> list[Completion]:
        """All completions, that of the draft first."""
        again = [] if self.repair is None else [answer.completion for answer in self.repair.answers]
        if self.draft is None:
            return again if self.first is None else [self.first.completion, *again]
        return [self.draft.completion, *(answer.completion for _, answer in sorted(self.candidates.items())), *again]

    @property
    def begun(self) -> str:
        """How the translation begins for sure: further tokens cannot change it, and neither a draft nor what is
        asked for again may give way to another translation."""
        if self.translation is not None:
            return self.translation.text
        if self.prompt is None or not self.answer or (self.drafts and not self.hinted):
            return ""
        if self.terms or self._has_literals:
            return ""
        return self.translator.sure_beginning(self.sentence, self.prompt, self.answer)

    @cached_property
    def _has_literals(self) -> bool:
        return has_literals(self.sentence.text)

    def progress(self, text: str) -> None:
        """Take an answer as far as it is; of several that are under way none is known to be the one."""
        if text != self.answer and len(self.hinted) < 2:
            self.answer = text
            self.changed()

    def read(self, prompt: Prompt, completion: Completion) -> None:
        """Take the completion of a prompt, and read the draft or the translation from it."""
        answer = Answer(prompt, completion, self.translator.read(self.sentence, prompt, completion))
        if self.repair is not None:
            self._repaired(self.repair, answer)
        elif not self.drafts:
            self.first = answer
            self._settle(answer)
        elif self.draft is None:
            self.draft, self.completion = answer, completion
        else:
            self.candidates[next(n for n, asked in enumerate(self.hinted) if asked is prompt)] = answer
            if len(self.candidates) == len(self.hinted):
                self._choose()
        self.changed()

    def _choose(self) -> None:
        """Let the answer with hints be the translation; of several ones, the one of them and the draft that is best
        supported, and the others its alternatives; if none can be read, the draft."""
        from retrievers.memory.overlap import SURPLUS, by_support  # imported when something is searched

        assert self.draft is not None
        candidates = [self.candidates[number] for number in range(len(self.hinted))]
        read = [candidate for candidate in candidates if candidate.translation.ok]
        if not read:
            first = candidates[0]
            reasons = "; ".join(first.notes)
            shown = "hints" if first.prompt.hints else "context"
            self._keep_draft(f"{DRAFT_STANDS}: no translation could be read from the answer with {shown} ({reasons})")
            return
        if len(candidates) > 1:
            read += [self.draft] if self.draft.translation.ok else []
            hits = [(hint.phrase, hint.hit.score) for hint in self.recalled.hints] if self.recalled else []
            surplus = 1.0 if self.translator.tuned else SURPLUS
            read = [read[number] for number in by_support([answer.text for answer in read], hits, surplus)]
            if self.terms:
                read.sort(key=lambda answer: sum(not usage.ok for usage in self._usages(answer.text)))
        chosen, texts = read[0], dict.fromkeys(answer.text for answer in read)
        self._settle(chosen, draft=self.draft.text, recalled=self.recalled, alternatives=tuple(texts)[1:])

    def recall(self, recalled: Recalled | None) -> None:
        """Go on from the draft: what a memory, if there is one, has for it, and the context make other prompts, or the
        draft becomes the translation."""
        assert self.draft is not None
        self.continued, hints, prompt = True, self.hints, None
        if recalled is not None:
            hints = self.shown(recalled.hints) if recalled.shown else ()
        if self.context or (recalled is not None and hints):
            prompt = self._built(hints if recalled is None else hints[:MOST_SIMILAR])
        self.recalled = recalled and replace(recalled, shown=bool(prompt and prompt.hints))
        if prompt is not None and prompt.text != self.draft.prompt.text:
            self.prompt, self.answer, self.hinted = prompt, "", [prompt]
            if self.translator.consensus and recalled is not None and len(hints) > 1:
                # Hints that do not fit the window are not shown, so that prompts may be the same, or plain.
                alone = [self._built((hint,)) for hint in hints]
                self.hinted += [p for p in alone if p.hints and p.hints != prompt.hints]
        else:
            known = self.draft.prompt.notes
            self._keep_draft(*(note for note in (prompt.notes if prompt is not None else ()) if note not in known))
        self.changed()

    def reuse(self, known: Hit) -> None:
        """Let a stored translation of the sentence be its translation."""
        hint = Hint(Span(0, len(self.sentence.text)), known)
        note = f"{REUSED} from {known.sentence.source}"
        draft = hint.phrase if self.together else ""
        found = Translation(self.sentence, hint.phrase, (hint,), used=(True,), notes=(note,), draft=draft)
        self._end(replace(found, terms=self._usages(found.text)))
        self.changed()

    def _keep_draft(self, *notes: str) -> None:
        """Let the draft be the translation, with further notes."""
        assert self.draft is not None
        notes = (*self.draft.translation.notes, *notes)
        self._settle(self.draft, notes=notes, draft=self.draft.text, recalled=self.recalled)

    def _built(self, hints: Sequence[Hint]) -> Prompt:
        return self.translator.prompts.build(self.sentence, hints, self.terms, self.context)

    def _usages(self, text: str) -> tuple[Usage, ...]:
        return self.translator.terms.usages(self.terms, text)

    def _settle(self, answer: Answer, **further: Any) -> None:
        """Let an answer be the translation, with `further` fields, unless something is missing that can be asked
        for."""
        made = answer.translation
        translation = replace(made, **further, terms=self._usages(made.text) if made.ok else ())
        self.prompt, self.completion = answer.prompt, answer.completion
        if made.ok:
            self.repair = Repair.of(self.translator.terms, self.sentence, replace(answer, translation=translation))
        if self.repair is None:
            self._end(translation)

    def _end(self, translation: Translation) -> None:
        """Let this be the translation."""
        self.translation = replace(translation, hints_away=self.hints_away)

    def ask_again(self, repair: Repair, asking: Asking | None) -> None:
        """Take the question for what is missing; without one the best answer is the translation."""
        if asking is None:
            self._end(repair.best.answer.translation)
        else:
            repair.ask(asking)
        self.changed()

    def _repaired(self, repair: Repair, answer: Answer) -> None:
        """Take the answer to a question for what is missing."""
        if repair.take(answer):
            self.prompt, self.completion = answer.prompt, answer.completion
        if repair.ended:
            self._end(repair.best.answer.translation)

    def shown(self, hints: Sequence[Hint]) -> Sequence[Hint]:
        """Those of the retrieved hints that the prompt may show."""
        return hints

    def changed(self) -> None:
        """Called whenever something of the task has changed."""


T = TypeVar("T", bound=SentenceTask)


def prepare(tasks: Sequence[SentenceTask]) -> None:
    """Give tasks of one translator what they need to be answered next, each kind by one call of the retriever: their
    prompts, with the hints that are retrieved (none for a draft), what is recalled for their drafts, or questions for
    what is missing."""
    new = [task for task in tasks if task.prompt is None]
    if new:
        translator = new[0].translator
        retrieved, away = _retrieved(new)
        for task, hints in zip(new, retrieved, strict=True):
            task.hints_away, task.plain = away, translator.memory is None
            task.terms = translator.terms.glossary.first_matches(task.sentence.text)
            task.hints = task.shown(hints)
            context = () if task.drafts else task.context
            task.prompt = translator.prompts.build(task.sentence, task.hints, task.terms, context)
            task.changed()
        if translator.reuse_known and translator.memory is not None:
            hits, away = translator.hint_source.ask(lambda it: _memory(it).known(_sentences(new)), [None] * len(new))
            for task, known in zip(new, hits, strict=True):
                task.hints_away = away
                if known is not None:
                    task.reuse(known)
    drafted = [(t, t.draft.text) for t in tasks if t.draft is not None and not t.continued and t.ready]
    if drafted:
        waiting, drafts = [task for task, _ in drafted], [encodable(draft) for _, draft in drafted]
        translator, nothing = waiting[0].translator, [None] * len(waiting)
        found: Sequence[Recalled | None] = nothing
        away = ""
        if translator.memory is not None:
            found, away = translator.hint_source.ask(
                lambda it: _memory(it).recall(_sentences(waiting), drafts), nothing
            )
        for task, recalled in zip(waiting, found, strict=True):
            if translator.memory is not None:  # what it knows was looked for before
                task.hints_away = away or (task.hints_away if translator.reuse_known else "")
            task.recall(recalled)
    repairs = [(task, task.repair) for task in tasks if task.repair is not None and task.waits]
    if repairs:
        askings = repairs[0][0].translator.terms.ask([repair.lacking for _, repair in repairs])
        for (task, repair), asking in zip(repairs, askings, strict=True):
            task.ask_again(repair, asking)


def _memory(retriever: Retriever) -> DraftRetriever:
    """The retriever, which is known to be a memory."""
    return cast(DraftRetriever, retriever)


def _retrieved(tasks: Sequence[SentenceTask]) -> tuple[Sequence[tuple[Hint, ...]], str]:
    """The hints of each task of a translator, and why its index was not asked; a memory is asked for drafts later."""
    translator, nothing = tasks[0].translator, [()] * len(tasks)
    if translator.memory is not None:
        return nothing, ""
    return translator.hint_source.ask(
        # One that is opened just now may be a memory.
        lambda it: nothing if hasattr(it, "recall") else it.retrieve(_sentences(tasks)),
        nothing,
    )


def _sentences(tasks: Sequence[SentenceTask]) -> list[Sentence]:
    """The tasks' sentences as an encoder takes them: half surrogates are replaced as in the prompt."""
    return [replace(task.sentence, text=encodable(task.sentence.text)) for task in tasks]
