"""Monolingual sentences in a full-text index (SQLite's FTS5), and the places of phrases in them."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

from rag_mt.base.types import Sentence
from rag_mt.formats.parallel import letters_and_digits
from rag_mt.text.words import UNSPACED

LONGER_BY = 10
"""An example sentence has at least so many characters more than its phrase (XPR, section 4.2)."""
SHORTEST, LONGEST = 20, 300
"""Characters of a sentence that may be an example: longer ones would be cut by the encoder."""
LEFT_OUT_DOMAINS = frozenset(("dict-phrases", "wmt-tok"))
"""Examples out of dictionaries, which tell lexicon phrases apart too easily, and text that was tokenised."""
LOOKED_AT = 400
"""Matches of the index that are looked at for one phrase."""
_ORDER = b"xpr"
_INSIDE_BEFORE = re.compile(r"[\w-]$|\w['’.,·‧]$")
_INSIDE_AFTER = re.compile(r"[\w-]|['’.,·‧]\w")
_UNSPACED = re.compile(rf"([{UNSPACED}])")

Place = tuple[int, int, int]
"""Number of a sentence, start and end of a phrase in it."""


class SentenceIndex:
    """Sentences of one language, each once, in an order that depends on their text alone; those whose letters and
    digits are in `excluded` (see `rag_mt.formats.parallel.letters_and_digits`) are left out."""

    def __init__(
        self, language: str, sentences: Iterable[Sentence], excluded: frozenset[str] | set[str] = frozenset()
    ) -> None:
        self.language = language
        found: dict[str, Sentence] = {}
        for sentence in sentences:
            if SHORTEST <= len(sentence.text) <= LONGEST and (key := letters_and_digits(sentence.text)) not in excluded:
                found.setdefault(key, sentence)
        order = sorted(found, key=lambda key: blake2b(key.encode(), digest_size=8, key=_ORDER).digest())
        self.sentences = [found[key] for key in order]
        self._rows = {key: row for row, key in enumerate(order)}
        self._base = sqlite3.connect(":memory:")
        self._base.execute(
            "create virtual table texts using fts5(text, content='', tokenize='unicode61 remove_diacritics 0')"
        )
        self._base.executemany(
            "insert into texts(rowid, text) values (?, ?)", enumerate(_set_apart(s.text) for s in self.sentences)
        )
        self._base.execute("create virtual table words using fts5vocab(texts, 'row')")
        self._counts: dict[str, int] = dict(self._base.execute("select term, doc from words"))

    def __len__(self) -> int:
        return len(self.sentences)

    def row(self, text: str) -> int | None:
        """The number of the sentence that says the same, letters and digits alone, as `text`; None if there is none."""
        return self._rows.get(letters_and_digits(text))

    def ceiling(self, phrase: str) -> int:
        """A number of sentences that the phrase occurs in at most, that of its rarest word: a quick answer that spares
        most of a lexicon the search."""
        forms = [re.findall(r"\w+", form) for form in _spellings(phrase)]
        return sum(min((self._counts.get(word, 0) for word in words), default=0) for words in forms)

    def places(self, phrase: str, most: int) -> list[Place]:
        """Up to `most` sentences with the phrase in them, of at least `LONGER_BY` characters more: number of the
        sentence, start and end of the phrase (its first occurrence there)."""
        quoted = " OR ".join('"' + form.replace('"', " ") + '"' for form in _spellings(phrase))
        matches = self._base.execute(
            "select rowid from texts where texts match ? limit ?", (quoted, max(LOOKED_AT, most))
        )
        found: list[Place] = []
        for (row,) in matches:
            text = self.sentences[row].text
            if len(text) >= len(phrase) + LONGER_BY and (place := phrase_place(text, phrase)):
                found.append((row, *place))
                if len(found) == most:
                    break
        return found


def phrase_place(text: str, phrase: str) -> tuple[int, int] | None:
    """Start and end of the first occurrence of a phrase as whole words, or None.

    Letter case counts, because it tells words apart (`Polish`), but a phrase of several words may stand in small
    letters (`New Town` is found in `a new town`), and the first letter of a sentence may be a capital: in Turkish that
    of `i` is `İ` and that of `ı` is `I`.
    """
    forms = _written(phrase)
    for form in forms:
        start = text.find(form)
        while start >= 0:
            if _whole_words(text, start, start + len(form)):
                return start, start + len(form)
            start = text.find(form, start + 1)
    begin = next((i for i, c in enumerate(text) if c.isalnum()), 0)
    for form in forms:
        for capital in _with_capital(form):
            if text.startswith(capital, begin) and _whole_words(text, begin, begin + len(capital)):
                return begin, begin + len(capital)
    return None


def _written(phrase: str) -> list[str]:
    """A phrase as it is and, if it has several words, in small letters, by the rule of Turkish as well."""
    if " " not in phrase:
        return [phrase]
    turkish = phrase.replace("I", "ı").replace("İ", "i").lower()
    return list(dict.fromkeys([phrase, turkish if "İ" in phrase else phrase.lower(), turkish]))


def _with_capital(form: str) -> list[str]:
    """The ways in which a sentence may begin with a phrase."""
    return [first + form[1:] for first in (form[0].upper(), *("İ" if form[0] == "i" else ""))]


def _spellings(phrase: str) -> list[str]:
    """All that `phrase_place` looks for, as the index has it: in small letters but for `İ`, which has none there."""
    forms = [_set_apart(spelled) for form in _written(phrase) for spelled in (form, *_with_capital(form))]
    small = ("".join(low if len(low := c.lower()) == 1 else c for c in form) for form in forms)
    return list(dict.fromkeys(small))


def _set_apart(text: str) -> str:
    """A text with the words of scripts without blanks, each a character, set apart for the index."""
    return _UNSPACED.sub(r" \1 ", text)


def _whole_words(text: str, start: int, end: int) -> bool:
    """Whether the span neither begins nor ends inside a word, as `rag_mt.text.words` sees words."""
    before = _INSIDE_BEFORE.search(text, max(0, start - 2), start)
    after = _INSIDE_AFTER.match(text, end)
    joined = [before[0] + text[start]] if before else []
    joined += [text[end - 1] + after[0]] if after else []
    return all(_UNSPACED.search(around) for around in joined)  # characters that are words of their own join nothing


def apart(
    one: Sequence[Place], other: Sequence[Place], linked: Mapping[int, frozenset[int]]
) -> tuple[list[Place], list[Place]]:
    """The places of a phrase and of its translation without those in sentences that are each other's translations:
    `linked` has the sentences of the second side that sentences of the first one are linked with.

    Of two that are linked the one goes whose side has more left.
    """
    ours, theirs = list(one), list(other)
    by_sentence = {place[0]: place for place in theirs}
    for place in one:
        for row in linked.get(place[0], frozenset()) & by_sentence.keys():
            if len(ours) >= len(theirs):
                ours.remove(place)
                break
            theirs.remove(by_sentence.pop(row))
    return ours, theirs


def linked_rows(
    sources: SentenceIndex, targets: SentenceIndex, pairs: Iterable[tuple[str, str]]
) -> dict[int, frozenset[int]]:
    """For each source sentence the target sentences that parallel text has beside it."""
    found: dict[int, set[int]] = {}
    for source, target in pairs:
        a, b = sources.row(source), targets.row(target)
        if a is not None and b is not None:
            found.setdefault(a, set()).add(b)
    return {row: frozenset(rows) for row, rows in found.items()}


def window(text: str, start: int, end: int, most: int = LONGEST) -> tuple[str, int, int]:
    """At most `most` characters of a text around a phrase, cut between words where there are blanks, with the phrase's
    start and end in them. A longer phrase is returned alone."""
    if len(text) <= most:
        return text, start, end
    room = max(0, most - (end - start))
    first = max(0, min(start - room // 2, len(text) - (end - start) - room))
    last = min(len(text), first + (end - start) + room)
    if first and (blank := text.find(" ", first, start)) >= 0:
        first = blank + 1
    if last < len(text) and (blank := text.rfind(" ", end, last)) >= 0:
        last = blank
    return text[first:last], start - first, end - first
