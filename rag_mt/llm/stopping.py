"""A completion's text as its tokens arrive: whole characters only, and nothing of a stop string."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
        self._ids: list[int] = []  # the tokens of the last settled piece, then those that wait
        self._settled = 0  # how many of them are settled

    def push(self, token: int) -> None:
        """Take one more token."""
        self._ids.append(token)
        piece = self._waiting()
        if piece and not piece.endswith(UNFINISHED):
            self._settle(piece)

    def close(self) -> None:
        """Take what still waits when no more tokens come; the bytes of an unfinished character are left out."""
        piece = self._waiting().rstrip(UNFINISHED)
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
