"""Hints and a sentence become a prompt that fits the language model's window.

A prompt has one of five shapes ("wrappers"). `alpaca` suits base models with an adapter trained on that shape (CCPR
section 6.3), `chat` models with a chat template of their own, `few-shot` untuned base models. `compact` is few-shot
without the examples: for small models with an adapter, which learn more from a second of training where a prompt has
fewer tokens. `translategemma` is for chat templates that want the bare sentence and language codes and write the
instruction themselves, as TranslateGemma's does: it has no place for hints.

The wording stands in template files and in files of worked examples, "shots" (see `prompts.wording`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache
from typing import Any, get_args

from prompts.context import CODED, alike_line, context_text, nearest, shown_context
from prompts.safety import MARKS, Guard, one_line
from prompts.style import NO_STYLE, Style
from prompts.wording import filled, has_shots, shot_languages, shots, templates_hash
from rag_mt.base.errors import UserError
from rag_mt.base.files import settings_hash
from rag_mt.base.languages import base_code, language
from rag_mt.base.terms import TermMatch
from rag_mt.base.types import Hint, LanguageModel, Neighbour, Prompt, Sentence, Unit

FORMAT = 2
"""Part of a job's fingerprint: raise it when code, not wording, changes the prompts."""
WRAPPERS = ("alpaca", "few-shot", "chat", "compact", CODED)
MAX_HINTS = 32
"""Hints per sentence (the CCPR authors' code)."""
CONTEXT_CHARS = 100
"""Characters of a hint's context or passage (CCPR section 6.3), the ellipses around them included."""
LONGEST_PASSAGE = 1200
"""Characters of a passage that a model is asked a question about."""
LIKELY = 0.5
"""The score from which on a hint is called one in compact prompts; below it is a mere maybe. Scores of CCPR are
probabilities that the hint is right."""
MOST_SIMILAR = 3
"""Whole sentences of a memory that a prompt shows."""
MISLEADING = 2
"""The number (from 0) of the shot that is given the first one's hint: not every hint of the examples is right."""


