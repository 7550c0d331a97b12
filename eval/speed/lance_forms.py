"""Forms in which LanceDB can have vectors in lists: what each takes, and what it finds.

    python -m eval.speed.lance_forms INDEX [--queries FILE --src LANG] [--limit N] [--sentences 30] [--forms PQ/2x4 SQ]

INDEX is only read; its first N sentences are copied into LanceDB in a temporary folder, and their vectors put into
lists in one form after the other. `SQ` has 8 bits a number, `PQ/Nx8` and `PQ/Nx4` 8 or 4 bits for N numbers together
(product quantization), `RQ/N` N bits a number (RaBitQ), and `FLAT` vectors in fp16. The queries are the units that
INDEX's encoder sees in the lines of FILE, or else vectors of the index, each turned at random to a cosine of 0.7 with
itself; those of a sentence are searched at once, in as many lists as --probes says. Bytes are those of the table of
units, which has vectors in fp16, of its indexes of ids, and of the lists. Of as many units as `compared` says for each
query the vectors in fp16 are compared, and the best one is taken; recall@1 is how often that is the best of all.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.data.vectors import milliseconds
from eval.speed.growing import seconds
from eval.speed.index import built, query_vectors
from eval.speed.timing import add_measuring_options, table_row
from rag_mt.base.console import OK, Parser, note, positive, run
from rag_mt.base.errors import UserError
from rag_mt.base.sizes import bytes_below
from rag_mt.base.types import Floats
from retrievers.index.copying import copy_index
from retrievers.index.lance.lists import lists_for, settings_of
from retrievers.index.places import UNITS

FORMS = ("SQ", "PQ/2x4", "PQ/4x4", "PQ/2x8", "PQ/4x8", "RQ/1", "RQ/2", "RQ/4", "FLAT")
COMPARED = (1, 4, 16, 64)
MOST_RQ_BITS = 9
PQ_BITS = {4: 2, 8: 1}
"""The bits that LanceDB has for product quantization, with what the number of its parts must be a multiple of."""
HEADINGS = ("lists", "build, s", "bytes/unit", "of lists", "compared", "ms/query", "recall@1")
WIDTHS = (8, 10, 12, 10, 10, 10, 10)


def config(form: str, dimension: int, lists: int) -> Any:
    """What LanceDB calls a form; raises UserError for one that there is not."""
    from lancedb.index import IvfFlat, IvfPq, IvfRq, IvfSq

    settings = settings_of(lists)
    if form in ("SQ", "FLAT"):
        return {"SQ": IvfSq, "FLAT": IvfFlat}[form](**settings)
    kind, _, numbers = form.partition("/")
    values = [int(number) for number in numbers.split("x") if number.isdecimal()]
    if kind == "RQ" and len(values) == 1 and 1 <= values[0] <= MOST_RQ_BITS:
        return IvfRq(num_bits=values[0], **settings)
    together, bits = values if kind == "PQ" and len(values) == 2 else (0, 0)
    if together and bits in PQ_BITS and dimension % (together * PQ_BITS[bits]) == 0:
        return IvfPq(num_sub_vectors=dimension // together, num_bits=bits, **settings)
    raise UserError(f"{form} is no form of vectors of {dimension} dimensions: choose of {', '.join(FORMS)}")


def compare(folder: Path, options: argparse.Namespace) -> None:
    """Make each form and print its rows."""
    import lancedb

    index, _ = built(folder, "exact", options)
    lists = lists_for(len(index))
    configs = {form: config(form, index.manifest.dimension, lists) for form in options.forms}
    sentences = query_vectors(options, index)
    best = np.concatenate([index.search(queries, 1)[1][:, 0] for queries in sentences])
    copy_index(folder / "exact", Path(f"lance:{folder / 'lance'}"), form="exact")
    table = lancedb.connect(str(folder / "lance")).open_table(UNITS)
    place = folder / "lance" / f"{UNITS}.lance"
    bare = bytes_below(place)
    print(
        f"{len(index)} vectors of {index.manifest.dimension} dimensions, {min(options.probes, lists)} of {lists} lists "
        f"searched, {len(sentences)} sentences of {np.mean([len(s) for s in sentences]):.0f} queries, median of "
        f"{options.rounds} rounds; the table without lists: {bare / len(index):.0f} bytes a unit"
    )
    print(table_row(HEADINGS, WIDTHS))
    for form, made in configs.items():
        note(f"making lists of {form}")
        before = bytes_below(place)
        build = seconds(partial(table.create_index, "vector", config=made, replace=True))
        size = bytes_below(place) - before
        for compared in COMPARED:
            searched = Searched(table, min(options.probes, lists), compared)
            found = np.concatenate([searched.search(queries, 1) for queries in sentences])
            time = milliseconds(searched, sentences, options.rounds) * len(sentences) / len(best)  # type: ignore[arg-type]
            row = [f"{build:.1f}", f"{(bare + size) / len(index):.0f}", f"{size / len(index):.0f}", str(compared)]
            row += [f"{time:.3f}", f"{(found == best).mean():.4f}"]
            print(table_row((form, *row), WIDTHS), flush=True)


class Searched:
    """A table of units whose lists are searched, with vectors in fp16 of so many units compared for each query."""

    def __init__(self, table: Any, probes: int, compared: int) -> None:
        self._table, self._probes, self._compared = table, probes, compared

    def search(self, queries: Floats, k: int) -> NDArray[np.int64]:
        """The first of k units for each query, -1 where there is none."""
        query = self._table.search(list(queries)).distance_type("dot").limit(k).nprobes(self._probes)
        rows = query.refine_factor(self._compared).select(["unit", "_distance"]).to_arrow()
        units = np.full(len(queries), -1)
        asked = rows.column("query_index").to_numpy() if "query_index" in rows.column_names else [0] * len(rows)
        units[asked] = rows.column("unit").to_numpy()
        return units


def report(options: argparse.Namespace) -> int:
    """Measure and print."""
    if options.queries and not options.src:
        raise UserError(f"the language of {options.queries} is not known: give --src LANG")
    with TemporaryDirectory() as name:
        compare(Path(name), options)
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    examples = ["INDEX --limit 8000 --queries examples/news.de.txt --src de", "INDEX --forms PQ/2x4 SQ"]
    parser = Parser(prog="python -m eval.speed.lance_forms", description=__doc__, examples=examples)
    parser.add_argument("index", metavar="INDEX", help="folder of an index")
    parser.add_argument("--queries", metavar="FILE", help="text to search with, one sentence per line")
    parser.add_argument("--src", metavar="LANG", help="language of that text")
    parser.add_argument("--limit", type=positive, metavar="N", help="only the first N sentences of INDEX")
    add_measuring_options(parser, sentences=30)
    parser.add_argument("--probes", type=positive, default=64, metavar="N", help="lists that are searched")
    parser.add_argument("--forms", nargs="+", default=FORMS, metavar="FORM", help=f"of {', '.join(FORMS)}")
    parser.set_defaults(synthetic=0)
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
