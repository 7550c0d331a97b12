"""The shapes that a question takes for a language model: `alpaca`, `chat`, `few-shot` and `compact`.

`alpaca` suits base models with an adapter trained on that shape (CCPR section 6.3), `chat` models with a chat
template of their own, `few-shot` untuned base models. `compact` is few-shot without the examples: for small models with
an adapter, which learn more from a second of training where a prompt has fewer tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from prompts.hints import passage_window
from prompts.safety import MARKS, Guard, one_line
from prompts.shots import has_shots, shot_languages, shots
from prompts.templates import filled
from rag_mt.base.errors import UserError
from rag_mt.base.languages import base_code, language
from rag_mt.base.types import Hint, LanguageModel, Unit

WRAPPERS = ("alpaca", "few-shot", "chat", "compact")
STOPS = {"alpaca": ("\n",), "few-shot": ("\n",), "chat": (), "compact": ("\n",)}
EXAMPLE_SHAPED = ("few-shot", "compact")
LIKELY = 0.5
"""The score from which on a hint is called one in compact prompts; below it is a mere maybe. Scores of CCPR are
probabilities that the hint is right."""
MISLEADING = 2
"""The number (from 0) of the shot that is given the first one's hint: not every hint of the examples is right."""


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
            return "chat"
        if getattr(llm, "adapter", None):
            return "alpaca"
        return "few-shot" if has_shots(source, target) else "alpaca"
    if wrapper not in WRAPPERS:
        raise UserError(f"unknown prompt wrapper {wrapper!r}: expected one of auto, {', '.join(WRAPPERS)}")
    if wrapper == "few-shot" and not has_shots(source, target):
        known = ", ".join(shot_languages())
        raise UserError(
            f"there are no few-shot examples for {source}-{target}: they exist between {known}; "
            "choose the wrapper alpaca or chat"
        )
    return wrapper


def kind_of(unit: Unit, hints: Sequence[Hint]) -> str:
    """The name of the question's templates: the unit, or `plain` without hints."""
    return unit if hints else "plain"


def question(
    wrapper: str, unit: Unit, source: str, target: str, text: str, hints: Sequence[Hint], guard: Guard, chars: int
) -> str:
    """The prompt for the sentence `text` with these hints in this order; the plain prompt where there are none."""
    kind = kind_of(unit, hints)
    fields = {"source": guard.neutral(one_line(text)), "translation": ""}
    family = {"few-shot": "few-shot", "compact": "compact"}.get(wrapper, "task")
    if kind == "phrase":
        fields["hints"] = "\n".join(hint_line(family, text, hint, guard, chars) for hint in hints)
    elif hints:
        whole = kind == "sentence"
        quoted = hints[0].phrase if whole else passage_window(hints[0], text, chars)
        fields["related"] = guard.neutral(one_line(quoted))
    return _rendered(wrapper, kind, source, target, fields)


def _rendered(wrapper: str, kind: str, source: str, target: str, fields: dict[str, str]) -> str:
    fields = fields | _names(source, target)
    if wrapper not in EXAMPLE_SHAPED:
        return filled(wrapper, {"task": filled(f"task.{kind}", fields)})
    asked = filled(f"few-shot.{kind}.example", fields).rstrip()
    examples = _examples(kind, source, target) if wrapper == "few-shot" else ()
    return filled(f"few-shot.{kind}", fields | {"examples": "\n\n".join((*examples, asked))})


@lru_cache(256)
def shared_length(wrapper: str, kind: str, source: str, target: str) -> int:
    """How many characters, whole lines, all prompts of this kind begin with."""
    text = _rendered(wrapper, kind, source, target, dict.fromkeys(("source", "hints", "related", "translation"), "\0"))
    return text.rfind("\n", 0, text.index("\0")) + 1


def _names(source: str, target: str) -> dict[str, str]:
    return {"source_language": language(source).name, "target_language": language(target).name}


def hint_line(family: str, text: str, hint: Hint, guard: Guard, chars: int) -> str:
    """One hint: the source phrase, the target phrase, and its context with the phrase between the marks."""
    context = hint.context(chars)
    a, b = context.phrase.start, context.phrase.end
    before, phrase, after = (
        _kept_blanks(guard, part) for part in (context.text[:a], context.text[a:b], context.text[b:])
    )
    label = "Hint" if hint.hit.score >= LIKELY else "Maybe"
    return _hint_line(family, guard.neutral(one_line(hint.source_span.of(text))), phrase, before, after, label)


def _kept_blanks(guard: Guard, part: str) -> str:
    """The part on one line, with a blank where it began or ended with one, so that words do not run together."""
    line = guard.neutral(one_line(part), brackets=True)
    return f"{' ' * part[:1].isspace()}{line}{' ' * part[-1:].isspace()}" if line else " " * bool(part)


def _hint_line(family: str, source_phrase: str, phrase: str, before: str, after: str, label: str = "Hint") -> str:
    left, right = MARKS
    context = f"{before}{left}{phrase}{right}{after}".strip()
    fields = {"label": label, "source_phrase": source_phrase, "phrase": phrase.strip(), "context": context}
    return filled(f"{family}.hint", fields)


@lru_cache(256)
def _examples(kind: str, source: str, target: str) -> tuple[str, ...]:
    """The shots of a pair in exactly the shape of the question, equal for every question of a job."""
    names, blocks = _names(source, target), []
    asked, answered = base_code(source), base_code(target)
    for number, shot in enumerate(shots()):
        shown = (shots()[0] if number == MISLEADING else shot)[answered]
        before, _, after = shown.context.partition(shown.phrase)
        fields = {
            "source": shot[asked].text,
            "translation": shot[answered].text,
            "related": shown.context,
            "hints": _hint_line("few-shot", shot[asked].phrase, shown.phrase, before, after),
        }
        blocks.append(filled(f"few-shot.{kind}.example", names | fields))
    return tuple(blocks)
