"""Reads the translation out of what a language model answered."""

from __future__ import annotations

import re
from dataclasses import dataclass

from prompts.safety import CONTROL_TOKEN, MARKS, one_line, restored
from rag_mt.base.errors import UserError
from rag_mt.base.languages import language
from rag_mt.base.types import Completion, Prompt
from rag_mt.text.answers import without_loop

UNFINISHED = "the answer did not end (token limit, end of the model's window, or a loop) and may be incomplete"
LOOPED = "the answer repeated itself and was cut"

_HEADING = re.compile(r"#{2,}\s*(?:(instruction|input)\b)?", re.IGNORECASE)
_LABEL = re.compile(r"\*{0,2}([^\W\d_][^\n:：]{0,40})[:：](?:\*\*)?(?:\s+|$)")
_PROMPT_LABEL = re.compile(r"^([^\W\d_][^\n:]{0,40}):(?=\s|$)", re.MULTILINE)
_ANSWER_LABELS = {"translated text", "answer", "response", "output", "result"}
_THOUGHT = re.compile(r"\s*<think>.*?(?:</think>|\Z)", re.DOTALL)
_QUOTES = {pair[0]: pair[1] for pair in ('""', "''", "“”", "„“", "«»", "»«", "‘’", "‚‘", "””", "「」", "``")}
_QUOTE_CHARACTERS = frozenset(_QUOTES) | frozenset(_QUOTES.values())
_MARKED = re.compile("(.*?)".join(map(re.escape, MARKS)))  # blanks beside the marks are not its task: n^3 steps
_SENTENCE_END = re.compile(r"(?<=[.:])\s+")
_ECHO_WORDS, _ECHOED_SENTENCE_WORDS = 4, 6


@dataclass(frozen=True)
class Answer:
    """The translation alone; `ok` is false, and `text` empty, when none could be read. `notes` say what happened."""

    text: str
    ok: bool
    notes: tuple[str, ...]


def read_answer(completion: Completion, source: str, prompt: Prompt) -> Answer:
    """The translation of `source` in the answer to `prompt`.

    Labels, quotes, marks and control tokens that the model set around or into it are taken away, further lines and
    examples are cut off, loops are cut at their second round, and look-alikes become the user's own characters again.
    A translation that equals the source is as good as any other.
    """
    raw = _THOUGHT.sub("", completion.text.removeprefix(prompt.text), count=1)
    if CONTROL_TOKEN.search(raw) and not CONTROL_TOKEN.search(source):
        raw = CONTROL_TOKEN.split(raw, maxsplit=1)[0].rstrip() or CONTROL_TOKEN.sub("\n", raw)
    source = one_line(source)
    text, last, repeats = _answer_line(raw, source, prompt)
    if not text:
        reason = "the model only repeated the prompt" if repeats else "the model gave no answer"
        return Answer("", False, (reason, *(() if completion.finished else (UNFINISHED,))))
    text = _without_marks(text, source, prompt)
    notes = []
    if without_loop(source) == source and (cut := without_loop(text)) != text:
        text = cut
        notes.append(LOOPED)
    if last and not completion.finished:
        notes.append(UNFINISHED)
    text = restored(_unwrapped(text, source), source, prompt.text + prompt.begun).strip()
    if not any(map(str.isalnum, text)) and (any(map(str.isalnum, source)) or not text):
        return Answer("", False, ("the answer has no words", *notes))
    return Answer(text, True, tuple(notes))


def _answer_line(raw: str, source: str, prompt: Prompt) -> tuple[str, bool, bool]:
    """The line that answers, without labels; whether it is the last one; whether lines before it repeat the prompt."""
    labels, cue = _labels(prompt.text)
    lines = [line.strip() for line in raw.splitlines()]
    repeats = False
    for number, line in enumerate(lines):
        more = any(lines[number + 1 :])
        line, asked = _unlabelled(line, source, labels, cue)
        if asked:  # a line such as `German: ...`: the question once more, or an example that the model went on with
            repeats = True
            if _words(line) != _words(source):
                break
        elif not line or (more and line.endswith((":", "：")) and not source.endswith((":", "："))):
            continue  # `Here is the translation:`
        elif _repeats_prompt(line, source, prompt):
            repeats = True
        else:
            return _cut_inside(line, source, labels | cue), not more, repeats
    return "", True, repeats


