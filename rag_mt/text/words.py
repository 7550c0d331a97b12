"""Words of a text: their character spans, the tokens they lie in, and the terms that BM25 counts them as."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import Stemmer
from anyascii import anyascii
from numpy.typing import NDArray

from rag_mt.base.languages import base_code, language

# Scripts written without blanks: every character is a word of its own.
UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    r"\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d"
    r"\U00020000-\U0003ffff"
)
MARK = r"[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0903\u093a-\u094f\u20d0-\u20ff\u200c\u200d]"
_SPACED = rf"(?:(?![{UNSPACED}])\w|{MARK})"
_WORD = re.compile(rf"{_SPACED}+(?:[-'’.,·‧]{_SPACED}+)*" + rf"|[{UNSPACED}]{MARK}*")
_RUNS = re.compile(rf"(?P<unspaced>[{UNSPACED}]+)|(?:(?![{UNSPACED}_])\w|{MARK})+")
_LEAST_FOREIGN = 4
"""Letters of a word that is looked for in another language: shorter ones are mostly function words of the source that
happen to be spelled like a word of the target (`die`, `war`)."""
_REMEMBERED, _LONGEST_REMEMBERED = 1 << 20, 40
"""Words whose terms are remembered, and their letters: together they bound the memory."""


def word_spans(text: str) -> NDArray[np.int32]:
    """The words of `text`, shape (words, 2): start and end characters, in order, never touching punctuation.

    A word is a run of letters, digits and their combining marks; hyphens, apostrophes, full stops and commas between
    two such runs belong to it (`well-known`, `O'Neill`, `3.5`, `z.B`). In scripts without blanks every character counts
    as a word.
    """
    spans = [m.span() for m in _WORD.finditer(text)]
    return np.array(spans, dtype=np.int32).reshape(-1, 2)


def word_texts(text: str) -> list[str]:
    """The words that `word_spans` finds."""
    return [text[start:end] for start, end in word_spans(text).tolist()]


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
    """First and last token of each word, shape (words, 2); -1 where no token touches the word. `offsets` (tokens, 2)
    are the tokens' character spans in ascending order, `words` (words, 2) those of the words."""
    if not len(offsets) or not len(words):
        return np.full((len(words), 2), -1, dtype=np.int32)
    first = np.searchsorted(offsets[:, 1], words[:, 0], side="right")
    last = np.searchsorted(offsets[:, 0], words[:, 1], side="left") - 1
    tokens = np.stack([first, last], axis=1).astype(np.int32)
    tokens[first > last] = -1
    return tokens


def words_of(text: str) -> list[str]:
    """The words of a text for counting: runs of letters, digits and marks, divided at hyphens and apostrophes; in
    scripts without blanks pairs of neighbouring characters, or the character alone."""
    words: list[str] = []
    for match in _RUNS.finditer(text):
        run, pairs = match[0], match["unspaced"] and len(match[0]) > 1
        words += [run[i : i + 2] for i in range(len(run) - 1)] if pairs else [run]
    return words


class Terms:
    """Texts of one language to the terms that BM25 counts: words, casefolded, stemmed where there is a Snowball stemmer
    (`stemmed`), and transliterated. Latin letters let names and numbers match across languages (`Путина` and `Putin`
    both give `putin`), and diacritics that writers leave out do no harm."""

    def __init__(self, code: str) -> None:
        self.code = base_code(code)
        name = language(self.code).name.casefold().split(" ")[0]
        self.stemmed = name in Stemmer.algorithms()
        self.stem: Callable[[str], str] = Stemmer.Stemmer(name, 0).stemWord if self.stemmed else str
        self._remembered_term = lru_cache(_REMEMBERED)(self.term)

    def of(self, text: str) -> list[str]:
        """The terms of a text in the order of its words."""
        return [
            self._remembered_term(word) if len(word) <= _LONGEST_REMEMBERED else self.term(word)
            for word in words_of(text)
        ]

    def term(self, word: str) -> str:
        """The term of one word."""
        return latin(self.stem(word.casefold()))

    def foreign(self, text: str, source: Terms) -> list[str]:
        """The terms of this language that words of a text in another one may stand for: numbers, and words of at least
        four letters as they are spelled, or as they are transliterated, with either language's endings cut off. This
        finds names, numbers, loan words and cognates, and nothing else. A term occurs once per word."""
        terms: list[str] = []
        for word in words_of(text):
            if len(word) < _LEAST_FOREIGN and not any(c.isdigit() for c in word):
                continue
            plain, bare = word.casefold(), source.stem(word.casefold())
            spellings = (plain, latin(plain), bare, latin(bare))
            terms += dict.fromkeys(latin(self.stem(spelling)) for spelling in spellings)
        return terms


@lru_cache(64)
def terms_in(code: str) -> Terms:
    """The terms of a language, which remember the words they have seen."""
    return Terms(code)


def latin(word: str) -> str:
    """A casefolded word in plain Latin letters; as it is in scripts without blanks, whose letters are syllables or
    words."""
    if word.isascii() or re.match(f"[{UNSPACED}]", word):
        return word
    return anyascii(word).casefold() or word
