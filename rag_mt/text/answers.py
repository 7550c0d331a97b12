"""What is looked for in a language model's answer: loops, placeholders of the source, phrases of the hints."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from rag_mt.base.types import Hint, Span

_WORD = re.compile(r"\S+")
_LOOP_CHARACTERS = 40
_PLACEHOLDER = re.compile(
    r"""
      %\([^()\s]+\)[-+ 0#]*\d*(?:\.\d+)?[diouxXeEfFgGcrsa]      # %(name)s
    | %(?:\d+\$)?[-+0#]*\d*(?:\.\d+)?(?:hh|h|ll|l|z)?[diouxXeEfFgGcs@](?![A-Za-z])  # %s %1$d %5.2f %@
    | \$\{[^{}\s]+\}                                             # ${name}
    | \{\{\s*[\w.]+\s*\}\}                                       # {{ name }}
    | \{\w*(?:[.!:,][^{}\n]*)?\}                                 # {} {0} {name} {n:.2f} {n, number}
    | </?[A-Za-z][\w:.-]*(?:\s[^<>\n]*)?/?>                      # <b> </a> <br/>
    | &(?:[A-Za-z]\w*|\#\d+|\#x[0-9A-Fa-f]+);                    # &nbsp; &#160;
    | (?<!\w)&(?=[^\W\d_]) | (?<=[^\W\d_])&(?=[a-z])           # &File E&xit: the key of a menu entry; not R&D
    """,
    re.VERBOSE,
)


def without_loop(text: str) -> str:
    """`text` up to the end of the first unit of a loop, with what follows the loop; the same text if there is none."""
    loop = loop_in(text)
    return text[: loop[0]] + loop[1] if loop else text


def loop_in(text: str) -> tuple[int, str] | None:
    """Where the first unit of a loop ends, and what follows the loop; None if there is none. A loop is a run of equal
    n-grams of words (4 of one or two words, 3 of up to five, 2 of more, case and punctuation aside) or a run of at
    least 40 characters that is a short string repeated six times or more."""
    words = list(_WORD.finditer(text))
    forms = [word[0].casefold() for word in words]
    bare_forms = [re.sub(r"\W", "", form) or form for form in forms]
    if loop := _loop(bare_forms, lambda period: 4 if period <= 2 else 3 if period <= 5 else 2):
        start, period, end = loop
        rest = forms[end:]
        broken_off = rest == forms[start : start + period][: len(rest)]
        return words[start + period - 1].end(), "" if broken_off else text[words[end - 1].end() :]
    if loop := _loop(text, lambda period: max(6, -(-_LOOP_CHARACTERS // period))):
        start, period, end = loop
        tail = text[end:]
        return start + period, "" if text[start:].startswith(tail) and len(tail) < period else tail
    return None


def _loop(items: Sequence[str], enough: Callable[[int], int]) -> tuple[int, int, int] | None:
    """Start, period and end of the first loop of the shortest period, in whole periods; None if there is none. `enough`
    is how many repetitions of a period make a loop."""
    codes = np.unique(np.array(list(items), dtype=np.str_), return_inverse=True)[1] if items else np.zeros(0, np.int64)
    for period in range(1, len(codes) // 2 + 1):
        if period * enough(period) > len(codes):
            continue
        equal = codes[period:] == codes[:-period]
        edges = np.flatnonzero(np.diff(np.concatenate(([False], equal, [False])).astype(np.int8)))
        starts, lengths = edges[::2], edges[1::2] - edges[::2]
        long = np.flatnonzero(lengths >= period * (enough(period) - 1))
        if long.size:
            start = int(starts[long[0]])
            return start, period, start + (int(lengths[long[0]]) // period + 1) * period
    return None


def placeholders(text: str) -> list[Span]:
    """Where the placeholders of `text` stand: printf, braces, shell, XML tags and entities, and the `&` before the
    letter that is the key of a menu entry."""
    return [Span(*match.span()) for match in _PLACEHOLDER.finditer(text)]


def differing_placeholders(source: str, translation: str) -> tuple[list[Span], list[Span]]:
    """Where the placeholders stand in the source that the translation lost, and in the translation those that only it
    has or has more often."""
    own, other = placeholders(source), placeholders(translation)
    return _further(source, own, translation, other), _further(translation, other, source, own)


def _further(text: str, spans: Sequence[Span], other: str, others: Sequence[Span]) -> list[Span]:
    """The placeholders of a text that another one does not have; of one that is there too, but not as often, the last
    ones."""
    left, further = Counter(span.of(other) for span in others), []
    for span in spans:
        left[span.of(text)] -= 1
        if left[span.of(text)] < 0:
            further.append(span)
    return further


def phrase_places(phrase: str, text: str) -> Iterator[Span]:
    """The places of a phrase in a text from left to right, without overlaps: letter case aside (`STRASSE` is
    `Straße`), and as whole words where words have spaces between them."""
    folded, starts = "", []
    for number, character in enumerate(text):
        letters = character.casefold()  # one character may become several: where each of them comes from
        folded += letters
        starts += [number] * len(letters)
    starts.append(len(text))
    wanted = re.escape(phrase.casefold())
    if not any(unicodedata.east_asian_width(c) in "WF" for c in phrase):
        wanted = rf"(?<!\w){wanted}(?!\w)"
    for match in re.finditer(wanted, folded) if phrase else ():
        start, end = match.span()
        halves = start and starts[start] == starts[start - 1], starts[end] == starts[end - 1]
        if not any(halves):  # else it begins or ends within a character
            yield Span(starts[start], starts[end])


def takes_up(text: str, hint: Hint) -> bool:
    """Whether the hint's phrase stands in `text`."""
    return any(True for _ in phrase_places(hint.phrase, text))
