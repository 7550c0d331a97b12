"""Words of a text as character spans, and where they lie in its tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# Scripts written without blanks: every character is a word of its own.
UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    r"\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d"
    r"\U00020000-\U0003ffff"
)
MARK = r"[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0903\u093a-\u094f\u20d0-\u20ff\u200c\u200d]"
_SPACED = rf"(?:(?![{UNSPACED}])\w|{MARK})"
_WORD = re.compile(rf"{_SPACED}+(?:[-'’.,·‧]{_SPACED}+)*" + rf"|[{UNSPACED}]{MARK}*")


def word_spans(text: str) -> NDArray[np.int32]:
    """The words of `text`, shape (words, 2): start and end characters, in order, never touching punctuation.

    A word is a run of letters, digits and their combining marks; hyphens, apostrophes, full stops and commas between
    two such runs belong to it (`well-known`, `O'Neill`, `3.5`, `z.B`). In scripts without blanks every character counts
    as a word.
    """
    spans = [m.span() for m in _WORD.finditer(text)]
    return np.array(spans, dtype=np.int32).reshape(-1, 2)


def words_in(texts: Sequence[str], spans: NDArray[np.int32]) -> NDArray[np.int64]:
    """The number of words that begin in each of `spans`, (spans, 3) ascending text number, start, end."""
    bounds = np.searchsorted(spans[:, 0], np.arange(len(texts) + 1)).tolist()
    counts = [np.zeros(0, np.int64)]
    for number, text in enumerate(texts):
        rows = spans[bounds[number] : bounds[number + 1]]
        starts = word_spans(text)[:, 0]
        counts.append(np.searchsorted(starts, rows[:, 2]) - np.searchsorted(starts, rows[:, 1]))
    return np.concatenate(counts)


def surface(phrase: str) -> str:
    """What a phrase says, for comparing: casefolded, white space as single blanks."""
    return " ".join(phrase.casefold().split())


def token_words(offsets: NDArray[np.int32], words: NDArray[np.int32]) -> NDArray[np.int32]:
    """First and last token of each word, shape (words, 2); -1 where no token touches the word.

    `offsets` (tokens, 2) are the tokens' character spans in ascending order, `words` (words, 2) those of the words.
    """
    if not len(offsets) or not len(words):
        return np.full((len(words), 2), -1, dtype=np.int32)
    first = np.searchsorted(offsets[:, 1], words[:, 0], side="right")
    last = np.searchsorted(offsets[:, 0], words[:, 1], side="left") - 1
    tokens = np.stack([first, last], axis=1).astype(np.int32)
    tokens[first > last] = -1
    return tokens
