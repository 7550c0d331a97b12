"""The `rag-mt` command: translate, build and inspect indexes, search them, mine sentence pairs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rag_mt import __version__
from rag_mt.base.console import Parser, run
from rag_mt.cli import index, mine, search, translate
from ui.page import demo
from ui.server import serve


def parser() -> Parser:
    """The whole command line."""
    top = Parser(prog="rag-mt", description=__doc__)
    top.add_argument("--version", action="version", version=__version__)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    add = commands.add_parser("translate", help="translate files or standard input", description=translate.DESCRIPTION)
    translate.add_options(add)
    add.set_defaults(run=translate.translate)

    add = commands.add_parser("mine", help="find translated sentence pairs in two texts", description=mine.__doc__)
    mine.add_options(add)
    add.set_defaults(run=mine.mine)

    add = commands.add_parser("index", help="build, inspect, verify and calibrate indexes")
    index.add_actions(add)

    add = commands.add_parser("search", help="show the hints for sentences", description=search.search.__doc__)
    search.add_options(add)
    add.set_defaults(run=search.search)

    add = commands.add_parser("serve", help="answer translation requests over HTTP", description=serve.serve.__doc__)
    serve.add_options(add)
    add.set_defaults(run=serve.serve)

    add = commands.add_parser("demo", help="translate in a browser", description=demo.demo.__doc__)
    demo.add_options(add)
    add.set_defaults(run=demo.demo)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the `rag-mt` console script."""
    options = parser().parse_args(arguments)
    return run(options.run, options)


if __name__ == "__main__":
    sys.exit(main())