class PromptBuilder:
    """Builds the prompts of one direction, wrapper and unit.

    `source` and `target` are language codes; `wrapper` is one of WRAPPERS or `auto`; `unit` is what the retriever's
    hits are. With `llm`, a prompt and its `max_new_tokens` fit the model's window wherever dropping hints can make it
    so, and the control tokens of the model cannot come in with the text. Raises UserError for an unknown language,
    wrapper or unit.
    """

    def __init__(
        self,
        source: str,
        target: str,
        wrapper: str,
        unit: Unit = "phrase",
        *,
        llm: LanguageModel | None = None,
        max_new_tokens: int = 256,
    ) -> None:
        if unit not in get_args(Unit):
            raise UserError(f"unknown retrieval unit {unit!r}: expected one of {', '.join(get_args(Unit))}")
        self.source, self.target = language(source).code, language(target).code
        self.wrapper = resolved_wrapper(wrapper, self.source, self.target, llm)
        self.unit, self.max_new_tokens = unit, max_new_tokens
        self._llm = llm
        self._guard = Guard(llm.reserved if llm is not None else ())
        self.style, self._style_text = NO_STYLE, ""

    def with_style(self, style: Style) -> PromptBuilder:
        """A builder that asks for a style; raises UserError if its prompts have no place for one."""
        style.check(self.wrapper, self._llm.id if self._llm is not None else "this model")
        other = copy(self)
        other.style, other._style_text = style, style.text(self.target, self._guard)
        return other

    def with_unit(self, unit: Unit) -> PromptBuilder:
        """A builder for hits of another kind."""
        other = copy(self)
        other.unit = unit
        return other

    @property
    def settings(self) -> dict[str, object]:
        """All that could change a prompt beside the style, JSON-able; belongs into a job's fingerprint."""
        return {
            "source": self.source,
            "target": self.target,
            "wrapper": self.wrapper,
            "unit": self.unit,
            "max_hints": MAX_HINTS,
            "context_chars": CONTEXT_CHARS,
            "max_new_tokens": self.max_new_tokens,
            "context_length": self._llm.context_length if self._llm is not None else None,
            "reserved": settings_hash(sorted(self._guard.reserved)),
            "templates": templates_hash(),
            "format": FORMAT,
        }

    def build(
        self,
        sentence: Sentence,
        hints: Sequence[Hint],
        terms: Sequence[TermMatch] = (),
        context: Sequence[Neighbour] = (),
    ) -> Prompt:
        """The prompt for one sentence with the terms of a glossary that it has, and with the hints that are worth
        showing and fit, in source order. Of the `context` as many sentences are shown as fit beside all hints, the
        nearest ones. `notes` count the hints that were left out and why, and say if all context was. A prompt that is
        too long even without hints is returned with a note that says so; the sentence itself is never cut."""
        apart = [h for h in hints if h.hit.whole or not any(h.source_span.overlaps(term.span) for term in terms)]
        ranked, left_out = chosen_hints(sentence.text, apart, self.unit, MAX_HINTS)
        left_out += Counter({"for terms of the glossary": len(hints) - len(apart)})
        if self.wrapper == CODED and ranked:
            left_out[f"for which the prompt style {CODED} has no place"], ranked = len(ranked), []
        context = shown_context(self.wrapper, context)
        prompt, excess_tokens = self._fitting(sentence, ranked, terms, context)
        length = self._llm.context_length if self._llm is not None else 0
        window = f"the model's window of {length} tokens beside {self.max_new_tokens} new ones"
        notes = []
        if left_out:
            reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
            notes.append(f"hints left out: {reasons}")
        if weakest := len(ranked) - len(prompt.hints):
            notes.append(f"hints left out: the {weakest} weakest of {len(ranked)}, to fit {window}")
        if context and not prompt.context:
            notes.append(f"context left out: no sentence of it fits {window}")
        if excess_tokens:
            notes.append(f"the prompt of {excess_tokens} tokens does not fit {window}")
        return replace(prompt, notes=tuple(notes))

    def begun(self, prompt: Prompt, beginning: str) -> Prompt:
        """The prompt whose answer begins with a text, from which the model goes on."""
        blank = "" if prompt.chat else " "
        return replace(prompt, begun=f"{blank}{self._guard.neutral(one_line(beginning))}", notes=())

    def _fitting(
        self, sentence: Sentence, ranked: Sequence[Hint], terms: Sequence[TermMatch], context: Sequence[Neighbour]
    ) -> tuple[Prompt, int]:
        """The prompt with the most of the strongest hints that fits, with the most of the context where all hints do,
        and its length in tokens if it is too long without any."""
        llm, whole = self._llm, self._prompt(sentence, ranked, terms, context)
        if llm is None:
            return whole, 0
        room = llm.context_length - self.max_new_tokens
        if llm.count_tokens(whole) <= room:
            return whole, 0
        if context:

            def too_far(most: int) -> bool:
                return llm.count_tokens(self._prompt(sentence, ranked, terms, nearest(context, most))) > room

            if fitting := bisect_left(range(len(context)), True, key=too_far):
                return self._prompt(sentence, ranked, terms, nearest(context, fitting - 1)), 0
            whole = self._prompt(sentence, ranked, terms)
        plain = self._prompt(sentence, (), terms) if ranked else whole
        if (tokens := llm.count_tokens(plain)) > room:
            return plain, tokens

        def too_long(hints: int) -> bool:
            return llm.count_tokens(self._prompt(sentence, ranked[:hints], terms)) > room

        fitting = bisect_left(range(1, len(ranked)), True, key=too_long)
        return self._prompt(sentence, ranked[:fitting], terms), 0

    def _prompt(
        self,
        sentence: Sentence,
        ranked: Sequence[Hint],
        terms: Sequence[TermMatch],
        context: Sequence[Neighbour] = (),
    ) -> Prompt:
        shown = tuple(sorted(ranked, key=lambda hint: hint.source_span))
        terms = tuple(term for term in terms if term.term.allowed) if self.wrapper != CODED else ()
        as_hints = self.wrapper in ("few-shot", "compact")  # models without instructions know hints alone
        kind = self.unit if shown else "phrase" if terms and as_hints else "plain"
        fields = {"source": self._guard.neutral(one_line(sentence.text)), "translation": "", "terms": ""}
        fields["style"] = self._style_text
        fields["context"] = context_text(self.wrapper, context, self._guard, _names(self.source, self.target))
        name = f"{self.wrapper if as_hints else 'task'}.hint"
        term_lines = [term_line(name, sentence.text, term, self._guard) for term in terms] if as_hints else []
        if terms and not as_hints:
            lines = [filled("task.term", term_fields(sentence.text, term, self._guard)) for term in terms]
            fields["terms"] = filled("task.terms", {"lines": "\n".join(lines)})
        elif kind not in ("phrase", "memory"):
            fields["terms"] = "".join(f"{line}\n" for line in term_lines)
        if kind in ("phrase", "memory"):
            lines = [hint_line(name, sentence.text, hint, self._guard) for hint in shown if not _similar(kind, hint)]
            lines = [*term_lines, *lines]
            similar = sorted((hint for hint in shown if _similar(kind, hint)), key=lambda hint: hint.hit.score)
            lines += [similar_line(hint, self._guard) for hint in similar]  # the most similar one next to the sentence
            fields["hints"] = "\n".join(lines)
        elif shown:
            related = shown[0].phrase if kind == "sentence" else shown[0].context(CONTEXT_CHARS).text
            fields["related"] = self._guard.neutral(one_line(related))
        if self.wrapper == CODED:
            return Prompt(fields["source"], chat=True, source=self.source, target=self.target, coded=True)
        shape = (self.wrapper, kind, self.source, self.target)
        chat = self.wrapper == "chat"
        stop = () if chat else ("\n",)
        text, shared = _question(*shape, fields), _shared_length(*shape, self._style_text)
        more: dict[str, Any] = {"source": self.source, "target": self.target, "terms": terms}
        return Prompt(text, chat, shared, stop, shown, context=tuple(context), **more)


