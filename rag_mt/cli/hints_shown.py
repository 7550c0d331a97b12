"""The picture that `--show-hints` draws of a sentence and its hints.

    Der Stadtrat hat die neue Brücke genehmigt.
                     └──────1──────┘
    = The town council has approved the new bridge.
     1 ██████▋   0.83 confidence  die neue Brücke → the new bridge  ✓ taken up
                 ... was waiting for [the new bridge] over ...  news.txt:12

Where a memory was asked, further lines say what changed since the draft, what the translation was chosen from and what
the memory had:

    - The [-city-]{+town+} council has [-allowed-]{+approved+} the new bridge.
      or: The town council agrees to the new bridge.
    memory: 4 hits, shown to the model

The bar of a BM25 score is full at the highest one of the sentence, all others at 1. Columns are counted as a terminal
counts them: wide characters take two, combining marks none. No line is wider than asked for. In a sentence with
right-to-left letters, which terminals reorder, phrases stand in numbered brackets and not above lines.
"""

from __future__ import annotations

import math
import os
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from wcwidth import iter_graphemes, width

from rag_mt.base.findings import Finding
from rag_mt.base.terms import Usage
from rag_mt.base.types import ELLIPSIS, Hint, Recalled, Retriever, Span, Translation
from rag_mt.text.differences import Run, differences

BAR = 8
"""Cells of a bar."""
LEAST, ROOMY, USUAL = 40, 72, 100
"""Columns of the narrowest picture, of the narrowest that says in words what scores are and that a hint was taken up,
and of one that is not written to a terminal."""
JOINERS = "\u200c\u200d"
ISOLATE, END_ISOLATE = "\u2068", "\u2069"
"""Around text with right-to-left letters, so that a terminal reorders it in itself only."""


@dataclass(frozen=True, slots=True)
class Style:
    """What a terminal can show: characters other than ASCII, colours, and how many columns."""

    columns: int = USUAL
    ascii_only: bool = False
    colour: bool = False

    def painted(self, text: str, code: str) -> str:
        """The text in a colour or weight of ECMA-48, where there are colours."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text

    def one_of(self, drawn: str, plain: str) -> str:
        """The first where more than ASCII can be shown."""
        return plain if self.ascii_only else drawn


def style_of_stderr() -> Style:
    """What standard error can show; NO_COLOR turns colours off, COLUMNS sets the width."""
    terminal = sys.stderr.isatty()
    columns = os.environ.get("COLUMNS", "")
    wide = int(columns) if columns.isdecimal() and int(columns) else 0
    if not wide and terminal:
        try:
            wide = os.get_terminal_size(sys.stderr.fileno()).columns
        except OSError:
            wide = 0
    try:
        "█▏→✓─".encode(sys.stderr.encoding or "ascii")
        ascii_only = False
    except (UnicodeError, LookupError):
        ascii_only = True
    colour = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Style(max(LEAST, wide or USUAL), ascii_only, colour)


def score_kind(retriever: Retriever) -> str:
    """What the scores of a retriever's hits are."""
    if hasattr(retriever, "recall"):
        return "similarity"
    if "confidence" in retriever.settings:
        return "confidence"
    return {"bm25": "BM25", "hybrid": "hybrid"}.get(retriever.name, "cosine")


def picture(translation: Translation, kind: str, style: Style) -> str:
    """A sentence with its translation and hints (those that a memory has where none was shown), drawn for people;
    `kind` says what the scores are."""
    source = printable(translation.source.text)
    whole = len(source)
    recalled = translation.recalled
    hints, used = translation.hints, translation.used
    if recalled is not None and not hints:
        hints, used = recalled.hints, (False,) * len(recalled.hints)
    spans = [(n, h.source_span) for n, h in enumerate(hints, 1) if len(h.source_span) < whole]
    lines = _bracketed(source, spans, style) if right_to_left(source) else _underlined(source, spans, style)
    lines += [style.painted(line, "1") for line in _folded(f"= {printable(translation.text)}", style.columns)]
    if recalled is not None:
        lines += _memory_lines(translation, recalled, style)
    scores = [hint.hit.score for hint in hints if math.isfinite(hint.hit.score)]
    full = max([1e-9, *scores]) if kind == "BM25" else 1.0
    for n, (hint, taken_up) in enumerate(zip(hints, used, strict=True), 1):
        lines += _hint_lines(n, hint, taken_up, source, kind, full, style)
    lines += [line for usage in translation.terms for line in _term_lines(usage, source, style)]
    lines += [line for text in translation.notes for line in _folded(f"  note: {printable(text)}", style.columns)]
    return "\n".join(lines)


