"""What adding text to an index and taking it out cost, against the build of the whole index in the same run.

    python -m eval.speed.growing FILE --lang LANG [--retriever ccpr] [--share 0.01] [--form auto]

The lines of FILE are the sentences. An index of all but the last of them is built, the last share of them is added, and
taken out again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from eval.speed.timing import distinct_lines
from rag_mt.base.console import OK, Parser, run, share
from rag_mt.base.errors import UserError
from rag_mt.base.languages import language
from rag_mt.base.types import Origin, Sentence
from rag_mt.translation.index import Index


def seconds(work: Callable[[], object]) -> float:
    """How long it takes by the clock."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def report(options: argparse.Namespace) -> int:
    """Build, add, remove, and print the times."""
    code = language(options.lang).code
    texts = distinct_lines(Path(options.file))
    kept = round(len(texts) * (1 - options.share))
    if not 0 < kept < len(texts):
        raise UserError(f"{options.file} has {len(texts)} lines, too few for a share of {options.share:g}: give more")
    parts = {
        name: [Sentence(text, code, Origin(name, n)) for n, text in enumerate(own, 1)]
        for name, own in (("old", texts[:kept]), ("new", texts[kept:]))
    }
    with TemporaryDirectory() as folder:
        made: list[Index] = []
        settings = {"language": code, "retriever": options.retriever, "split": False, "form": options.form}

        def build(name: str, own: Sequence[Sentence]) -> Callable[[], object]:
            return lambda: made.append(Index.build(Path(folder) / name, texts=own, **settings))

        build("first", parts["new"])()  # what is loaded once is loaded now
        whole = seconds(build("whole", parts["old"]))
        index = made[-1]
        units = index.manifest.units
        added = seconds(lambda: index.add(texts=parts["new"], split=False))
        more = index.manifest.units - units
        removed = seconds(lambda: index.remove("new"))
    print(
        f"{options.retriever}, {'exact' if index.manifest.ivf is None else 'IVF'}: {units} units of {kept} sentences "
        f"built in {whole:.1f} s; {more} units of {len(parts['new'])} sentences added in {added:.2f} s "
        f"({100 * added / whole:.2f} % of the build), taken out in {removed:.2f} s ({100 * removed / whole:.2f} %)"
    )
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = Parser(prog="python -m eval.speed.growing", description=__doc__, examples=["index.en.txt --lang en"])
    parser.add_argument("file", metavar="FILE", help="text, a sentence a line")
    parser.add_argument("--lang", required=True, metavar="LANG", help="language of the text")
    parser.add_argument("--retriever", default="ccpr", metavar="NAME", help="what the index is for")
    parser.add_argument("--share", type=share, default=0.01, metavar="X", help="share of the sentences that is added")
    parser.add_argument("--form", choices=("auto", "exact", "ivf"), default="auto", help="form of the index")
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