def resolved_wrapper(wrapper: str, source: str, target: str, llm: LanguageModel | None) -> str:
    """The wrapper's name, with `auto` decided; raises UserError for an unknown one or a pair without shots."""
    trained: str | None = getattr(llm, "trained_wrapper", None)  # what the adapter, if any, has learnt
    if wrapper == "auto":
        if trained and trained not in WRAPPERS:  # a foreign file: the name must not become a path
            raise UserError(
                f"the adapter's training.json names the prompt wrapper {trained[:60]!r}: expected one of "
                f"{', '.join(WRAPPERS)}; choose one with --wrapper"
            )
        if trained:
            return trained
        if llm is not None and llm.has_chat_template:
            return CODED if getattr(llm, "takes_language_codes", False) else "chat"
        return "few-shot" if has_shots(source, target) and not getattr(llm, "adapter", None) else "alpaca"
    if wrapper not in WRAPPERS:
        raise UserError(f"unknown prompt wrapper {wrapper!r}: expected one of auto, {', '.join(WRAPPERS)}")
    if wrapper == "few-shot" and not has_shots(source, target):
        raise UserError(
            f"there are no few-shot examples for {source}-{target}: they exist between {', '.join(shot_languages())}; "
            "choose the wrapper alpaca or chat"
        )
    return wrapper


