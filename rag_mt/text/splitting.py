"""Running text to sentence spans and back, with every character between the sentences kept.

The boundaries come from the sentencex library. A few rules after it join what it cuts too eagerly: a wrong join
costs the language model nothing, a wrong cut leaves it with half a sentence.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Iterator, Sequence

import sentencex

from rag_mt.base.languages import base_code
from rag_mt.base.types import Span

log = logging.getLogger("rag_mt")

MAX_CHARS = 1000
"""Longer sentences are cut: they are lists or tables, and no model here was trained on such."""

_LINE = re.compile(r"[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
_WORD = re.compile(r"[^\W_]")
_LIST_NUMBER = re.compile(r"[(\[]?\d{1,3}[.)\]]+")
_LIST_MARK = re.compile(r"[ \t]*(?:(?:[-*+>•‣◦]|\[ \])[ \t]+)+")
_ADDRESS = re.compile(r"\s*(?:[^\s@]+@[^\s@]+\.\w+|(?:https?://|www\.)\S+)\s*")
_NO_BREAK = re.compile(r"[\xa0\u2007\u202f]+")
_LOWER_START = re.compile(r"[\W_]*([^\W\d_])")
_LAST_WORD = re.compile(r"(?:(\d)\W*\s)?(?:^|(?<=[\s(\[\"'’«„“‘-]))(\w[\w-]*)\.[\xa0\s]*$")

# sentencex stops with a Rust panic at some white space of two and more bytes and at unpaired surrogates; it is given
# one-byte stand-ins, which leave all offsets as they are.
_STAND_INS = dict.fromkeys((0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000), " ")
_STAND_INS |= dict.fromkeys(range(0xD800, 0xE000), "?")

_ORDINAL = re.compile(r"(?:\d{1,2}|[IVX]{1,6})$")
_ORDINAL_LANGUAGES = {"cs", "da", "de", "et", "fi", "hr", "hu", "lv", "nb", "nn", "no", "pl", "sk", "sl", "sr", "tr"}

# Abbreviations that stand before a capitalised word or a number and do not end a sentence. Lower-case entries match in
# any case, capitalised ones only as they are (Turkish `Av.` is a lawyer, `av` a hunt).
_ABBREVIATIONS = {
    language: frozenset(words.split())
    for language, words in {
        "cs": "bc čl doc dr ing judr kpt mgr mj mudr nám např nar odst phdr plk popř prof resp rndr sl str sv tj tzv "
        "ul zvl s č p",
        "de": "abb abs art bspw bzw ca dipl dr evtl fr frl geb ggf hl hr inkl jr nr prof sog st tel vgl",
        "en": "approx cf dr eq gov jr lt messrs mr mrs ms mt prof sgt st vs Capt Col Dept Fig Gen Hon Rep Rev Sen Sr",
        "fi": "dos esim huom klo ks maist mm nk nro ns os prof puh st toim toht tri ts vrt n s",
        "ro": "acad alin art asist av bd bl cf conf d-l d-na d-nei dl dlui dna dr fig ing jud lect lt nr ns pag prof "
        "sc sf şos șos str tel Col Gen p",
        "ru": "акад англ г гл гр греч д дж доц им инж ср кн корп лат напр нем обл оз пл пос пр проф р с см св ст стр "
        "тел тов ул франц чл о т",
        "tr": "alb bkz bul cad doç dr gör hz mah müh no öğr örn prof sn st uzm yrd Apt Av Çev Gen Op Org Sok s",
    }.items()
}
_NUMBERED = frozenset(("cap", "fig", "figs", "kap", "no", "nos", "nr", "obr", "p", "pp", "s", "tab", "taf", "vol"))
_NUMBERED |= {"č", "гл", "рис"}

_CLAUSE_END = re.compile(r"[,;:.!?…—–)\]»”]\s+|[、，；：。！？」』】]")
_SPACE = re.compile(r"\s+")


def split(text: str, language: str, max_chars: int = MAX_CHARS) -> list[Span]:
    """The sentences of `text` as spans in order, without the white space around them.

    A line end always ends a sentence. A line without a letter or digit (a rule, bullets) and one that is an address of
    mail or the web have none, so that `rejoin` leaves them alone. Marks of a list belong to none either, but for
    numbers, which can be days. A sentence of more than `max_chars` characters is cut at its last clause end or space
    before that.
    """
    code = base_code(language)
    spans: list[Span] = []
    for line in _LINE.finditer(text):
        mark = _LIST_MARK.match(line[0])
        first = line.start() + (mark.end() if mark else 0)
        content = text[first : line.end()]
        if _WORD.search(content) and not _ADDRESS.fullmatch(content):
            for sentence in _joined(content, _pieces(content, code), code):
                spans.extend(_capped(text, first + sentence.start, first + sentence.end, max_chars))
    return spans


def rejoin(text: str, spans: Sequence[Span], translations: Sequence[str]) -> str:
    """`text` with the characters of each span replaced by its translation and everything between them kept. Where two
    sentences touch (Chinese and Japanese have no space between them) and the left one's translation does not end in
    such a script, a space is set between them."""
    parts: list[str] = []
    at, changed = 0, False
    for span, translation in zip(spans, translations, strict=True):
        same = translation == span.of(text)
        if at == span.start and parts and (changed or not same) and needs_space(parts[-1], translation):
            parts.append(" ")
        parts += (text[at : span.start], translation) if at < span.start else (translation,)
        at, changed = span.end, not same
    parts.append(text[at:])
    return "".join(parts)


def needs_space(left: str, right: str) -> bool:
    """Whether two translations whose sources touched need a space between them."""
    if not left or not right or left[-1].isspace() or right[0].isspace():
        return False
    return unicodedata.east_asian_width(left[-1]) not in "WF"


def _pieces(line: str, code: str) -> list[Span]:
    """The sentences of a line as sentencex finds them."""
    try:
        boundaries = sentencex.get_sentence_boundaries(code, line if line.isascii() else line.translate(_STAND_INS))
        pieces = [_trimmed(line, b["start_index"], b["end_index"]) for b in boundaries]
    except BaseException as error:  # a Rust panic arrives as a BaseException of a class that cannot be imported
        if type(error).__name__ != "PanicException":
            raise
        log.warning("the sentence splitter failed on a line, which is kept as one sentence: %.60r", line)
        pieces = [_trimmed(line, 0, len(line))]
    return [piece for piece in pieces if len(piece)]


def _joined(line: str, pieces: Sequence[Span], code: str) -> Iterator[Span]:
    """The sentences of a line: pieces that belong together are one."""
    sentence = pieces[0]
    for piece in pieces[1:]:
        if _continues(line, sentence, piece, code):
            sentence = Span(sentence.start, piece.end)
        else:
            yield sentence
            sentence = piece
    yield sentence


def _continues(line: str, left: Span, right: Span, code: str) -> bool:
    """Whether the right piece goes on with the left one's sentence."""
    first, second = left.of(line), right.of(line)
    if not _WORD.search(second) or not _WORD.search(first) or _LIST_NUMBER.fullmatch(first):
        return True
    if _NO_BREAK.fullmatch(line, left.end, right.start):
        return True
    letter = _LOWER_START.match(second)
    if letter and letter[1].islower():
        return True
    last = _LAST_WORD.search(first[-40:])
    return last is not None and _open_ended(last[2], bool(last[1]), second, code)


