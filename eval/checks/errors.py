"""Errors that are put into good translations, one kind for each rule that shall find them.

Each function takes a pair and a random generator and returns the pair with one error in it, or None where the pair has
no place for it. What an error changes is all that changes.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from rag_mt.checks.calendar_names import LONG, month_names
from rag_mt.checks.marks import BRACKETS, QUOTES, foreign_quotes
from rag_mt.checks.number_sides import numbers
from rag_mt.checks.rules import Pair
from rag_mt.checks.units import measures
from rag_mt.text.splitting import split
from rag_mt.text.words import word_spans

FEWEST_WORDS = 4
"""Words of a text that is left untranslated."""
LONG_ENOUGH = 20
"""Characters of a text that is cut or said twice."""
PLACEHOLDERS = ("%s", "%(name)s", "{count}", "{0}", "<b>", "</b>", "&nbsp;", "${user}")
MARKS = (".", "?", "!", ":")
_DIGIT = re.compile(r"\d")

Error = Callable[[Pair, random.Random], Pair | None]


def _with(pair: Pair, target: str) -> Pair | None:
    """The pair with another translation, None for the same one."""
    return replace(pair, target=target) if target != pair.target else None


def empty(pair: Pair, rng: random.Random) -> Pair | None:
    """Nothing is translated."""
    return _with(pair, "")


def number(pair: Pair, rng: random.Random) -> Pair | None:
    """A number that both sides have in digits gets another digit, is left out, or is joined by another one."""
    there = {own.digits for own in numbers(pair.source)}
    found = [own for own in numbers(pair.target) if own.digits in there]
    if not found:
        return None
    chosen, text = rng.choice(found), pair.target
    kind = rng.choice(("changed", "lost", "added"))
    if kind == "lost":
        return _with(pair, f"{text[: chosen.start].rstrip()} {text[chosen.end :].lstrip()}".strip())
    if kind == "added":
        return _with(pair, f"{text[: chosen.end]} {rng.randrange(40, 900)}{text[chosen.end :]}")
    place = rng.choice([n for n in range(chosen.start, chosen.end) if text[n].isdecimal()])
    digit = rng.choice([d for d in "123456789" if d != text[place]])
    return _with(pair, text[:place] + digit + text[place + 1 :])


def placeholder(pair: Pair, rng: random.Random) -> Pair | None:
    """Both sides get a placeholder at a word, and the translation loses it, has it twice, or has another one."""
    one, other = rng.sample(PLACEHOLDERS, 2)
    words = word_spans(pair.target)
    if not len(words):
        return None
    at = int(rng.choice(words[:, 0].tolist()))
    changed = rng.choice(("", f"{one} {one} ", f"{other} ", f"{one.replace(one[-1], '', 1)} "))
    return replace(pair, source=f"{one} {pair.source}", target=f"{pair.target[:at]}{changed}{pair.target[at:]}")


def untranslated(pair: Pair, rng: random.Random) -> Pair | None:
    """The source stands in the place of the translation."""
    return _with(pair, pair.source) if len(word_spans(pair.source)) >= FEWEST_WORDS else None


def month(pair: Pair, rng: random.Random) -> Pair | None:
    """Another month's name takes the place of one that both sides name and that stands beside a number."""
    if not _DIGIT.search(pair.target):
        return None
    names, own = month_names(pair.target_language), month_names(pair.source_language)
    for key, forms in sorted(names.items()):
        for form, name in enumerate(forms):
            sides = (_whole(name, left=r"\d\S{0,3}\s+"), _whole(name, right=r"\.?\s+\d"))
            place = next(filter(None, (side.search(pair.target) for side in sides)), None)
            if not place or not any(_whole(n).search(pair.source) for n in own.get(key, ())):
                continue
            start, end = place.span(1)
            others = [months[min(form, len(months) - 1)] for k, months in names.items() if k != key]
            new = rng.choice(others)
            new = new.capitalize() if pair.target[start].isupper() else new
            return _with(pair, pair.target[:start] + new + pair.target[end:])
    return None