def chosen_hints(text: str, hints: Sequence[Hint], unit: Unit, limit: int) -> tuple[list[Hint], Counter[str]]:
    """The hints worth showing for the sentence `text`, strongest first, and how many were left out for which reason.

    Of hints with the same source text and phrase the strongest stays; of phrase hints whose source spans overlap
    the strongest stays, so that the spans of the result are disjoint. Ties go to the earlier, longer span.
    A phrase longer than its context may be is left out: it cannot be cut without losing its meaning.
    Sentence and passage prompts show one hint, those of a memory up to MOST_SIMILAR whole sentences besides phrases.
    """

    def weakness(hint: Hint) -> tuple[float, int, int, str]:
        score = -math.inf if math.isnan(hint.hit.score) else hint.hit.score
        return (-score, hint.source_span.start, -len(hint.source_span), hint.phrase)

    left_out: Counter[str] = Counter()
    chosen: dict[tuple[str, ...], Hint] = {}
    for hint in sorted(hints, key=weakness):
        pair = tuple(" ".join(part.split()) for part in (hint.source_span.of(text), hint.phrase))
        is_phrase = unit == "phrase" or (unit == "memory" and not hint.hit.whole)
        others = [other for other in chosen.values() if unit != "memory" or other.hit.whole != is_phrase]
        most = limit if is_phrase else min(limit, MOST_SIMILAR if unit == "memory" else 1)
        if not all(pair) or hint.source_span.end > len(text) or math.isnan(hint.hit.score):
            left_out["empty"] += 1
        elif is_phrase and len(hint.phrase) > CONTEXT_CHARS:
            left_out["longer than the context limit"] += 1
        elif pair in chosen:
            left_out["repeated"] += 1
        elif is_phrase and any(hint.source_span.overlaps(other.source_span) for other in others):
            left_out["overlapping"] += 1
        elif len(others) >= most:
            left_out[f"beyond the limit of {most}"] += 1
        else:
            chosen[pair] = hint
    return list(chosen.values()), left_out


def hint_line(name: str, text: str, hint: Hint, guard: Guard) -> str:
    """One hint of the sentence `text` by the template `name`: the source phrase, the target phrase, and its context
    with the phrase between the marks."""
    context = hint.context(CONTEXT_CHARS)
    a, b = context.phrase.start, context.phrase.end
    texts = (context.text[:a], context.text[a:b], context.text[b:])
    before, phrase, after = (_keeping_blanks(guard, part) for part in texts)
    label = "Hint" if hint.hit.score >= LIKELY else "Maybe"
    return _hint_line(name, guard.neutral(one_line(hint.source_span.of(text))), before, phrase, after, label)


def term_line(name: str, text: str, match: TermMatch, guard: Guard) -> str:
    """A term of the glossary in the shape of a hint that is its own context: its first translation."""
    source, translation = match.span.of(text), match.term.allowed[0]
    phrase = _keeping_blanks(guard, translation)
    return _hint_line(name, guard.neutral(one_line(source)), "", phrase, "")


def term_fields(text: str, match: TermMatch, guard: Guard) -> dict[str, str]:
    """A term of the glossary with all of its translations, those that are forbidden, and its note."""
    term = match.term
    source, *allowed = (guard.neutral(one_line(part)) for part in (match.span.of(text), *term.allowed))
    forbidden = "".join(f"; never: {guard.neutral(one_line(part))}" for part in term.forbidden)
    note = f" ({guard.neutral(one_line(term.note))[:CONTEXT_CHARS]})" if term.note else ""
    return {"source_phrase": source, "translations": f"{' or '.join(allowed)}{forbidden}{note}"}


def _similar(kind: str, hint: Hint) -> bool:
    """Whether a hint is shown as a similar sentence, and not as a phrase with its context."""
    return kind == "memory" and hint.hit.whole


def similar_line(hint: Hint, guard: Guard) -> str:
    """A similar sentence, after the text that it translates where that is known, with its similarity in tens of a
    hundred: a small model learns little from a finer one."""
    percent = 10 * round(10 * min(max(hint.hit.score, 0.0), 1.0))
    return alike_line(percent, (hint.hit.original, hint.phrase), guard)


def _keeping_blanks(guard: Guard, part: str) -> str:
    """The part on one line, with a blank where it began or ended with one, so that words do not run together."""
    line = guard.neutral(one_line(part), brackets=True)
    return f"{' ' * part[:1].isspace()}{line}{' ' * part[-1:].isspace()}" if line else " " * bool(part)


