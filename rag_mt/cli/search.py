"""Show the hints that sentences get, with score, context and origin."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rag_mt.base.console import OK, add_model_options, note
from rag_mt.base.errors import UserError
from rag_mt.base.languages import language
from rag_mt.base.types import Sentence
from rag_mt.cli.index import encoder_of


def search(options: argparse.Namespace) -> int:
    """`rag-mt search`: the hints that sentences get, with score, context and origin."""
    from retrievers.index.manifest import read_manifest
    from retrievers.registry import open_retriever

    folder = Path(options.index)
    manifest = read_manifest(folder)
    encoder = encoder_of(manifest, options)
    source = language(options.src).code
    retriever = open_retriever(
        manifest.retriever,
        folder,
        encoder,
        source_language=source,
        target_language=manifest.language,
        manifest=manifest,
    )
    try:
        given = options.text or sys.stdin.buffer.read().decode("utf-8").splitlines()
        texts = [text.strip() for text in given if text.strip() and text.encode("utf-8")]
    except UnicodeError:
        origin = "the text to search for" if options.text else "standard input"
        raise UserError(f"{origin} is not valid UTF-8: convert it with `iconv -t utf-8`") from None
    for text, hints in zip(texts, retriever.retrieve([Sentence(t, source) for t in texts]), strict=True):
        for hint in hints:
            context = " ".join(hint.context().marked("[[", "]]").splitlines())
            print(
                f"{hint.hit.score:.4f}\t{hint.source_span.of(text)}\t{hint.phrase}\t{context}\t{hint.hit.sentence.source}"
            )
        if not hints:
            note(f"no hint is trusted for: {text}")
    return OK


def add_options(parser: argparse.ArgumentParser) -> None:
    """All options of the command."""
    parser.add_argument("text", nargs="*", metavar="TEXT", help="sentences (default: lines of standard input)")
    parser.add_argument("--index", required=True, metavar="DIR", help="index to search")
    parser.add_argument("--src", required=True, metavar="LANG", help="language of the sentences")
    parser.add_argument("--encoder", default="", help="default: the encoder that the index was built with")
    add_model_options(parser)
