"""Where the time of a translation goes: retrieval, prompts, generation.

    python -m eval.speed.pipeline --src de [--retriever sentence] [--index DIR] [--limit 64] FILE

Loading of models and building of indexes is left out; the first batch is a warm-up that is not counted.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any

from rag_mt.base.console import Parser, positive, run
from rag_mt.base.defaults import DEFAULT_ADAPTER
from rag_mt.base.errors import UserError
from rag_mt.base.languages import language
from rag_mt.base.types import PromptQueue, Skips
from rag_mt.formats.reading import read_sentences
from rag_mt.translation.translator import Translator


def timed(seconds: dict[str, float], part: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, adding its wall time to `seconds[part]`."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            seconds[part] += time.perf_counter() - begin

    return call


def report(options: argparse.Namespace) -> int:
    """Translate the sentences and print the share of each part."""
    source = language(options.src).code
    sentences = [
        s
        for _, s in zip(
            range(options.limit + options.batch_size),
            read_sentences(options.files, source, column=options.column, skips=Skips()),
            strict=False,
        )
    ]
    translator = Translator.from_pretrained(
        src=source,
        tgt=options.tgt,
        retriever=options.retriever,
        index=options.index,
        adapter=options.adapter,
        batch_size=options.batch_size,
    )
    translator.translate_sentences(sentences[: options.batch_size])
    rest = sentences[options.batch_size :]
    if not rest:
        raise UserError(
            f"{len(sentences)} sentences are one batch, the warm-up: give more text or a smaller --batch-size"
        )
    seconds: dict[str, float] = defaultdict(float)
    retriever, llm = translator.retriever, translator.llm
    retriever.retrieve = timed(seconds, "retrieval", retriever.retrieve)  # type: ignore[method-assign]
    answer = llm.answer

    def timed_answer(queue: PromptQueue, max_new_tokens: int = 256) -> Iterator[None]:
        begin = time.perf_counter()
        yield from answer(queue, max_new_tokens)
        seconds["generation"] += time.perf_counter() - begin

    llm.answer = timed_answer  # type: ignore[method-assign]
    whole = timed(seconds, "whole", translator.translate_sentences)
    for begin in range(0, len(rest), options.batch_size):
        whole(rest[begin : begin + options.batch_size])
    print(
        f"{source}-{translator.target}, {len(rest)} sentences in batches of {options.batch_size}, retriever "
        f"{options.retriever}, {llm.id}: {seconds['whole']:.1f} s, {len(rest) / seconds['whole']:.2f} sentences/s"
    )
    for part in ("retrieval", "generation"):
        print(f"{part:12s}{seconds[part]:8.2f} s {100 * seconds[part] / seconds['whole']:6.1f} %")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = Parser(prog="python -m eval.speed.pipeline", description=__doc__)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--src", required=True)
    parser.add_argument("--tgt", default="en")
    parser.add_argument("--column", default="")
    parser.add_argument("--retriever", default="sentence")
    parser.add_argument("--index")
    parser.add_argument("--adapter", default=DEFAULT_ADAPTER, help="PEFT adapter, auto (ours) or none (default: auto)")
    parser.add_argument("--limit", type=positive, default=64)
    parser.add_argument("--batch-size", type=positive, default=16)
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