@lru_cache(1024)
def _whole(name: str, left: str = "", right: str = "") -> re.Pattern[str]:
    """Finds a name as group 1; one of more than LONG letters may go on with an ending (`tammikuu|ssa`)."""
    letters = r"[^\W\d_]{0,5}" if len(name) > LONG else ""
    return re.compile(rf"{left}(?<!\w)({re.escape(name)}){letters}(?!\w){right}", re.IGNORECASE)


def unit(pair: Pair, rng: random.Random) -> Pair | None:
    """A symbol beside a number that both sides have is left out, or another one takes its place."""
    both = [symbol for symbol in measures(pair.source) if symbol in measures(pair.target)]
    if not both:
        return None
    symbol = rng.choice(both)
    new = rng.choice(("", "kg" if symbol != "kg" else "km"))
    return _with(pair, pair.target.replace(symbol, new))


def length(pair: Pair, rng: random.Random) -> Pair | None:
    """Two thirds of the words are lost, or the text stands there three times."""
    words = word_spans(pair.target)
    if len(pair.target) < LONG_ENOUGH or len(words) < 3:
        return None
    if rng.random() < 0.5:
        return _with(pair, pair.target[: words[len(words) // 3 - 1, 1]])
    return _with(pair, " ".join([pair.target] * 3))


def sentence(pair: Pair, rng: random.Random) -> Pair | None:
    """A sentence of as many as the source has is left out."""
    spans = split(pair.target, pair.target_language)
    if len(spans) < 2 or len(spans) != len(split(pair.source, pair.source_language)):
        return None
    lost = rng.choice(spans)
    return _with(pair, (pair.target[: lost.start] + pair.target[lost.end :]).strip())


def repeated(pair: Pair, rng: random.Random) -> Pair | None:
    """A word stands twice in a row."""
    words = [w for w in word_spans(pair.target).tolist() if w[1] - w[0] > 1 and pair.target[w[0] : w[1]].isalpha()]
    if not words:
        return None
    start, end = rng.choice(words)
    return _with(pair, f"{pair.target[:end]} {pair.target[start:]}")


def end(pair: Pair, rng: random.Random) -> Pair | None:
    """The mark at the end is left out, or another one takes its place, other than `stop` does it."""
    return _other_end(pair, rng, is_slight=False)


def stop(pair: Pair, rng: random.Random) -> Pair | None:
    """The full stop at the end is left out or becomes an exclamation mark, or an exclamation mark becomes one."""
    return _other_end(pair, rng, is_slight=True)


def _other_end(pair: Pair, rng: random.Random, is_slight: bool) -> Pair | None:
    text = pair.target.rstrip()
    last = text[-1:]
    if last not in MARKS or text[-2:-1] in MARKS or pair.source.rstrip()[-1:] != last:
        return None
    others = [m for m in ("", *MARKS) if m != last and ("." in (m, last) and not {m, last} & {"?", ":"}) == is_slight]
    return _with(pair, text[:-1] + rng.choice(others)) if others else None


def quotes(pair: Pair, rng: random.Random) -> Pair | None:
    """Quotation marks become those of another language."""
    found = [c for c in pair.target if c in QUOTES]
    foreign = [c for c in QUOTES if foreign_quotes(c, pair.target_language)]
    if not found or not foreign:
        return None
    return _with(pair, pair.target.replace(found[0], rng.choice(foreign), 1))


def bracket(pair: Pair, rng: random.Random) -> Pair | None:
    """A bracket is lost."""
    places = [n for n, c in enumerate(pair.target) if c in BRACKETS or c in BRACKETS.values()]
    if not places:
        return None
    at = rng.choice(places)
    return _with(pair, pair.target[:at] + pair.target[at + 1 :])


ERRORS: dict[str, Error] = {
    "empty": empty,
    "numbers": number,
    "placeholders": placeholder,
    "untranslated": untranslated,
    "months": month,
    "units": unit,
    "length": length,
    "sentences": sentence,
    "repeated": repeated,
    "ends": end,
    "stops": stop,
    "quotes": quotes,
    "brackets": bracket,
}
"""By the rule that shall find them."""