def finding_lines(findings: Sequence[Finding], style: Style) -> list[str]:
    """What the checks found in a text."""
    return [line for finding in findings for line in _folded(f"  check: {printable(str(finding))}", style.columns)]


def _memory_lines(translation: Translation, recalled: Recalled, style: Style) -> list[str]:
    """What the translation changed of its draft, and what the memory has."""
    lines = []
    if recalled.shown and translation.draft != translation.text:
        runs = differences(printable(translation.draft), printable(translation.text))
        changed = "".join(_marked(run) if run.differs else run.before for run in runs)
        lines = [_isolated(line) for line in _folded(f"- {changed}", style.columns)]
    number = len(recalled.hints)
    hits = f"{number or 'no'} hit{'s' * (number != 1)}"
    decision = "shown to the model" if recalled.shown else "not shown: the draft is the translation"
    if recalled.shown and not lines:
        decision += f"; the draft is {'the best supported translation' if translation.alternatives else 'unchanged'}"
    others = [line for text in translation.alternatives for line in _folded(f"  or: {printable(text)}", style.columns)]
    return [*lines, *map(_isolated, others), *_folded(f"memory: {hits}, {decision}", style.columns)]


def _term_lines(usage: Usage, source: str, style: Style) -> list[str]:
    """A term of the glossary with its translations, where it comes from, and whether it was kept."""
    term = usage.match.term
    says = printable(" / ".join([*term.allowed, *(f"not {text}" for text in term.forbidden)]))
    kept = style.one_of("✓", "*") if usage.ok else style.one_of("✗", "!")
    text = f"term: {usage.match.span.of(source)}{style.one_of(' → ', ' -> ')}{says}  {kept}"
    return [_isolated(line) for line in _folded(f"{text}  {printable(str(term.origin))}".rstrip(), style.columns)]


def _marked(run: Run) -> str:
    """What was taken away and what came instead, as `git diff --word-diff` marks them."""
    return (f"[-{run.before}-]" if run.before else "") + ("{+" + run.after + "+}" if run.after else "")


def printable(text: str) -> str:
    """The text with a space for every character that would move the cursor, send the terminal a command or turn the
    direction of what follows; its length stays."""
    return "".join(
        " " if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c not in JOINERS else c for c in text
    )


def right_to_left(text: str) -> bool:
    """Whether a terminal may reorder the text."""
    return any(unicodedata.bidirectional(c) in ("R", "AL", "AN") for c in text)


def clipped(text: str, columns: int, style: Style, end: bool = False) -> str:
    """The text, or as much of its beginning (or `end`) as fits into so many columns with an ellipsis."""
    if width(text) <= columns:
        return text
    mark = style.one_of("…", ELLIPSIS)
    kept, room = "", columns - width(mark)
    clusters = list(iter_graphemes(text))
    for cluster in reversed(clusters) if end else clusters:
        longer = cluster + kept if end else kept + cluster
        if width(longer) > room:
            break
        kept = longer
    if room < 0:
        return ""
    return mark + kept if end else kept + mark


