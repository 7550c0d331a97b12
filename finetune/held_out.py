"""Training pairs that the phrase retrievers never see, so that later stages can be trained on realistic hints.

A rule and not a file: a pair is held out when the hash of its English side falls into one tenth, so that equal
sentences go the same way in every language pair and every data set. The command lists them:

    python -m finetune.held_out --data DIR --output held-out.tsv
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from rag_mt.base.console import OK, Parser, run
from rag_mt.base.errors import UserError
from rag_mt.base.files import whole_file
from rag_mt.base.types import Skips
from rag_mt.formats.opening import read_lines
from rag_mt.formats.parallel import letters_and_digits

ONE_IN = 10


def held_out(english: str) -> bool:
    """Whether the pair of this English side is kept from training."""
    return int.from_bytes(hashlib.blake2b(letters_and_digits(english).encode(), digest_size=8).digest()) % ONE_IN == 0


def write_list(options: argparse.Namespace) -> int:
    """Write the held-out pairs of all training files: file, line number, then the line's own columns."""
    files = sorted((Path(options.data) / "train").glob("*-en.tsv*"))
    if not files:
        raise UserError(f"there is no XX-en.tsv file in {options.data}/train: give the folder that holds train/")
    with whole_file(Path(options.output)) as path, path.open("w", encoding="utf-8") as out:
        for file in files:
            count = 0
            for line in read_lines(file, Skips()):
                if line.text is not None and held_out(line.text.partition("\t")[0]):
                    out.write(f"{file.name}\t{line.number}\t{line.text}\n")
                    count += 1
            sys.stdout.write(f"{file.name}: {count} pairs\n")
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m finetune.held_out",
        description=__doc__,
        examples=["--data examples/data --output held-out.tsv"],
    )
    parser.add_argument("--data", required=True, metavar="DIR", help="folder with train/XX-en.tsv[.xz]")
    parser.add_argument("--output", required=True, metavar="FILE", help="TSV: file, line number, columns of the line")
    return run(write_list, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
