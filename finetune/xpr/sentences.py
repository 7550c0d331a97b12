"""Monolingual sentences in a full-text index (SQLite's FTS5), and the places of phrases in them."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import combinations, pairwise
from zlib import crc32

from rag_mt.base.types import Sentence
from rag_mt.formats.parallel import letters_and_digits
from rag_mt.text.words import UNSPACED, word_spans

LONGER_BY = 10
"""An example sentence has at least so many characters more than its phrase (XPR, section 4.2)."""
SHORTEST, LONGEST = 20, 300
"""Characters of a sentence that may be an example: longer ones would be cut by the encoder."""
LOOKED_AT = 400
"""Matches of the index that are looked at for one phrase."""
SEARCHED = 12_000
"""Sentences that are searched for further candidates, at most."""
MAX_WORDS, RUN_WORDS = 4, 3
"""Words of a further candidate: one that the lexicon has, and any other run of words."""
FREQUENT = 150
"""A run of words that begins or ends with one of so many most frequent words is no phrase (`of the`)."""
KEPT_OF = 2
"""Of runs of words that no lexicon has, one in so many is looked at: there are far more than are wanted."""
_INSIDE_BEFORE = re.compile(r"[\w-]$|\w['’.,·‧]$")
_INSIDE_AFTER = re.compile(r"[\w-]|['’.,·‧]\w")
_UNSPACED = re.compile(rf"([{UNSPACED}])")

Place = tuple[int, int, int]
"""Number of a sentence, start and end of a phrase in it."""


class SentenceIndex:
    """Sentences of one language, each once, in an order that depends on their text alone; those whose letters and
    digits are in `excluded` (see `rag_mt.formats.parallel.letters_and_digits`) are left out."""

    def __init__(self, language: str, sentences: Iterable[Sentence], excluded: Collection[str] = ()) -> None:
        self.language = language
        by_key: dict[str, Sentence] = {}
        for sentence in sentences:
            if SHORTEST <= len(sentence.text) <= LONGEST and (key := letters_and_digits(sentence.text)) not in excluded:
                by_key.setdefault(key, sentence)
        order = sorted(by_key, key=lambda key: blake2b(key.encode(), digest_size=8, key=b"xpr").digest())
        self.sentences = [by_key[key] for key in order]
        self._rows = {key: row for row, key in enumerate(order)}
        self._base = sqlite3.connect(":memory:")
        self._base.execute(
            "create virtual table texts using fts5(text, content='', tokenize='unicode61 remove_diacritics 0')"
        )
        texts = enumerate(_set_apart(sentence.text) for sentence in self.sentences)
        self._base.executemany("insert into texts(rowid, text) values (?, ?)", texts)
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
        query = "select rowid from texts where texts match ? limit ?"
        places: list[Place] = []
        for (row,) in self._base.execute(query, (quoted, max(LOOKED_AT, most))):
            text = self.sentences[row].text
            if len(text) >= len(phrase) + LONGER_BY and (place := phrase_place(text, phrase)):
                places.append((row, *place))
                if len(places) == most:
                    break
        return places


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
    for capital in (capital for form in forms for capital in _with_capital(form)):
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
    sources: Sequence[Place], targets: Sequence[Place], linked: Mapping[int, frozenset[int]]
) -> tuple[list[Place], list[Place]]:
    """The places of a phrase and of its translation without those in sentences that are each other's translations:
    `linked` has the target sentences that source sentences are linked with.

    Of two that are linked the one goes whose side has more left.
    """
    ours, theirs = list(sources), list(targets)
    by_sentence = {place[0]: place for place in theirs}
    for place in sources:
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
    linked: dict[int, frozenset[int]] = {}
    for source, target in pairs:
        a, b = sources.row(source), targets.row(target)
        if a is not None and b is not None:
            linked[a] = linked.get(a, frozenset()) | {b}
    return linked


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


def other_phrases(
    sentences: Sequence[Sentence],
    rows: Sequence[int],
    lexicon: Collection[str],
    taken: Collection[str],
    wanted: int,
    most: int,
    foreign: Collection[str] = (),
) -> dict[str, list[Place]]:
    """Further candidates of a search: up to `wanted` phrases that occur in the sentences `rows`, with up to `most`
    places each, one a sentence, by what they say.

    First come those in `lexicon`, then runs of up to three words. `lexicon` and `taken` hold surfaces (see
    `rag_mt.text.words.surface`); a phrase in `taken` is left out, and so is a run of words around one, which says
    almost the same; of those in `foreign` only they themselves are. Words of a phrase have nothing but a blank between
    them. Of more than `SEARCHED` rows so many are looked through, evenly spread.
    """
    count = min(len(rows), SEARCHED)
    texts = {row: sentences[row].text for row in (rows[n * len(rows) // count] for n in range(count))}
    spans_of = {row: word_spans(text).tolist() for row, text in texts.items()}
    counts = Counter(texts[row][a:b].casefold() for row, spans in spans_of.items() for a, b in spans)
    frequent = {word for word, _ in counts.most_common(FREQUENT)}
    listed: dict[str, list[Place]] = {}
    runs: dict[str, list[Place]] = {}
    for row, spans in spans_of.items():
        text = texts[row]
        words = [text[a:b].casefold() for a, b in spans]
        plain = [len(word) > 1 and not any(map(str.isdigit, word)) for word in words]
        joined = [True, *(text[a[1] : b[0]] == " " for a, b in pairwise(spans))]
        for first in range(len(spans)):
            around_taken = False
            for last in range(first, min(first + MAX_WORDS, len(spans))):
                if not plain[last] or (last > first and not joined[last]):
                    break
                run = words[first : last + 1]
                said = " ".join(run)
                if said in taken:
                    around_taken = True
                    continue
                if said in foreign or len(text) < len(said) + LONGER_BY:
                    continue
                if said in lexicon:
                    places = listed.setdefault(said, [])
                elif not around_taken and _is_candidate(run, frequent, taken):
                    places = runs.setdefault(said, [])
                else:
                    continue
                if len(places) < most and (not places or places[-1][0] != row):
                    places.append((row, spans[first][0], spans[last][1]))
    chosen = sorted(listed, key=_order)[:wanted]
    chosen += sorted(runs, key=_order)[: wanted - len(chosen)]
    return {said: listed.get(said) or runs[said] for said in chosen}


def _is_candidate(run: Sequence[str], frequent: Collection[str], taken: Collection[str]) -> bool:
    """Whether a run of words that no lexicon has is looked at."""
    if len(run) > RUN_WORDS or crc32(" ".join(run).encode()) % KEPT_OF or run[0] in frequent or run[-1] in frequent:
        return False
    return not any(" ".join(run[a:b]) in taken for a, b in combinations(range(len(run) + 1), 2))


def _order(phrase: str) -> tuple[int, str]:
    """The place of a phrase in an order that is as good as random, and always the same."""
    return crc32(phrase.encode(), 1), phrase
