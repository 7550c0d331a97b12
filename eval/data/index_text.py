"""Monolingual text for an index, from one side of the training data of several language pairs.

    python -m eval.data.index_text --data DIR --output FILE [--side XX] [--domains news,mixed] [--limit N]
        [--exclude FILES]

writes each different sentence once, in the order of the files, or a sample of --limit of them, and prints how many of
each domain were taken and how many were left out for which reason. Sentences are equal if their casefolded letters and
digits are.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from rag_mt.base.console import OK, Parser, positive, run
from rag_mt.base.errors import UserError
from rag_mt.base.files import write_whole
from rag_mt.base.languages import WMT16
from rag_mt.base.types import Origin, Skips
from rag_mt.formats.parallel import excluded_texts, letters_and_digits, read_corpus, training_file
from rag_mt.text.words import word_spans

DOMAINS = "news,mixed,wiki/reddit,news+captions,conversation"
FEWEST_WORDS = 8
SEED = 1


def write_text(options: argparse.Namespace) -> int:
    """Write the text."""
    if options.side != "en" and options.side not in WMT16:
        raise UserError(f"there is no side {options.side!r}: choose en, {', '.join(WMT16)}")
    data, languages = Path(options.data), WMT16 if options.side == "en" else (options.side,)
    domains = set(options.domains.split(","))
    skips = Skips(shown=0)
    seen = excluded_texts(map(Path, options.exclude), skips)
    sentences: list[tuple[str, str]] = []
    for language in languages:
        file = training_file(data, f"{language}-en")
        corpus = read_corpus(file, skips)
        corpus = corpus.rows([n for n, domain in enumerate(corpus.domains) if domain in domains])
        texts = corpus.targets if options.side == "en" else corpus.sources
        kept = dict(different(zip(corpus.lines, texts, strict=True), letters_and_digits, seen, skips, options.words))
        sentences += [(corpus.domains[n], kept[line]) for n, line in enumerate(corpus.lines) if line in kept]
    if not (count := len(sentences)):
        raise UserError(f"no sentence of {data}/train is of the domains {options.domains}: give other --domains")
    if options.limit and options.limit < count:
        sentences = [sentences[n] for n in sorted(random.Random(SEED).sample(range(count), options.limit))]
    write_whole(Path(options.output), "".join(f"{text}\n" for _, text in sentences))
    for domain, share in Counter(domain for domain, _ in sentences).most_common():
        print(f"{domain}: {share} sentences")
    of = f" of {count}" if len(sentences) < count else ""
    print(f"{len(sentences)}{of} sentences{f'; {left}' if (left := skips.summary()) else ''}")
    return OK


def different(
    lines: Iterable[tuple[int, str]], key: Callable[[str], str], seen: set[str], skips: Skips, fewest: int = 1
) -> Iterator[tuple[int, str]]:
    """The lines (number and text, its blanks single) whose `key` is not among those `seen`, to which it is added, and
    that have at least so many words."""
    for line, text in lines:
        own = key(text)
        if own in seen:
            skips.add(Origin("", line), "seen before or excluded")
        elif len(word_spans(text)) < fewest:
            skips.add(Origin("", line), f"with fewer than {fewest} words")
        else:
            seen.add(own)
            yield line, " ".join(text.split())


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m eval.data.index_text",
        description=__doc__,
        examples=[
            "--data examples/data --output english.txt",
            "--data DATA --output english.txt --domains news,wiki --limit 100000",
        ],
    )
    add = parser.add_argument
    add("--data", required=True, metavar="DIR", help="folder with train/XX-en.tsv[.xz]")
    add("--output", required=True, metavar="FILE", help="one sentence per line")
    add("--side", default="en", metavar="XX", help="language of the text")
    add("--domains", default=DOMAINS, metavar="A,B", help="domains to take")
    words_help = "fewest words"
    add("--words", type=positive, default=FEWEST_WORDS, metavar="N", help=words_help)
    add("--limit", type=positive, metavar="N", help="a sample of N sentences, always the same")
    exclude_help = "leave out what stands in a column of these files (tabs or ` ||| ` between columns)"
    add("--exclude", nargs="*", default=[], metavar="FILE", help=exclude_help)
    return run(write_text, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
