"""Where the time of a translation goes: retrieval, prompts, generation.

    python -m eval.speed.pipeline --src de [--retriever sentence] [--index DIR] [--limit 64] FILE

Loading of models and building of indexes is left out; the first batch is a warm-up that is not counted.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence

from eval.speed.timing import add_text_options, read_text, timed
from rag_mt.base.console import OK, Parser, positive, run
from rag_mt.base.defaults import DEFAULT_ADAPTER
from rag_mt.base.types import PromptQueue
from rag_mt.translation.translator import Translator


def report(options: argparse.Namespace) -> int:
    """Translate the sentences and print the share of each part."""
    size = options.batch_size
    warm_up, sentences = read_text(options, size, "one batch, the warm-up: give more text or a smaller --batch-size")
    translator = Translator(
        options.src,
        options.tgt,
        retriever=options.retriever,
        index=options.index,
        adapter=options.adapter,
        batch_size=size,
    )
    translator.translate_sentences(warm_up)
    seconds = {"retrieval": 0.0, "generation": 0.0}
    retriever, llm = translator.retriever, translator.llm
    retriever.retrieve = timed(seconds, "retrieval", retriever.retrieve)  # type: ignore[method-assign]
    answer = llm.answer

    def timed_answer(queue: PromptQueue, max_new_tokens: int = 256) -> Iterator[None]:
        begin = time.perf_counter()
        yield from answer(queue, max_new_tokens)
        seconds["generation"] += time.perf_counter() - begin

    llm.answer = timed_answer  # type: ignore[method-assign]
    begin = time.perf_counter()
    for first in range(0, len(sentences), size):
        translator.translate_sentences(sentences[first : first + size])
    whole = time.perf_counter() - begin
    print(
        f"{translator.source}-{translator.target}, {len(sentences)} sentences in batches of {size}, retriever "
        f"{options.retriever}, {llm.id}: {whole:.1f} s, {len(sentences) / whole:.2f} sentences/s"
    )
    for part, share in seconds.items():
        print(f"{part:12s}{share:8.2f} s {100 * share / whole:6.1f} %")
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = Parser(
        prog="python -m eval.speed.pipeline",
        description=__doc__,
        examples=["--src de examples/news.de.txt --retriever ccpr"],
    )
    add_text_options(parser, retriever="sentence")
    parser.add_argument(
        "--index", metavar="DIR", help="index of target-language text (default: one of the sample corpus)"
    )
    parser.add_argument("--adapter", default=DEFAULT_ADAPTER, help="PEFT adapter, auto (ours) or none")
    parser.add_argument("--limit", type=positive, default=64, metavar="N", help="sentences that count")
    parser.add_argument("--batch-size", type=positive, default=16, metavar="N", help="most sentences computed at once")
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
