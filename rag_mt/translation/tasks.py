"""The flow, written once: a sentence becomes a prompt with hints, a language model answers, a translation is read.

All that translates (`Translator`, streams, file jobs, the server and evaluation) makes tasks and puts them into a
`TaskQueue`, which a language model empties.

Where the retriever is a memory (a `DraftRetriever`) the model answers a plain prompt first:

    sentence -> plain prompt -> draft -> recall -> hints to show -> prompts with hints -> translation
                                                -> else the draft is the translation

so that what nothing is recalled for costs and says what it does without a retriever. With `consensus` hints are shown
together (the first MOST_SIMILAR) and each alone, all at the same time, and of the draft and these answers the one is
taken that the others and the hits support most: what a wrong hint led to, the others do not say.

With context the sentences of a document are drafted first too, with the hints that are retrieved, and their second
prompts show the drafts of those around them (see `rag_mt.translation.context`). They show drafts alone, never what
became of them, so that the prompts do not depend on which sentence is finished first.

With a glossary the prompts show the terms of a sentence. A translation that lacks one is asked for again, once for each
term (see `rag_mt.translation.terms`), and stays as it is where that does not help:

    translation -> lacks a term -> prompt with the beginning of the answer -> better translation, or the same
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from prompts.builder import MOST_SIMILAR
from prompts.safety import encodable
from rag_mt.base.terms import Term, TermMatch, Usage
from rag_mt.base.types import Completion, Hint, Hit, Neighbour, Prompt, Recalled, Sentence, Span, Translation
from rag_mt.translation.terms import Asking, Lacking, lacks

if TYPE_CHECKING:
    from rag_mt.translation.translator import Translator

RECALLED_TOGETHER = 16
"""Drafts for which a memory is asked in one call, as long as other sentences keep the language model busy."""
Pair = tuple[str, str]
"""A sentence that is translated already with its translation; an empty one is not shown."""
DRAFT_STANDS = "the draft stands"
"""How the note begins that says that no translation could be read from the answer with hints or context."""
WHOLE = 0.6
"""Share of the characters of the translation so far that one with further terms has at least: others broke off."""
REUSED = "translated before: reused"
"""How the note begins that says where a translation was taken from."""


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


@dataclass(eq=False)
class SentenceTask:
    """One sentence on its way: its prompt once hints are found, the answer as far as it is, the `first` whole one, and
    the completion and the translation at the end.

    `hints` are those that were retrieved. `neighbours` are the sentences around it by their distance, tasks or pairs of
    what is translated already; tasks of a document that are translated `together` are drafted first.

    With a memory there are a `draft` and what was `recalled` for it in between, `hinted` are the prompts with hints or
    context, which are answered independently once the draft is `continued`, and `candidates` the answers by their
    numbers; at the end `prompt` and `completion` are those of the answer that was chosen. `terms` are the glossary's of
    the sentence, `best` is the answer that lacks the fewest, `current` the one that is being worked on, `asking` the
    question for one of the terms that it lacks, and `repairs` are the answers to such questions, which were about the
    terms `asked`."""

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
    best: Answer | None = None
    current: Answer | None = None
    asking: Asking | None = None
    asked: set[Term] = field(default_factory=set)
    repairs: list[Answer] = field(default_factory=list)

    @property
    def wanted(self) -> bool:
        """Whether anybody waits for the translation."""
        return True

    @property
    def drafts(self) -> bool:
        """Whether the first answer is a draft."""
        return self.together or self.translator.memory is not None

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
        if self.best is not None:
            return [] if self.asking is None else [self.asking.prompt]
        if self.draft is None:
            return [self.prompt]
        return [prompt for number, prompt in enumerate(self.hinted) if number not in self.candidates]

    @property
    def waits(self) -> bool:
        """Whether the task has to be prepared for what is asked next."""
        if self.translation is not None:
            return False
        if self.best is not None:
            return self.asking is None
        return self.prompt is None or (self.draft is not None and not self.continued)

    @property
    def prompts(self) -> list[Prompt]:
        """All prompts so far, that of the draft first."""
        first = self.prompt if self.draft is None else self.draft.prompt
        return [*([] if first is None else [first]), *self.hinted, *(answer.prompt for answer in self.repairs)]

    @property
    def answers(self) -> list[Completion]:
        """All completions, that of the draft first."""
        again = [answer.completion for answer in self.repairs]
        if self.draft is None:
            return again if self.first is None else [self.first.completion, *again]
        return [self.draft.completion, *(answer.completion for _, answer in sorted(self.candidates.items())), *again]

    @property
    def begun(self) -> str:
        """How the translation begins for sure: further tokens cannot change it, and no draft is among it that might
        still give way to another translation."""
        if self.translation is not None:
            return self.translation.text
        if self.prompt is None or not self.answer or self.terms or (self.drafts and not self.hinted):
            return ""
        return self.translator.sure_beginning(self.sentence, self.prompt, self.answer)

    def progress(self, text: str) -> None:
        """Take an answer as far as it is; of several that are under way none is known to be the one."""
        if text != self.answer and len(self.hinted) < 2:
            self.answer = text
            self.changed()

    def read(self, prompt: Prompt, completion: Completion) -> None:
        """Take the completion of a prompt, and read the draft or the translation from it."""
        answer = Answer(prompt, completion, self.translator.read(self.sentence, prompt, completion))
        if self.asking is not None:
            self._repaired(answer)
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
        from retrievers.memory.overlap import by_support  # what searches is imported when something is searched

        assert self.draft is not None
        candidates = [self.candidates[number] for number in range(len(self.hinted))]
        read = [candidate for candidate in candidates if candidate.translation.ok]
        if not read:
            first = candidates[0]
            reasons = "; ".join(first.translation.notes[len(first.prompt.notes) :])
            shown = "hints" if first.prompt.hints else "context"
            self._keep_draft(f"{DRAFT_STANDS}: no translation could be read from the answer with {shown} ({reasons})")
            return
        if len(candidates) > 1:
            read += [self.draft] if self.draft.translation.ok else []
            hits = [(hint.phrase, hint.hit.score) for hint in self.recalled.hints] if self.recalled else []
            read = [read[number] for number in by_support([answer.text for answer in read], hits)]
            if self.terms:
                read.sort(key=lambda answer: lacks(self._usages(answer.text)))
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
        self._finish(replace(found, terms=self._usages(found.text)))
        self.changed()

    def _keep_draft(self, *notes: str) -> None:
        """Let the draft be the translation, with further notes."""
        assert self.draft is not None
        notes = (*self.draft.translation.notes, *notes)
        self._settle(self.draft, notes=notes, draft=self.draft.text, recalled=self.recalled)

    def _built(self, hints: Sequence[Hint]) -> Prompt:
        return self.translator.prompts.build(self.sentence, hints, self.terms, self.context)

    def _usages(self, text: str) -> tuple[Usage, ...]:
        keeper = self.translator.terms
        return keeper.usages(self.terms, text) if keeper is not None and self.terms else ()

    def _settle(self, answer: Answer, **further: Any) -> None:
        """Let an answer be the translation, with `further` fields, unless terms are missing that can be asked for."""
        made = answer.translation
        translation = replace(made, **further, terms=self._usages(made.text) if made.ok else ())
        self.prompt, self.completion = answer.prompt, answer.completion
        if any(not usage.ok and usage.match.term.allowed for usage in translation.terms):
            self.best = self.current = replace(answer, translation=translation)
        else:
            self._finish(translation)

    def _finish(self, translation: Translation) -> None:
        """Let this be the translation, with notes on the terms that are not as the glossary wants them."""
        notes = [fault for usage in translation.terms for fault in usage.faults]
        self.translation = replace(translation, notes=(*translation.notes, *notes))

    @property
    def lacking(self) -> Lacking:
        """What is known of the current answer and the terms that it lacks."""
        assert self.current is not None
        found = [usage for usage in self.current.translation.terms if not usage.ok]
        missing = tuple(usage for usage in found if usage.match.term.allowed and usage.match.term not in self.asked)
        return Lacking(self.sentence, self.current.translation, self.current.prompt, missing)

    def ask_again(self, asking: Asking | None) -> None:
        """Take the question for missing terms; without one the best answer is the translation."""
        assert self.best is not None
        self.asking = asking
        if asking is None:
            self._finish(self.best.translation)
        else:
            self.asked.update(asking.terms)
        self.changed()

    def _repaired(self, answer: Answer) -> None:
        """Take the answer to a question for missing terms. It is worked on if it has what was asked for and lacks no
        more than before: another term that got lost behind it is asked for next."""
        assert self.best is not None and self.current is not None and self.asking is not None
        made, best = answer.translation, self.best.translation
        if made.ok and len(made.notes) <= len(best.notes) and len(made.text) > WHOLE * len(best.text):
            terms = self._usages(made.text)
            new = replace(best, text=made.text, used=made.used, terms=terms)
            taken = Answer(self.best.prompt, answer.completion, new)
            if lacks(terms) <= lacks(self.current.translation.terms) and self.asking.answered_by(terms):
                self.current = taken
            if lacks(terms) < lacks(best.terms):
                self.best = taken
                self.prompt, self.completion = answer.prompt, answer.completion
        self.asking = None
        self.repairs.append(answer)
        if not self.lacking.missing:
            self._finish(self.best.translation)

    def shown(self, hints: Sequence[Hint]) -> Sequence[Hint]:
        """Those of the retrieved hints that the prompt may show."""
        return hints

    def changed(self) -> None:
        """Called whenever something of the task has changed."""


T = TypeVar("T", bound=SentenceTask)


def by_translator(tasks: Iterable[T]) -> list[list[T]]:
    """The tasks of each translator."""
    groups: dict[Translator, list[T]] = {}
    for task in tasks:
        groups.setdefault(task.translator, []).append(task)
    return list(groups.values())


def prepare(tasks: Sequence[SentenceTask]) -> None:
    """Give tasks of one translator what they need to be answered next, each kind by one call of the retriever: their
    prompts, with the hints that are retrieved (none for a draft), what is recalled for their drafts, or questions for
    missing terms."""
    new = [task for task in tasks if task.prompt is None]
    if new:
        translator = new[0].translator
        plain = translator.memory is not None
        retrieved = [()] * len(new) if plain else translator.retriever.retrieve(_sentences(new))
        for task, hints in zip(new, retrieved, strict=True):
            if translator.terms is not None:
                task.terms = translator.terms.glossary.first_matches(task.sentence.text)
            task.hints = task.shown(hints)
            context = () if task.drafts else task.context
            task.prompt = translator.prompts.build(task.sentence, task.hints, task.terms, context)
            task.changed()
        if translator.reuse_known and translator.memory is not None:
            for task, known in zip(new, translator.memory.known(_sentences(new)), strict=True):
                if known is not None:
                    task.reuse(known)
    drafted = [(t, t.draft.text) for t in tasks if t.draft is not None and not t.continued and t.ready]
    if drafted:
        waiting, drafts = [task for task, _ in drafted], [encodable(draft) for _, draft in drafted]
        memory = waiting[0].translator.memory
        hits = memory.recall(_sentences(waiting), drafts) if memory is not None else [None] * len(waiting)
        for task, recalled in zip(waiting, hits, strict=True):
            task.recall(recalled)
    lacking = [task for task in tasks if task.best is not None and task.asking is None and task.translation is None]
    if lacking:
        keeper = lacking[0].translator.terms
        assert keeper is not None
        for task, asking in zip(lacking, keeper.ask([task.lacking for task in lacking]), strict=True):
            task.ask_again(asking)


def _sentences(tasks: Sequence[SentenceTask]) -> list[Sentence]:
    """The tasks' sentences as an encoder takes them: half surrogates are replaced as in the prompt."""
    return [replace(task.sentence, text=encodable(task.sentence.text)) for task in tasks]