def bar(share: float, style: Style) -> str:
    """A bar of BAR cells, filled to a share from 0 to 1; other numbers count as the nearer end."""
    share = min(1.0, max(0.0, share)) if math.isfinite(share) else 0.0
    if style.ascii_only:
        return ("#" * round(share * BAR)).ljust(BAR, ".")
    eighths = round(share * BAR * 8)
    return ("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()).ljust(BAR)


def _hint_lines(
    number: int, hint: Hint, used: bool, source: str, kind: str, full: float, style: Style
) -> tuple[str, str]:
    """A line with number, bar, score, the two phrases and whether the hint was taken up, and one with its context and
    origin. A hit that is a whole sentence or passage is its own context and stands in the first line alone."""
    drawn, value = bar(hint.hit.score / full, style), hint.hit.score
    score = f"{value:5.2f}" if abs(value) < 1000 else f"{value:.0e}"
    taken = style.one_of("  ✓", "  *") if used else ""
    if style.columns >= ROOMY:
        score, taken = f"{score} {kind}", taken and f"{taken} taken up"
    room = style.columns - len(f"{number:2d} {drawn} {score}  ") - width(taken)
    arrow = style.one_of(" → ", " -> ")
    phrase = printable(" ".join(hint.phrase.split()))
    of_all = len(hint.source_span) == len(source)
    ours = printable(" ".join(hint.hit.original.split())) if of_all else printable(hint.source_span.of(source))
    if ours:
        ours = clipped(ours, max(4, (room - width(arrow)) // 2), style)
        pair = _isolated(ours) + arrow + _isolated(clipped(phrase, room - width(ours) - width(arrow), style))
    else:
        pair = _isolated(clipped(phrase, room, style))
    painted = f"{style.painted(f'{number:2d}', '1')} {style.painted(drawn, '36')} {score}  {pair}"
    first = painted + style.painted(taken, "32")
    indent = " " * min(width(f"{number:2d} {drawn} "), 12)
    origin = clipped(printable(str(hint.hit.sentence.source)), style.columns // 2, style, end=True)
    room = style.columns - width(indent) - (width(origin) + 2 if origin else 0)
    context = "" if hint.hit.whole else _context(hint, room, style)
    second = "  ".join(filter(None, (context, style.painted(origin, "2"))))
    return first, f"{indent}{second}".rstrip()


def _context(hint: Hint, columns: int, style: Style) -> str:
    """The phrase in brackets with what stands around it, in at most so many columns; empty where nothing fits."""
    limit = min(100, columns - 2)
    while limit > len(hint.phrase):
        context = hint.context(limit)
        if context.text.removeprefix(ELLIPSIS).removesuffix(ELLIPSIS) == hint.phrase:
            return ""
        shown = printable(context.marked("[", "]"))
        if width(shown) <= columns:
            return _isolated(shown)
        limit -= max(1, (width(shown) - columns) // 2)
    return ""


def _isolated(text: str) -> str:
    return f"{ISOLATE}{text}{END_ISOLATE}" if right_to_left(text) else text


def _bracketed(source: str, spans: Sequence[tuple[int, Span]], style: Style) -> list[str]:
    """The lines of a sentence with the phrases in numbered brackets."""
    edges: dict[int, str] = {}
    for number, span in sorted(spans, key=lambda item: -len(item[1])):
        edges[span.end] = "]" + edges.get(span.end, "")
        edges[span.start] = edges.get(span.start, "") + f"[{number} "
    text = "".join(edges.get(n, "") + c for n, c in enumerate([*source, ""]))
    return [_isolated(line) for line in _folded(text, style.columns)]


def _underlined(source: str, spans: Sequence[tuple[int, Span]], style: Style) -> list[str]:
    """The lines of a sentence, each with the lines under it that mark the phrases by their numbers."""
    lines: list[str] = []
    dash, ends = style.one_of("─", "-"), style.one_of("└┘", "||")
    for begin, line in _folds(source, style.columns):
        lines.append(line)
        columns = _columns(line)
        rows: list[list[str]] = []
        for number, span in sorted(spans, key=lambda item: (item[1].start, -len(item[1]))):
            start, end = max(0, span.start - begin), min(len(line), span.end - begin)
            if start < end:
                left, right = columns[start], max(columns[end], columns[start] + 1)
                label = str(number)
                if (room := right - left - len(label)) >= 2:
                    label = f"{ends[0]}{dash * (room // 2 - 1)}{label}{dash * (room - room // 2 - 1)}{ends[1]}"
                row = next((row for row in rows if len(row) <= left), None)
                if row is None:
                    rows.append(row := [])
                row += [" "] * (left - len(row)) + list(label)
        lines += [style.painted("".join(row)[: style.columns], "36") for row in rows]
    return lines


def _columns(line: str) -> list[int]:
    """The column at which each character of a line begins, and that where the line ends: (characters + 1)."""
    columns, at = [], 0
    for cluster in iter_graphemes(line):
        columns += [at] * len(cluster)
        at += max(0, width(cluster))
    return [*columns, at]


def _folded(text: str, columns: int) -> list[str]:
    return [line for _, line in _folds(text, columns)]


def _folds(text: str, columns: int) -> list[tuple[int, str]]:
    """The text in lines of at most so many columns, each with the character at which it begins; cut behind a blank
    where one stands in the second half of the line."""
    folds: list[tuple[int, str]] = []
    begin, line = 0, ""
    for cluster in iter_graphemes(text):
        if line and width(line) + width(cluster) > columns:
            blank = line.rfind(" ") + 1
            cut = blank if blank > len(line) // 2 else len(line)
            folds.append((begin, line[:cut]))
            begin, line = begin + cut, line[cut:]
        line += cluster
    return [*folds, (begin, line)]
