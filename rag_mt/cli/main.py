"""The `rag-mt` command: translate, build and inspect indexes, search them, mine sentence pairs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rag_mt import __version__
from rag_mt.base.console import Parser, run
from rag_mt.cli import index, mine, translate
from ui.page import demo
from ui.server import serve


def parser() -> Parser:
    """The whole command line."""
    top = Parser(prog="rag-mt", description=__doc__)
    top.add_argument("--version", action="version", version=__version__)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    translate_help, index_help = "translate files or standard input", "build, inspect, verify and calibrate indexes"
    for name, help_text, description, add_options, command in (
        ("translate", translate_help, translate.DESCRIPTION, translate.add_options, translate.translate),
        ("mine", "find translated sentence pairs in two texts", mine.__doc__, mine.add_options, mine.mine),
        ("index", index_help, None, index.add_actions, None),
        ("search", "show the hints for sentences", index.search.__doc__, index.add_search_options, index.search),
        ("serve", "answer translation requests over HTTP", serve.serve.__doc__, serve.add_options, serve.serve),
        ("demo", "translate in a browser", demo.demo.__doc__, demo.add_options, demo.demo),
    ):
        command_parser = commands.add_parser(name, help=help_text, description=description)
        command_parser.set_defaults(run=command)
        add_options(command_parser)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the `rag-mt` console script."""
    options = parser().parse_args(arguments)
    return run(options.run, options)


if __name__ == "__main__":
    sys.exit(main())
