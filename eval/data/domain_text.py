"""Monolingual text of one's own documents for the suites of domains: what an index of each of them may hold.

    python -m eval.data.domain_text --data DIR --output TEXTS [--cells help.de,manual.en]

writes TEXTS/DOMAIN.LANG.txt, one sentence a line: that side of the domain's collection in DIR/train (in English those
of all its languages, one after the other), in order, each different sentence once. Left out are the pairs of held-out
blocks (DIR/domains/DOMAIN.excluded.txt) and what equals a development or test sentence of that domain and language.
Sentences are equal if their words are (NFKC, casefolded); those that are merely near stay. What is left out is counted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from eval.data.domains import (
    DOMAINS,
    SPLITS,
    cell_file,
    collections,
    excluded,
    languages_of,
    normalised,
)
from eval.data.index_text import different
from rag_mt.base.console import OK, Parser, progress, run
from rag_mt.base.errors import UserError
from rag_mt.base.files import write_whole
from rag_mt.base.types import Origin, Skips
from rag_mt.formats.parallel import read_corpus, training_file

ENGLISH = "en"


def write_texts(options: argparse.Namespace) -> int:
    """Write all texts."""
    texts = chosen(options.data, options.cells)
    options.output.mkdir(parents=True, exist_ok=True)
    with closing(progress(len(texts), "texts", "writing", show=not options.quiet)) as bar:
        for domain, language in texts:
            skips = Skips(shown=0)
            sentences = domain_text(options.data, domain, language, skips)
            write_whole(options.output / f"{domain}.{language}.txt", "".join(f"{text}\n" for text in sentences))
            left = f"; {summary}" if (summary := skips.summary()) else ""
            bar.write(f"{domain}.{language}: {len(sentences)} sentences{left}", file=sys.stdout)
            bar.update(1)
    return OK


def chosen(data: Path, names: str | None) -> list[tuple[str, str]]:
    """The (domain, language) of `help.de,manual.en`, or all, those of one file of training data together; raises
    UserError for one that has no test file."""
    known = {f"{domain}.{code}": (domain, code) for domain in DOMAINS for code in languages_of(data, domain)}
    known |= {f"{domain}.{ENGLISH}": (domain, ENGLISH) for domain, _ in known.values()}
    if not known:
        raise UserError(f"{data} has no domains/help.de-en.test.tsv: give --data DIR with the suites of domains")
    for name in names.split(",") if names else ():
        if name not in known:
            raise UserError(f"there is no text {name!r}: choose from {', '.join(known)}")
    return sorted((known[name] for name in (names.split(",") if names else known)), key=lambda text: text[1])


def domain_text(data: Path, domain: str, language: str, skips: Skips) -> list[str]:
    """The sentences that an index of that domain and language may hold."""
    held_out = excluded(data, domain)
    languages = languages_of(data, domain) if language == ENGLISH else [language]
    seen = {key for code in languages for key in _references(data, domain, code, language)}
    sentences: list[str] = []
    for code in languages:
        file = training_file(data, f"{code}-en")
        corpus = collections(file)[domain]
        rows = []
        for n, english in enumerate(corpus.targets):
            if normalised(english) in held_out:
                skips.add(Origin(str(file), corpus.lines[n]), "in a held-out block")
            else:
                rows.append(n)
        corpus = corpus.rows(rows)
        texts = corpus.targets if language == ENGLISH else corpus.sources
        sentences += [text for _, text in different(zip(corpus.lines, texts, strict=True), normalised, seen, skips)]
    return sentences


def _references(data: Path, domain: str, code: str, language: str) -> list[str]:
    """The normalised sentences of all suites in a language, of the pairs of `code` and English."""
    files = [cell_file(data, domain, code, split) for split in SPLITS.values()]
    corpora = [read_corpus(file, Skips(shown=0)) for file in files if file.is_file()]
    sides = [corpus.targets if language == ENGLISH else corpus.sources for corpus in corpora]
    return [normalised(text) for side in sides for text in side]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m eval.data.domain_text",
        description=__doc__,
        examples=["--data DATA --output texts", "--data DATA --output texts --cells help.de,help.en"],
    )
    add = parser.add_argument
    add("--data", required=True, type=Path, metavar="DIR", help="folder with domains/ and train/")
    add("--output", required=True, type=Path, metavar="TEXTS", help="folder for DOMAIN.LANG.txt, one sentence a line")
    add("--cells", metavar="A,B", help="texts such as help.de,manual.en (default: all)")
    add("--quiet", action="store_true", help="no progress bar")
    return run(write_texts, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
