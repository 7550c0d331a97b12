"""One answer as it is generated: its tokens, its text, stop strings and loops."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rag_mt.base.types import Completion
from rag_mt.text.answers import loop_in

LOOP_PERIOD, LOOP_ROUNDS, LOOP_TOKENS = 64, 2, 36
"""An answer is stuck when it ends in at least so many rounds and tokens of a sequence of up to so many tokens: no
translation says twice in a row what is that long."""
LOOK_EVERY = 8
"""New tokens between two looks for a loop."""
NEVER_AGAIN = 5
"""An answer that has left a loop says no run of so many tokens again: what was stuck once mostly gets stuck again."""

UNKNOWN = -1
"""A token of which an engine tells nothing but that it was there."""
UNFINISHED = "\ufffd"  # what decoders write for bytes that are no whole character (yet)


def first_stop(text: str, stop: Sequence[str], start: int = 0) -> int:
    """Where the earliest stop string at or after `start` begins in `text`, or -1."""
    return min((at for at in (text.find(s, start) for s in stop if s) if at >= 0), default=-1)


def safe_length(text: str, stop: Sequence[str]) -> int:
    """The length of `text` without an end that may still grow into a stop string."""
    beginnings = (s[:n] for s in stop for n in range(1, len(s)))
    return len(text) - max((len(part) for part in beginnings if text.endswith(part)), default=0)


class AnswerText:
    """The text of a growing list of tokens.

    `decode` turns token ids into text; `text` is what the tokens so far say for sure, cut before the first stop
    string, and `stopped` tells whether there was one. Generating and streaming both read their text here, so
    that they agree to the last character. Each token costs the decoding of a few tokens, not of all.
    """

    def __init__(self, decode: Callable[[list[int]], str], stop: Sequence[str] = ()) -> None:
        self.text = ""
        self.stopped = False
        self._decode = decode
        self._stop = tuple(s for s in stop if s)
        self._longest = max(map(len, self._stop), default=0)
        self._added = ""  # pieces that wait
        self._ids: list[int] = []  # the tokens of the last settled piece, then those that wait
        self._settled = 0  # how many of them are settled

    def push(self, token: int) -> None:
        """Take one more token."""
        self._ids.append(token)
        piece = self._waiting()
        if piece and not piece.endswith(UNFINISHED):
            self._settle(piece)

    def add(self, piece: str) -> None:
        """Take a piece of text that an engine made of its tokens itself."""
        self._added += piece
        if self._added and not self._added.endswith(UNFINISHED):
            self._settle(self._added)
            self._added = ""

    def close(self) -> None:
        """Take what still waits when no more tokens come; the bytes of an unfinished character are left out."""
        piece = (self._waiting() if self._ids else self._added).rstrip(UNFINISHED)
        if piece and not self.stopped:
            self._settle(piece)

    @property
    def safe(self) -> int:
        """The length of the part of `text` that no later token can change."""
        return len(self.text) if self.stopped else safe_length(self.text, self._stop)

    def _waiting(self) -> str:
        # The settled piece is decoded along with the new tokens because some decoders treat a text's first
        # token in a special way (Llama 2 takes its blank off).
        before = self._decode(self._ids[: self._settled]) if self._settled else ""
        return self._decode(self._ids)[len(before) :]

    def _settle(self, piece: str) -> None:
        self._ids = self._ids[self._settled :]
        self._settled = len(self._ids)
        old = len(self.text)
        self.text += piece
        at = first_stop(self.text, self._stop, max(0, old - self._longest + 1))
        if at >= 0:
            self.text, self.stopped = self.text[:at], True


def loop_at_end(tokens: Sequence[int]) -> tuple[int, int] | None:
    """Where a loop begins and how long its rounds are, if the tokens end in so many rounds of the same few that greedy
    decoding would not leave them any more; else None."""
    for period in range(1, LOOP_PERIOD + 1):
        length = max(LOOP_ROUNDS * period, LOOP_TOKENS)
        if len(tokens) < length or tokens[-1] != tokens[-1 - period]:
            continue
        tail = tokens[-length:]
        if tail[period:] == tail[:-period]:
            start = len(tokens) - length
            while start and tokens[start - 1] == tokens[start - 1 + period]:
                start -= 1
            return start, period
    return None


@dataclass
class Generation:
    """The generation of one prompt's answer: the prompt's tokens (its prefix included), the limit of new tokens, and
    the answer as far as it is.

    It is `done` when the answer `ended` with an end-of-text token, has a stop string or as many tokens as it may, is
    `unwanted`, or loops: an answer that loops is given up long before its limit. One that ended counts as `looped` too
    if a line of its text repeats itself and none of its prompt's `text` does, hints included.

    A generation that leaves a loop begins with the `new_tokens` of the one that looped, up to the end of the loop's
    first round (`prompt_ids` ends with them too). Its next token may be any but `barred`, which began the second round.

    If it is `scored`, `logprobs` are the logarithms of the probabilities of the tokens that it was told of.
    """

    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    answer: AnswerText
    new_tokens: list[int] = field(default_factory=list)
    barred: int | None = None
    text: str = ""
    scored: bool = False
    logprobs: list[float] = field(default_factory=list)
    ended: bool = False
    unwanted: bool = False
    done: bool = False

    def __post_init__(self) -> None:
        self._begun = len(self.new_tokens)
        self._text_lengths: list[int] = []  # of the answer after each new token
        self._second_round: int | None = None  # the token that begins the second round of a loop

    @property
    def looped(self) -> bool:
        """Whether the answer loops, or did so before it ended."""
        return self._second_round is not None

    @property
    def finished(self) -> bool:
        """Whether the answer ended by itself or at a stop string."""
        return self.ended or self.answer.stopped

    def append(self, token: int, end_tokens: frozenset[int]) -> None:
        """Take the next token."""
        self.new_tokens.append(token)
        if token in end_tokens:
            self.ended = True
        else:
            self.answer.push(token)
        self.done |= self.finished or len(self.new_tokens) >= self.max_new_tokens
        self._settle()

    def take(self, tokens: Sequence[int], piece: str) -> None:
        """Take the next tokens of an engine that makes a piece of text of them itself, and says when it ends."""
        self.answer.add(piece)
        for token in tokens:
            if not self.done:
                self.new_tokens.append(token)
                self._settle()

    def end(self, tokens: Sequence[int], ended: bool, stopped: bool) -> None:
        """Take the last tokens, which say no text, and what such an engine says of the end: the model's end of text, a
        stop string, or neither."""
        self.new_tokens += tokens
        self.answer.close()
        self.ended, self.answer.stopped, self.done = ended, stopped, True
        self._settle()

    def completion(self) -> Completion:
        """The answer as it is."""
        logprob = sum(self.logprobs) / len(self.logprobs) if self.logprobs else None
        return Completion(self.answer.text, len(self.new_tokens), self.finished, self.answer.stopped, logprob)

    def _settle(self) -> None:
        self._text_lengths.append(len(self.answer.text))
        if not self.done and len(self.new_tokens) % LOOK_EVERY == 0:
            loop = loop_at_end(self.new_tokens)
            self._second_round = sum(loop) if loop else None
            self.done = self.looped
        if self.done:
            self.answer.close()
            if self.finished:
                self._second_round = self._second_round_in_text()

    @property
    def forbidden_tokens(self) -> set[int]:
        """The tokens that do not come next in an answer that leaves a loop: first the one that is barred, and always
        those that would end a run of NEVER_AGAIN tokens that it has already."""
        tokens, size = self.new_tokens, NEVER_AGAIN - 1
        last = tokens[-size:]
        repeating = {tokens[i + size] for i in range(len(tokens) - size) if tokens[i : i + size] == last}
        return repeating | {self.barred} if self.barred is not None and len(tokens) == self._begun else repeating

    def loop_exit(self) -> tuple[list[int], int] | None:
        """The tokens up to the end of a loop's first round, and the one that began the second: an answer that goes on
        from there with the likeliest other token may leave the loop. None if there is no loop."""
        second = self._second_round
        return None if second is None else (self.new_tokens[:second], self.new_tokens[second])

    def _second_round_in_text(self) -> int | None:
        """Which token begins the second round of a loop in the text of a whole answer that has not left one before."""
        first_round = None if self._begun else _first_round(self.answer.text)
        if first_round is None or _first_round(self.text) is not None:
            return None
        second = bisect_left(self._text_lengths, first_round) + 1
        return second if second < len(self.new_tokens) - 1 else None  # what ended the answer is no way into a loop


def _first_round(text: str) -> int | None:
    """Where the first round of a loop ends, which never goes on in another line; None if there is none."""
    begin = 0
    for line in text.splitlines(keepends=True):
        if loop := loop_in(line):
            return begin + loop[0]
        begin += len(line)
    return None
