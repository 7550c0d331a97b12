"""The `rag-mt` command with all its verbs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rag_mt import __version__
from rag_mt.base.console import WRONG_USE, Parser, run
from rag_mt.cli import adapt, cache, check, examples, index, listing, mine, modules, terms, translate
from ui.page import demo
from ui.server import serve

DESCRIPTION = "Translate with a language model that is shown how the target language already says it."
EXAMPLES = (
    'translate --src de "Guten Morgen"',
    "index build my-index letters/ --lang en",
    "translate --src de --index my-index letter.de.txt -o letter.en.txt",
)
OVERVIEW = f"""rag-mt: {DESCRIPTION[0].lower()}{DESCRIPTION[1:]}

  rag-mt translate --src de "Guten Morgen"     translate a text, files or standard input
  rag-mt examples                              write texts and data to try all commands with
  rag-mt demo                                  translate in a browser

`rag-mt --help` names all commands, `rag-mt COMMAND --help` explains one.
"""


def _help_of(verb: Any) -> tuple[str, tuple[str, ...]]:
    """The description of a module's verb, and examples of it."""
    return verb.DESCRIPTION, verb.EXAMPLES


def parser() -> Parser:
    """The whole command line, but for what stands behind `train NAME` and `eval NAME`."""
    top = Parser(prog="rag-mt", description=DESCRIPTION, examples=EXAMPLES)
    top.add_argument("--version", action="version", version=__version__, help="print the version")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")
    for name, help_text, (description, calls), add_options, command in (
        (
            "translate",
            "translate text, files or standard input",
            _help_of(translate),
            translate.add_options,
            translate.translate,
        ),
        ("index", "build, inspect, verify and calibrate indexes", _help_of(index), index.add_actions, None),
        ("search", "show the hints for sentences", index.SEARCH, index.add_search_options, index.search),
        ("adapt", "tune a language model on an index's text", _help_of(adapt), adapt.add_options, adapt.adapt),
        ("check", "check translations by rules", _help_of(check), check.add_options, check.check),
        ("terms", "propose a glossary", _help_of(terms), terms.add_actions, None),
        ("mine", "find translated sentence pairs in two texts", _help_of(mine), mine.add_options, mine.mine),
        ("serve", "answer translation requests over HTTP", _help_of(serve), serve.add_options, serve.serve),
        ("demo", "translate in a browser", _help_of(demo), demo.add_options, demo.demo),
        ("examples", "write sample texts and data", _help_of(examples), examples.add_options, examples.examples),
        (
            "list",
            "list models, retrievers, languages, indexes, configs",
            _help_of(listing),
            listing.add_options,
            listing.list_,
        ),
        ("cache", "show or clear what is kept to save time", _help_of(cache), cache.add_actions, None),
    ):
        command_parser = commands.add_parser(name, help=help_text, description=description, examples=calls)
        command_parser.set_defaults(run=command)
        add_options(command_parser)
    for name, room in modules.ROOMS.items():  # `main` sees to them; here they are named in the help
        commands.add_parser(name, help=room.title[0].lower() + room.title[1:].rstrip("."))
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the `rag-mt` console script."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments:
        sys.stderr.write(OVERVIEW)
        return WRONG_USE
    if arguments[0] in modules.ROOMS:
        return modules.main(arguments[0], arguments[1:])
    options = parser().parse_args(arguments)
    return run(options.run, options)


if __name__ == "__main__":
    sys.exit(main())
