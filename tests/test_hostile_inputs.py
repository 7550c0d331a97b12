"""Hostile inputs: whatever a text of 4 kB holds, nothing that reads one takes more than a second of the processor.

That is the slow form (`-m slow`). The ordinary one gives texts of 1,200 characters 0.4 s, which is too little for
whatever grows exponentially.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from tests.hostile_readers import Readers, readers, too_slow

SHORT, LONG = (1200, 0.4), (4000, 1.0)
"""Characters of a text, and the seconds that reading it may take."""
SIZES = pytest.mark.parametrize(("size", "seconds"), [SHORT, pytest.param(*LONG, marks=pytest.mark.slow)])
ROOT = Path(__file__).parent.parent
PACKAGES = ("rag_mt", "prompts", "retrievers", "ui", "eval", "finetune")

# fmt: off
REPEATED = [
    "<!--a-->", "<!--", "-->", "<?xml?>", "<?a?>", "<?", "<!DOCTYPE a>", "<!DOCTYPE ", "<![CDATA[", "]]>", "&amp;",
    "&a;", "&", "&#x1F600;", "<a>", "</a>", "<a ", '<a b="', "<a/>", "<b>a", "<div>", "<p>a<br>", "<script>", "<!",
    "<", "</html>", "[[", "]]", "[", "[[ ", "a [[b]]", "{", "}", "{{", "{{ ", "{a", "${", "%", "%(", "%1$", "%0",
    "<x", "<x ", "'", '"', '\\"', "\\", "\\x", '{"', '{"a":', "[1,", '"a"\t', "“", "„", "`", "``", "*", "**", "#",
    "##", "### ", "|", "<|", "<|a|>", "<s>", "[INST]", "<<SYS>>", "German: ", "German:", "Haus: ", "English: x ", ":",
    "a:", "<think>", "</think>", "( ", "1. ", "\u0301", "a\u0301", "\u200d", "\u2060", "\u200b", "\ufeff", "\xa0",
    "\u2028", "\x85", "\x1c", "\x00", " ", "  a", "\t", "a\t", "\t\t", "\n", "\r", "\r\n", "a\n", " \n", "0", "1",
    "1.", "1,", "1 ", "1,234 ", "a", "A", "a ", "ab ", "A. ", "z.B. ", "Dr. ", "...", ". ", "-", "- ", "_", "a-",
    "a.", "a'", "%20", "&a=1", "a=1&", "q=a&", "/", "../", "ü", "ß", "漢", "漢。", "か", "\U0001f600", "\U0001f1e9",
    "\ud800", "\udc00", "#, fuzzy\n", 'msgid "a"\n', 'msgstr "', '""\n', "@", "a@b.",
]
# fmt: on
"""Beginnings, ends and pieces of all grammars that are read anywhere, a row for each."""

PROLOGS = ["<!--a-->", "<?xml?>", "<?a?>", " \n", '<!DOCTYPE tmx SYSTEM "']
ROOTS = ['<!DOCTYPE xliff SYSTEM "x.dtd">\n<xliff version="1.2"/>', '<!DOCTYPE tmx>\n<tmx version="1.4"/>', "<!", "x"]
UNKNOWN = {
    "name": "Language",
    "pattern": "a.+b",
    "phrase": "a",
    "left": r"\[\[",
    "right": r"\]\]",
    "names": "German|Hint",
    "wanted": r"(?<!\w)a(?!\w)",
    "whole": r"(?<!\w)a(?!\w)",
    "letters": "a",
    "stem": "a",
    "number": "9",
    "roman": "IX",
}
UNKNOWN |= {"groups": ".", "decimal": ","}
UNKNOWN |= {"lengths": {"<": {3}}, "wide": False, "parts": ["a", "b"], "hint": type("Hint", (), {"phrase": "a"})}
"""Names within functions that build patterns, as they may be."""


def hostile_texts(size: int) -> Iterator[str]:
    """Texts of `size` characters at most."""
    for piece in REPEATED:
        yield piece * ((size - 3) // len(piece)) + "\n!"
    for one, other in zip(REPEATED[::3], REPEATED[7::3], strict=False):
        yield (one + other) * (size // len(one + other))
    for prolog in PROLOGS:
        yield from (prolog * ((size - len(root) - 1) // len(prolog)) + "\n" + root for root in ROOTS)


@SIZES
def test_no_reader_takes_long(size: int, seconds: float) -> None:
    names = _names()
    tasks = [(name, text) for text in hostile_texts(size) for name in names]
    assert all(len(text) <= size for _, text in tasks)
    assert list(too_slow(tasks, readers, seconds)) == []


def _names() -> list[str]:
    return list(readers())


def test_the_limit_ends_a_pattern_that_runs_away() -> None:
    (found,) = too_slow([("bad", "a" * 40 + "!")], _bad, 1.0)
    assert "bad: 'aaa" in found and "takes more than 1.0 s" in found


def _bad() -> Readers:
    return {"bad": re.compile("(a|a)*$").match}


@SIZES
def test_no_pattern_takes_long(size: int, seconds: float) -> None:
    tasks = [(name, text) for name, pattern in patterns().items() for text in _pumped(pattern, size)]
    assert list(too_slow(tasks, _pattern_readers, seconds)) == []


def _pattern_readers() -> Readers:
    return {name: _tried(pattern) for name, pattern in patterns().items()}


def _tried(pattern: re.Pattern[Any]) -> Any:
    def read(text: str) -> None:
        value: Any = text if isinstance(pattern.pattern, str) else text.encode("utf-8", "replace")
        pattern.fullmatch(value)
        for _ in pattern.finditer(value):
            pass

    return read


def patterns() -> dict[str, re.Pattern[Any]]:
    """Every pattern that the project compiles, by file, line and column."""
    found = {}
    for file in sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py")):
        calls = [c for c in ast.walk(ast.parse(file.read_text())) if isinstance(c, ast.Call) and _is_pattern(c.func)]
        if calls:
            place = file.relative_to(ROOT)
            module = importlib.import_module(".".join(place.with_suffix("").parts).removesuffix(".__init__"))
            names = UNKNOWN | vars(module)
            for call in calls:
                arguments = [call.args[0], *(a for a in call.args[1:] if "re." in ast.unparse(a))]
                arguments += [k.value for k in call.keywords if k.arg == "flags"]
                pattern, *flags = (eval(ast.unparse(a), dict(names)) for a in arguments)
                found[f"{place}:{call.lineno}:{call.col_offset}"] = re.compile(pattern, *flags)
    assert len(found) > 50
    return found


def _is_pattern(function: ast.expr) -> bool:
    known = ("compile", "match", "search", "fullmatch", "sub", "subn", "split", "findall", "finditer")
    return isinstance(function, ast.Attribute) and ast.unparse(function) in [f"re.{name}" for name in known]


def _pumped(pattern: re.Pattern[Any], size: int) -> Iterator[str]:
    """What stands before a repetition in the pattern, then many pieces that may be repeated, then what fits nowhere."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    parsed = _parser.parse(text, pattern.flags & ~re.UNICODE)
    before, pieces = {""}, {" ", "a", "1"}
    _collect(parsed, "", before, pieces)
    for piece in sorted(pieces - {""}):
        for prefix in sorted(before):
            yield prefix + piece * ((size - len(prefix) - 2) // len(piece)) + "\n!"


def _collect(parsed: Any, prefix: str, before: set[str], pieces: set[str]) -> str:
    """Add what stands before each repetition and examples of what it repeats; returns an example of the whole."""
    made = prefix
    for operation, value in parsed:
        name = str(operation)
        if name in ("LITERAL", "NOT_LITERAL"):
            made += chr(value) if name == "LITERAL" else "a" if value != ord("a") else "b"
            pieces.add(made[-1])
        elif name == "ANY":
            made += "a"
        elif name == "IN":
            made += _member(value)
            pieces.add(made[-1])
        elif name == "SUBPATTERN":
            made = _collect(value[-1], made, before, pieces)
        elif name == "ATOMIC_GROUP":
            made = _collect(value, made, before, pieces)
        elif name == "BRANCH":
            made = next(iter([_collect(branch, made, before, pieces) for branch in value[1]]))
        elif name.endswith("REPEAT"):
            least, most, body = value
            if most > 3:
                before.add(made)
                for branch in _branches(body):
                    pieces.add(_collect(branch, "", set(), set()))
            example = _collect(body, made, before, pieces)
            made = example if least else made
    return made


def _branches(body: Any) -> list[Any]:
    """The alternatives of a repeated group, each by itself, else its whole body."""
    if len(body) == 1 and str(body[0][0]) == "SUBPATTERN":
        return _branches(body[0][1][-1])
    if len(body) == 1 and str(body[0][0]) == "BRANCH":
        return [part for branch in body[0][1][1] for part in _branches(branch)]
    return [body]


def _member(items: Any) -> str:
    """A character of a set, a letter or a blank rather than others."""
    one = re.compile(_set(items))
    return next((c for c in " a1-.:\n\tA_漢\u0301" + "".join(map(chr, range(0x3000))) if one.match(c)), "a")


def _set(items: Any) -> str:
    parts = []
    for operation, value in items:
        match str(operation):
            case "NEGATE":
                parts.append("^")
            case "LITERAL":
                parts.append(re.escape(chr(value)))
            case "RANGE":
                parts.append("-".join(re.escape(chr(c)) for c in value))
            case "CATEGORY":
                category = str(value).removeprefix("CATEGORY_").replace("UNI_", "")
                letter = category.removeprefix("NOT_")[0].lower()
                parts.append("\\" + (letter.upper() if category.startswith("NOT_") else letter))
    return f"[{''.join(parts)}]"
