"""The help of every command: it is the manual, ends with examples that work, and says what each option is for."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rag_mt.base.console import Parser
from rag_mt.cli import manual, modules
from rag_mt.cli.main import parser

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"


class ParsedError(Exception):
    """A command has come to its parser, which is held here."""


def parsers(patch: pytest.MonkeyPatch) -> Iterator[Parser]:
    """The parsers of all commands."""
    yield from (each for each in manual.verbs(parser()) if each.prog.split()[-1] not in modules.ROOMS)
    parse_args = Parser.parse_args

    def stop(self: Parser, *_: Any) -> None:
        raise ParsedError(self)

    for room in modules.ROOMS.values():
        yield modules.parser(room)
        for name in modules.commands(room):
            patch.setattr(Parser, "parse_args", stop)
            with pytest.raises(ParsedError) as parsed:
                modules.command_main(room, name, [])
            patch.setattr(Parser, "parse_args", parse_args)
            yield parsed.value.args[0]


def test_every_help_ends_with_examples_that_parse_and_explains_every_option(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = 0
    for each in parsers(monkeypatch):
        assert 1 <= len(each.examples) <= 3, each.prog
        assert each.format_help().rstrip().endswith(f"  {each.examples[-1]}"), each.prog
        for example in each.examples:
            words = shlex.split(example)
            assert words[: len(each.prog.split())] == each.prog.split()
            if words[-1] != "--help":
                each.parse_args(words[len(each.prog.split()) :])
        for action in each._actions:
            named = "/".join(action.option_strings) or action.dest
            assert action.help or isinstance(action, argparse._SubParsersAction), f"{each.prog} {named} says nothing"
        assert "returns the exit code" not in each.format_help()
        seen += 1
    assert seen > 40


def test_a_default_is_named_once() -> None:
    one = Parser(prog="x")
    one.add_argument("--a", default=0.5, help="a share of 10 %%")
    one.add_argument("--b", default=["de", "ru"], help="languages")
    one.add_argument("--c", default=3, help="a number (default: three)")
    one.add_argument("--d", action="store_true", help="a switch")
    lines = {line.split()[0]: line for line in one.format_help().splitlines() if line.startswith("  --")}
    assert lines["--a"].endswith("a share of 10 % (default: 0.5)") and lines["--b"].endswith("(default: de ru)")
    assert lines["--c"].count("default") == 1 and "default" not in lines["--d"]


def test_paragraphs_are_filled_and_lists_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = Parser(prog="x", description="One\ntwo.\n\n- three\n- four\n\n    x --five\n").format_help()
    assert "One two." in text and "- three\n- four\n" in text and "    x --five" in text


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="releases of Python print help in their own ways")
def test_the_manual_is_what_the_help_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == manual.manual(), "run python -m rag_mt.cli.manual > docs/cli.md"
