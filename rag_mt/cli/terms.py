"""Propose a glossary: `rag-mt terms extract`."""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rag_mt.base.console import OK, PARTLY, add_model_options, add_reading_options, note, positive, share
from rag_mt.base.errors import UserError
from rag_mt.base.files import whole_file
from rag_mt.base.languages import language
from rag_mt.base.types import Skips
from rag_mt.cli.places import file_for

if TYPE_CHECKING:
    from rag_mt.glossary.extraction import Proposal

DESCRIPTION = """Make and look at glossaries."""
EXAMPLES = ("extract memory.tmx --src en --tgt de -o terms.csv",)
EXTRACT = """Propose the terms of your translations, or of your text, with their translations.

FILE holds both languages (XLIFF, PO, TMX, TSV, JSONL): terms are runs of words that are frequent and no function words,
their translations what occurs together with them. With --index FILE is text of the source language alone, and
translations are what the index's phrases (rag-mt index build --retriever ccpr) have for them.

The table has a row for each term: term, translation, score, number of texts, and an example. It is a glossary as it
is; look through it and delete what is wrong before you use it."""
EXTRACT_EXAMPLES = (
    "memory.tmx --src en --tgt de -o terms.csv",
    "letters.de.txt --src de --index my-phrases -o terms.csv",
)
COLUMNS = ("score", "count", "example", "translated example")


def extract(options: argparse.Namespace) -> int:
    """`rag-mt terms extract`: a table of proposals."""
    skips = Skips()
    source = language(options.src).code
    output = Path(options.output) if options.output else None
    if output and output.suffix not in (".csv", ".tsv"):
        raise UserError(f"-o {output} is no table: give a name that ends with .csv or .tsv")
    output = file_for("-o", options.output, options.files) if output else None
    target, proposals = _by_index(options, source, skips) if options.index else _by_pairs(options, source, skips)
    if options.limit:
        proposals = proposals[: options.limit]
    text = _table(proposals, source, target, "\t" if output and output.suffix == ".tsv" else ",")
    if output:
        with whole_file(output) as part:
            part.write_text(text, encoding="utf-8", newline="")
        count = f"{options.output}: {len(proposals)} terms from {source} into {target}"
        note(f"{count}; look through them before you use them")
    else:
        sys.stdout.write(text)
    if skips.counts:
        note(skips.summary())
    return PARTLY if skips.counts else OK


def _by_pairs(options: argparse.Namespace, source: str, skips: Skips) -> tuple[str, list[Proposal]]:
    from rag_mt.formats.format import Side
    from rag_mt.formats.registry import format_of
    from rag_mt.glossary.extraction import proposed_terms

    target = language(options.tgt).code
    if source == target:
        raise UserError(f"source and target are both {language(source).name}: give another --src or --tgt")
    side = Side(source, options.column, target, options.target_column)
    paths = [Path(name) for name in options.files]
    pairs = [
        (segment.original, segment.text)
        for path in paths
        for segment in format_of(path, options.format).translations(path, side, skips)
    ]
    if not pairs:
        raise UserError(f"{options.files[0]} has no translation from {source} into {target}: see --src and --tgt")
    return target, proposed_terms(pairs, source, target, least=options.least, score=options.score)


def _by_index(options: argparse.Namespace, source: str, skips: Skips) -> tuple[str, list[Proposal]]:
    from rag_mt.formats.reading import read_sentences
    from rag_mt.glossary.extraction import proposed_by_hints
    from rag_mt.translation.index import Index

    index = Index.open(options.index, device=options.device, dtype=options.dtype)
    retriever = index.open_retriever(source, index.manifest.language)
    if retriever.unit != "phrase":
        raise UserError(
            f"{options.index} is an index of {retriever.name}, which has no phrases: build one with --retriever ccpr"
        )
    sentences = list(read_sentences(options.files, source, format=options.format, column=options.column, skips=skips))
    if not sentences:
        raise UserError(f"no sentence in {', '.join(options.files)}: expected text in {language(source).name}")
    hints = retriever.retrieve(sentences)
    texts = [sentence.text for sentence in sentences]
    target = index.manifest.language
    return target, proposed_by_hints(texts, hints, source, target, least=options.least, score=options.score)


def _table(proposals: Sequence[Proposal], source: str, target: str, delimiter: str) -> str:
    table = io.StringIO()
    writer = csv.writer(table, delimiter=delimiter, lineterminator="\n")
    writer.writerow([source, target, *COLUMNS])
    for p in proposals:
        example = [" ".join(text.split()) for text in p.example]
        writer.writerow([p.term, p.translation, f"{p.score:.2f}", p.count, *example])
    return table.getvalue()


def add_actions(terms: argparse.ArgumentParser) -> None:
    """The actions of `rag-mt terms` with their options."""
    actions = terms.add_subparsers(dest="action", required=True, metavar="ACTION")
    parser = actions.add_parser(
        "extract", help="propose terms with their translations", description=EXTRACT, examples=EXTRACT_EXAMPLES
    )
    parser.set_defaults(run=extract)
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="files with both languages or, with --index, of the source language")
    add("--src", required=True, metavar="LANG", help="language of the terms")
    add("--tgt", default="en", metavar="LANG", help="language of the translations (default: en, or the index's)")
    add("--index", metavar="DIR", help="index of phrases in the target language")
    add("-o", "--output", metavar="FILE", help="terms.csv or terms.tsv (default: standard output, with commas)")
    add("--least", type=positive, default=3, metavar="N", help="fewest texts that have a term")
    add("--score", type=share, default=0.4, metavar="X", help="least score of a proposal")
    add("--limit", type=positive, metavar="N", help="most proposals, the best ones")
    add_reading_options(parser)
    add("--target-column", default="", metavar="NAME", help="column (number from 1, or name) of the translations")
    add_model_options(parser)