def _hint_line(name: str, source_phrase: str, before: str, phrase: str, after: str, label: str = "Hint") -> str:
    context = f"{before}{MARKS[0]}{phrase}{MARKS[1]}{after}".strip()
    fields = {"label": label, "source_phrase": source_phrase, "phrase": phrase.strip(), "context": context}
    return filled(name, fields)


def _question(wrapper: str, kind: str, source: str, target: str, fields: dict[str, str]) -> str:
    """The text of a prompt; `kind` is the unit of its hints, or `plain` without any. `compact` prompts are filled into
    the templates of few-shot ones, without the examples."""
    fields = fields | _names(source, target)
    if wrapper not in ("few-shot", "compact"):
        return filled(wrapper, {"task": filled(f"task.{kind}", fields)})
    asked = filled(f"few-shot.{kind}.example", fields).rstrip()
    examples = _examples(kind, source, target) if wrapper == "few-shot" else ()
    shown = [*examples, *filter(None, [fields["context"]]), asked]
    between = "\n" if wrapper == "compact" else "\n\n"  # its context is lines of the question, not examples
    return filled(f"few-shot.{kind}", fields | {"examples": between.join(shown)})


def _names(source: str, target: str) -> dict[str, str]:
    return {"source_language": language(source).name, "target_language": language(target).name}


@lru_cache(256)
def _shared_length(wrapper: str, kind: str, source: str, target: str, style: str) -> int:
    """How many characters, whole lines, all prompts of this kind and style begin with."""
    fields = dict.fromkeys(("source", "hints", "related", "translation", "terms", "context"), "\0")
    text = _question(wrapper, kind, source, target, fields | {"style": style})
    return text.rfind("\n", 0, text.index("\0")) + 1


@lru_cache(256)
def _examples(kind: str, source: str, target: str) -> tuple[str, ...]:
    """The shots of a pair in exactly the shape of the question, equal for every question of a job."""
    blocks = []
    for number, shot in enumerate(shots()):
        asked, answer = shot[base_code(source)], shot[base_code(target)]
        shown = shots()[0][base_code(target)] if number == MISLEADING else answer
        fields = {
            "source_language": language(source).name,
            "target_language": language(target).name,
            "source": asked["text"],
            "translation": answer["text"],
            "related": shown["context"],
            "terms": "",
            "context": "",
            "hints": filled("similar", {"percent": "30", "sentence": shown["context"]})
            if kind == "memory"
            else _hint_line("few-shot.hint", asked["phrase"], *shown["context"].partition(shown["phrase"])),
        }
        blocks.append(filled(f"few-shot.{kind}.example", fields))
    return tuple(blocks)


def query_prompt(passage: str, code: str, llm: LanguageModel) -> Prompt:
    """Ask for one question, in the passage's language, that the passage answers: chat models by an instruction, others
    by two examples (in English where there are none in the language)."""
    guard = Guard(llm.reserved)
    shown = guard.neutral(one_line(passage[:LONGEST_PASSAGE]))
    if llm.has_chat_template:
        return Prompt(filled("queries/task", {"language": language(code).name, "passage": shown}), chat=True)
    passages = shots("queries/shots")  # with a question each
    known = base_code(code) if base_code(code) in passages[0] else "en"
    examples = "\n\n".join(filled("queries/few-shot", shot[known]) for shot in passages) + "\n\n"
    text = examples + filled("queries/few-shot", {"passage": shown, "question": ""}).rstrip()
    return Prompt(text, shared=len(examples), stop=("\n",))


def question_of(answer: str) -> str:
    """The question in a model's answer, on one line; empty if there is none."""
    lines = [line.strip(" \"'“”„«»") for line in answer.strip().splitlines()]
    question = next((line for line in lines if line.endswith(("?", "？", "؟"))), "")
    return one_line(question)
