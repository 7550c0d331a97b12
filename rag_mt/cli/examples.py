"""Texts and parallel data to try the commands with: `rag-mt examples [DIR]`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rag_mt.base.console import OK
from rag_mt.base.errors import UserError
from rag_mt.base.files import EXAMPLES as FOLDER
from rag_mt.base.files import SAMPLE_CORPUS, write_whole
from rag_mt.base.languages import WMT16

DESCRIPTION = """Write the sample texts that come with rag_mt into a folder, to try the commands with.

- SUBJECT.LANGUAGE.txt: one short text per subject in seven languages, the same in all of them
- data/train/XX-en.tsv and data/dev/XX-en.tsv: a few hundred sentence pairs of each language with English, in the layout
  that training and evaluation read (--data DIR/data); they show that a command works, and measure nothing

All of it was written for this project and is under CC0 1.0. Files that are there already stay if they are the same."""
EXAMPLES = ("", "my-examples --replace")
DEV_EVERY = 7
"""Of so many sentence pairs of the sample corpus one is development data."""
NEWS_LINES = 56
"""So many pairs of the sample corpus come first and are news; the others are of mixed domains."""


def example_files() -> dict[str, str]:
    """The contents of all files by their path in the folder."""
    texts = {each.name: each.read_text(encoding="utf-8") for each in FOLDER.iterdir() if each.suffix in (".txt", ".md")}
    english = (SAMPLE_CORPUS / "en.txt").read_text(encoding="utf-8").splitlines()
    for code in WMT16:
        other = (SAMPLE_CORPUS / f"{code}.txt").read_text(encoding="utf-8").splitlines()
        dev, train = [], []
        for number, pair in enumerate(zip(english, other, strict=True)):
            if number % DEV_EVERY == 0:
                dev.append("\t".join(pair))
            else:
                train.append("\t".join([*pair, "news" if number < NEWS_LINES else "mixed"]))
        texts[f"data/train/{code}-en.tsv"] = "\n".join([*train, ""])
        texts[f"data/dev/{code}-en.tsv"] = "\n".join([*dev, ""])
    return dict(sorted(texts.items()))


def examples(options: argparse.Namespace) -> int:
    """Write the files; returns the exit code. Raises UserError, before anything is written, if one of them is there
    with other contents."""
    folder, texts = Path(options.folder), example_files()
    there = {name for name in texts if (folder / name).exists()}
    same = {
        name for name in there if (folder / name).is_file() and (folder / name).read_bytes() == texts[name].encode()
    }
    if there - same and not options.replace:
        first = folder / min(there - same)
        raise UserError(f"{first} is there and differs from the example: give another folder, or --replace")
    for name in texts.keys() - same:
        write_whole(folder / name, texts[name])
    kept = f"; {len(same)} were there" if same else ""
    print(f"{folder}: {len(texts) - len(same)} files written{kept}")
    print(f"try: rag-mt translate --src de {folder / 'news.de.txt'}")
    return OK


def add_options(parser: argparse.ArgumentParser) -> None:
    """All options of the command."""
    parser.add_argument("folder", nargs="?", default="examples", metavar="DIR", help="the folder (default: examples)")
    parser.add_argument("--replace", action="store_true", help="write over files that differ")