def _labels(prompt: str) -> tuple[set[str], set[str]]:
    """The prompt's labels at line starts, and the one that it ends with, if it does, in lower case."""
    labels = {label.casefold() for label in _PROMPT_LABEL.findall(prompt)}
    final = _PROMPT_LABEL.fullmatch(prompt[prompt.rfind("\n") + 1 :].strip())
    cue = {final[1].casefold()} if final else set()
    return labels - cue, cue


def _unlabelled(line: str, source: str, labels: set[str], cue: set[str]) -> tuple[str, bool]:
    """The line without the labels before it, and whether one of them begins a question. What looks like a label is one
    only if the line has more colons than the source: `Answer: yes` may be a translation."""
    if heading := _HEADING.match(line) if not source.startswith("#") else None:
        line = line[heading.end() :]
        if heading[1]:
            return line, True
    while (match := _LABEL.match(line)) and _colons(line) > _colons(source):
        label = match[1].strip(" *").casefold()
        if label not in labels and label not in cue and not _names_translation(label):
            break
        line = line[match.end() :]
        if label in labels:
            return line, True
    return line, False


def _names_translation(label: str) -> bool:
    """Whether the label is such as `Answer`, `Here is the English translation` or a language's English name."""
    if label in _ANSWER_LABELS or label.endswith("translation"):
        return True
    try:
        return language(label).name.casefold() == label
    except UserError:
        return False


def _colons(text: str) -> int:
    return len(re.findall(r"[:：]", text))


def _cut_inside(line: str, source: str, labels: set[str]) -> str:
    """The line up to a heading or a label of the prompt that stands in it."""
    if "###" not in source:
        line = line.split("###")[0]
    names = "|".join(re.escape(label) for label in sorted(labels, key=len, reverse=True))
    if names and _colons(line) > _colons(source):
        line = re.split(rf"\s+(?:{names}):(?=\s|$)", line, maxsplit=1, flags=re.IGNORECASE)[0]
    return line.strip()


def _repeats_prompt(line: str, source: str, prompt: Prompt) -> bool:
    """Whether the line is part of a line of the prompt that shows neither the source nor a hint, or repeats a
    sentence of such a line. What an example says after a line like the source may be the translation."""
    answer, asked = (f" {_words(text)} " for text in (line, source))
    if answer == asked or len(answer.split()) < _ECHO_WORDS:
        return False
    lines = prompt.text.splitlines()
    if sum(asked in f" {_words(prompt_line)} " for prompt_line in lines) > 1:  # the source is one of the examples
        return False
    shown = [asked, *(f" {_words(hint.phrase)} " for hint in prompt.hints)]
    source_words = set(asked.split())
    for before, prompt_line in zip(["", *lines], lines, strict=False):
        words, words_before = f" {_words(prompt_line)} ", set(_words(before).split())
        alike = 2 * len(source_words & words_before) > max(len(source_words), len(words_before))
        if alike or any(text in words for text in shown):
            continue
        sentences = (f" {_words(part)} " for part in _SENTENCE_END.split(prompt_line))
        if answer in words or any(part in answer for part in sentences if len(part.split()) >= _ECHOED_SENTENCE_WORDS):
            return True
    return False


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _without_marks(text: str, source: str, prompt: Prompt) -> str:
    """The text without marks that the model copied from the hints' contexts; the user's own marks stay."""
    if not any(mark in prompt.text for mark in MARKS):
        return text
    if any(mark in source for mark in MARKS):
        phrases = {_words(hint.phrase) for hint in prompt.hints}
        return _MARKED.sub(lambda match: match[1].strip() if _words(match[1]) in phrases else match[0], text)
    text = _MARKED.sub(lambda match: match[1].strip(), text)
    for mark in MARKS:
        text = text.replace(mark, "")
    return text.strip()


def _unwrapped(text: str, source: str) -> str:
    """The text without quotes or asterisks that enclose all of it, unless the source has some at an end."""
    text = text.strip()
    if len(text) > 4 and text.startswith("**") and text.endswith("**") and "**" not in source:
        text = text[2:-2].strip()
    if len(text) < 3 or source[:1] in _QUOTE_CHARACTERS or source[-1:] in _QUOTE_CHARACTERS:
        return text
    inner, closing = text[1:-1], _QUOTES.get(text[0])
    enclosed = closing == text[-1] and text[0] not in inner and closing not in inner
    return inner.strip() if enclosed else text
