"""What the evaluations on cells (a domain and a direction) of DIR/domains have in common: options and translators."""

from __future__ import annotations

import argparse
from typing import Any

from rag_mt.base.defaults import DEFAULT_LLM
from rag_mt.base.types import LanguageModel
from rag_mt.translation.translator import Translator

PARTS = ("dev", "test")


def add_cell_options(parser: argparse.ArgumentParser) -> None:
    """The data, which of it is taken, the language model and the reports."""
    add = parser.add_argument
    add("--data", required=True, metavar="DIR", help="folder with domains/ and train/")
    add("--part", choices=PARTS, default="test", help="which sentences")
    add("--directions", default="", metavar="PAIRS", help="some directions, such as en-de,de-en (default: all)")
    add("--llm", default=DEFAULT_LLM, metavar="ID", help="language model")
    add("--dtype", default="bfloat16", metavar="DTYPE", help="number format of the language model")
    add("--quiet", action="store_true", help="no progress bar")
    add("--output", action="append", default=[], metavar="FILE", help="write .md or .json; repeatable")


def cell_translator(
    source: str, target: str, llm: LanguageModel | str, options: argparse.Namespace, index: str = "", **more: Any
) -> Translator:
    """A translator with hints of an index, or without any, by an open language model or one to open as the options
    say."""
    loading = {"engine": "transformers", "dtype": options.dtype, "batch_size": 64} if isinstance(llm, str) else {}
    retriever = None if index else "none"
    return Translator(source, target, retriever=retriever, llm=llm, index=index or None, **loading, **more)