def _open_ended(word: str, after_number: bool, following: str, code: str) -> bool:
    """Whether a full stop after `word` is that of an initial, an abbreviation or an ordinal number."""
    if following[0].isdigit() and word.lower() in _NUMBERED:
        return True
    if _ORDINAL.match(word) and code in _ORDINAL_LANGUAGES:
        return True
    if len(word) == 1 and word.isupper() and not (code == "en" and word == "I"):
        return True
    abbreviations = _ABBREVIATIONS.get(code, frozenset())
    return not after_number and (word in abbreviations or word.lower() in abbreviations)


def _capped(text: str, start: int, end: int, limit: int) -> Iterator[Span]:
    """The sentence in pieces of at most `limit` characters, cut where it hurts least."""
    while end - start > limit:
        cut = _cut(text, start, start + limit)
        yield _trimmed(text, start, cut)
        start = cut
        while text[start].isspace():
            start += 1
    yield Span(start, end)


def _cut(text: str, start: int, latest: int) -> int:
    """The last clause end in the second half of `start`..`latest`, else the last space, else `latest`."""
    middle = (start + latest) // 2
    for pattern in (_CLAUSE_END, _SPACE):
        ends = [m.end() for m in pattern.finditer(text, middle, latest)]
        if ends:
            return ends[-1]
    cut = latest
    while cut > middle and (unicodedata.combining(text[cut]) or text[cut] == "\u200d" or text[cut - 1] == "\u200d"):
        cut -= 1
    return cut if cut > middle else latest


def _trimmed(text: str, start: int, end: int) -> Span:
    """The span without the white space at its edges."""
    piece = text[start:end]
    start += len(piece) - len(piece.lstrip())
    return Span(start, start + len(piece.strip()))
