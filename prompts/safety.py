"""Keeps user text and retrieved text in their place inside a prompt, and gives the user's characters back.

A string that means something to the prompt or to the model (marks, headings, control tokens) is made harmless by
look-alikes of its punctuation: `[[x]]` becomes `⟦⟦x⟧⟧`, `</s>` becomes `⟨/s⟩`. The change is visible in the prompt,
one character for one, and a translation that carries the look-alikes over gets the original characters back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MARKS = ("[[", "]]")

LOOK_ALIKES = {"<": "⟨", ">": "⟩", "[": "⟦", "]": "⟧", "#": "♯", "|": "∣", "{": "❴", "}": "❵"}
SEPARATOR = "\u2060"  # word joiner: splits a reserved string that has no punctuation to replace

CONTROL_TOKEN = re.compile(
    r"""<[|｜][^<>|｜\n]{1,48}[|｜]>          # <|im_start|>, <|eot_id|>
    |</?(?:s|bos|eos|pad|unk|mask|think|start_of_turn|end_of_turn|unused\d+|sep|cls)>
    |\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]
    |<</?SYS>>""",
    re.VERBOSE,
)
_OWN = re.compile(rf"\[{{2,}}|\]{{2,}}|\#{{3,}}|{CONTROL_TOKEN.pattern}", re.VERBOSE)
_BLANKS = re.compile(r"\s+")
_BREAK = re.compile("[\t\n\v\f\r\x1c-\x1f\x85\u2028\u2029]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_BRACKETS = str.maketrans({c: LOOK_ALIKES[c] for c in "[]"})


def one_line(text: str) -> str:
    """The text on one line: each line break or tab with the blanks around it becomes one space; ends are trimmed. A
    lone surrogate, which no tokenizer can encode, becomes U+FFFD."""
    return encodable(_BLANKS.sub(lambda run: " " if _BREAK.search(run[0]) else run[0], text)).strip()


def encodable(text: str) -> str:
    """The text with U+FFFD for each lone surrogate, so that its length and offsets stay."""
    return _SURROGATE.sub("\ufffd", text)


class Guard:
    """Makes the reserved strings of one language model, and those of the prompts themselves, harmless in a text."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self.reserved = frozenset(r for r in map(str.strip, reserved) if len(r) > 1 and SEPARATOR not in r)
        self._lengths: dict[str, list[int]] = {}  # of the strings that begin with a character, the longest first
        for first, length in sorted({(token[0], len(token)) for token in self.reserved}, reverse=True):
            self._lengths.setdefault(first, []).append(length)

    def neutral(self, text: str, brackets: bool = False) -> str:
        """`text` without any reserved string (`restored` gives the characters back); with `brackets` without single
        square brackets either, for text next to the marks, where a lone bracket would join them."""
        if brackets:
            text = text.translate(_BRACKETS)
        while (changed := self._pass(text)) != text:  # breaking one string may uncover another one
            text = changed
        return text

    def _pass(self, text: str) -> str:
        text = _OWN.sub(lambda match: _broken(match[0]), text)
        parts, at = [], 0
        for start, first in enumerate(text):
            for length in self._lengths.get(first, ()) if start >= at else ():
                token = text[start : start + length]
                if token in self.reserved:
                    parts += [text[at:start], _broken(token)]
                    at = start + length
                    break
        return "".join([*parts, text[at:]])


def _broken(token: str) -> str:
    changed = "".join(LOOK_ALIKES.get(c, c) for c in token)
    return changed if changed != token else f"{token[0]}{SEPARATOR}{token[1:]}"


def restored(text: str, source: str, prompt: str) -> str:
    """`text` with those look-alikes turned back that the prompt shows and that are not in the user's own `source`."""
    for original, stand_in in (*LOOK_ALIKES.items(), ("", SEPARATOR)):
        if stand_in in prompt and stand_in not in source:
            text = text.replace(stand_in, original)
    return text
