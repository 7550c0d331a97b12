"""Two translations of one text side by side, with their differences marked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from ui.page.markup import escaped

# Words, single characters of scripts that write no spaces, runs of blanks, single other characters.
_TOKEN = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]|[^\W_]+|\s+|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of one text: the same as in the other one, or `differs`."""

    text: str
    differs: bool


def differences(left: str, right: str) -> tuple[list[Piece], list[Piece]]:
    """Both texts in runs that are equal or differ, word by word; joined, the runs are the texts.

    Differing words with nothing but blanks between them become one run.
    """
    words = _TOKEN.findall(left), _TOKEN.findall(right)
    matcher = SequenceMatcher(None, *words, autojunk=False)
    pieces: tuple[list[Piece], list[Piece]] = ([], [])
    for kind, a, b, c, d in matcher.get_opcodes():
        for runs, tokens in zip(pieces, (words[0][a:b], words[1][c:d]), strict=True):
            if tokens:
                runs.append(Piece("".join(tokens), kind != "equal"))
    return _joined(pieces[0]), _joined(pieces[1])


def _joined(runs: list[Piece]) -> list[Piece]:
    """The runs with a blank between two differing ones taken into them."""
    joined: list[Piece] = []
    for at, run in enumerate(runs):
        between = (
            not run.differs and run.text.isspace() and 0 < at < len(runs) - 1 and joined[-1].differs
        )  # neighbours of an equal run differ
        if joined and (between or (run.differs and joined[-1].differs)):
            joined[-1] = Piece(joined[-1].text + run.text, True)
        else:
            joined.append(run)
    return joined


def comparison(left: str, right: str, titles: tuple[str, str], code: str, busy: bool = False) -> str:
    """Both texts as two columns of HTML. A difference is underlined and said to screen readers, not only coloured.

    While the left text still grows (`busy`) nothing is marked.
    """
    runs = ([Piece(left, False)], [Piece(right, False)]) if busy else differences(left, right)
    columns = zip(titles, runs, (left, right), ("left", "right"), strict=True)
    parts = [
        f'<section class="mt-side"><h3>{escaped(title)}</h3>'
        f'<p lang="{escaped(code)}" dir="auto" class="mt-text">{"".join(_marked(pieces, side))}</p>'
        f'<p class="mt-count">{"" if busy else _count(pieces, text)}</p></section>'
        for title, pieces, text, side in columns
    ]
    return f'<div class="mt-sides">{"".join(parts)}</div>'


def _marked(runs: list[Piece], side: str) -> Iterator[str]:
    for run in runs:
        if run.differs and run.text.strip():
            yield (
                f'<mark class="mt-diff mt-diff-{side}"><span class="mt-sr">[differs: </span>{escaped(run.text)}'
                '<span class="mt-sr">]</span></mark>'
            )
        else:
            yield escaped(run.text)


def _count(runs: list[Piece], text: str) -> str:
    if not text:
        return "No translation yet."
    number = sum(run.differs and bool(run.text.strip()) for run in runs)
    return "No difference." if not number else f"{number} place{'s' * (number > 1)} differ{'s' * (number == 1)}."