class TaskQueue(Generic[T]):
    """Tasks as the prompts of a language model (a `PromptQueue`): prompts are made when they are taken, translations
    are read from the answers. `running` are those that are being answered, by the number of the prompt.

    Drafts wait until RECALLED_TOGETHER of them are there or nothing else is left to answer, and until those around them
    are there; prompts with what was recalled are the next to be answered.
    """

    def __init__(self, tasks: Iterable[T] = (), finished: Callable[[T], object] = lambda task: None) -> None:
        """`finished` is told of each task whose translation is there."""
        self._waiting = deque(tasks)
        self._drafted: list[T] = []
        self._questions: deque[tuple[T, Prompt]] = deque()
        self._finished = finished
        self._taken = 0
        self.running: dict[int, T] = {}
        self._prompts: dict[int, Prompt] = {}

    def next_tasks(self, most: int) -> Sequence[T]:
        """Up to `most` tasks to answer next."""
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    def prepare(self, tasks: Sequence[T]) -> None:
        """See the function of that name."""
        prepare(tasks)

    def failed(self, tasks: Sequence[T], error: BaseException) -> None:
        """Called for tasks whose prompts cannot be made or whose answers cannot be read."""
        raise error

    def take(self, most: int) -> Sequence[Prompt]:
        """See `PromptQueue.take`."""
        taken: list[Prompt] = []
        while len(taken) < most:
            ready = [task for task in self._drafted if task.wanted and task.ready]
            if len(ready) >= RECALLED_TOGETHER:
                self._recall(ready)
            if not self._questions:
                if new := self.next_tasks(most - len(taken)):
                    self._ask(new)
                elif ready and not taken:
                    self._recall(ready)
                else:
                    break
            while self._questions and len(taken) < most:
                task, prompt = self._questions.popleft()
                if task.wanted:
                    self.running[self._taken], self._prompts[self._taken] = task, prompt
                    self._taken += 1
                    taken.append(prompt)
        return taken

    @property
    def left(self) -> list[T]:
        """The wanted tasks whose drafts still wait for those of tasks that are not in the queue."""
        return [task for task in self._drafted if task.wanted]

    def _recall(self, ready: Sequence[T]) -> None:
        """Let these, of the drafts that wait, be gone on from."""
        self._drafted = [task for task in self._drafted if task.wanted and not task.ready]
        self._ask(ready)

    def _ask(self, tasks: Sequence[T]) -> None:
        """Prepare tasks, and let their questions be answered next; some fail, or their draft is the translation."""
        for group in by_translator(tasks):
            try:
                self.prepare(group)
            except BaseException as error:
                self.failed(group, error)
        for task in tasks:
            if task.translation is not None:
                self._finished(task)
            elif task.waits:
                self.drafted(task)
            self._questions.extend((task, prompt) for prompt in task.questions)

    def progress(self, number: int, text: str) -> bool:
        """See `PromptQueue.progress`."""
        task = self.running[number]
        if task.wanted:
            task.progress(text)
        return task.wanted

    def finish(self, number: int, completion: Completion) -> None:
        """See `PromptQueue.finish`."""
        task, prompt = self.running.pop(number), self._prompts.pop(number)
        if not task.wanted:
            return
        try:
            task.read(prompt, completion)
        except BaseException as error:
            self.failed([task], error)
        else:
            if task.translation is not None:
                self._finished(task)
            elif task.waits:
                self.drafted(task)

    def drafted(self, task: T) -> None:
        """Called for each task that waits for what is recalled for its draft, or for a question for missing terms."""
        self._drafted.append(task)


def longest_first(tasks: Iterable[T]) -> list[T]:
    """Prepared tasks in the order in which they are answered fastest: by the length of their prompts."""
    return sorted(tasks, key=lambda task: -len(task.prompt.text) if task.prompt else 0)


def translate_all(tasks: Sequence[T], finished: Callable[[T], object] = lambda task: None) -> Iterator[None]:
    """Translate tasks of one translator; advance the iterator to its end. `finished` hears of each as it ends."""
    if tasks:
        prepare(tasks)
        yield from tasks[0].translator.answer(TaskQueue(longest_first(tasks), finished))
