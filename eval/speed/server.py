"""What it is worth that requests of several clients share the model: clients at once against one at a time.

    python -m eval.speed.server --src de examples/*.de.txt [--clients 16] [--limit 48]

Starts the HTTP API on this machine, asks for one sentence per request, by one client and by several at once in turns,
and prints both rates and their ratio, then the time to the first words of a streamed sentence and how long after a
cancellation the last token was computed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import httpx
import uvicorn

from eval.speed.timing import add_text_options, by_turns, read_text
from rag_mt.base.console import OK, Parser, add_model_options, positive, run
from rag_mt.base.errors import UserError
from rag_mt.base.languages import language
from ui.server.api import make_app
from ui.server.engine import Engine
from ui.server.languages import offer_of
from ui.server.limits import Limits
from ui.server.serve import listening
from ui.server.service import Service
from ui.server.translators import Choice, SharedModels
from ui.server.work import Order

WARM_UP = 2
FIRST_WORDS = 8
"""Sentences whose first words are timed."""
WATCHED = 3.0
"""Seconds in which tokens are looked for after a cancellation."""


@contextmanager
def served(service: Service) -> Iterator[str]:
    """The address of an API on the service, as long as the block runs."""
    server = uvicorn.Server(uvicorn.Config(make_app(service), log_level="error"))
    listener = listening("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def translate_all(url: str, fields: dict[str, str], texts: Sequence[str], clients: int) -> None:
    """Have all texts translated for so many clients, each asking again as soon as it is answered."""

    def ask(text: str) -> None:
        client.post("/translate", json={"q": text, **fields}).raise_for_status()

    limits = httpx.Limits(max_connections=clients)
    with httpx.Client(base_url=url, timeout=3600, limits=limits) as client, ThreadPoolExecutor(clients) as pool:
        list(pool.map(ask, texts))


def first_words(engine: Engine, choice: Choice, texts: Sequence[str]) -> list[float]:
    """Seconds from the order of each sentence to the first words of its translation."""
    times = []
    for text in texts:
        begin = time.perf_counter()
        job = engine.submit(Order(choice, text))
        times.append(next(time.perf_counter() - begin for shown in job.updates(every=0) if shown.strip()))
        job.result()
    return times


def seconds_after_cancel(engine: Engine, choice: Choice, texts: Sequence[str]) -> float:
    """Cancel a translation at its first words; returns how much later the last token was computed for it (below 0 if
    none was)."""
    job = engine.submit(Order(choice, " ".join(texts)))
    next(shown for shown in job.updates(every=0) if shown.strip())
    job.cancel()
    time.sleep(WATCHED)
    if job.last_token is None or job.cancelled_at is None:
        raise UserError("the translation had ended before it could be cancelled: give longer text")
    return job.last_token - job.cancelled_at


def report(options: argparse.Namespace) -> int:
    """Measure and print."""
    source, target = language(options.src).code, language(options.tgt).code
    warm, texts = ([s.text for s in part] for part in read_text(options, WARM_UP, "the warm-up alone: give more text"))
    limits = Limits(queue=max(64, options.clients), requests=1_000_000)
    models = SharedModels(device=options.device, dtype=options.dtype)
    service = Service(models, models.default_encoder, limits=limits, offer=offer_of())
    fields = {"source": source, "target": target, "retriever": options.retriever}
    with served(service) as url:
        translate_all(url, fields, warm, 1)
        systems = {
            name: partial(translate_all, url, fields, texts, clients)
            for name, clients in (("together", options.clients), ("alone", 1))
        }
        rounds = by_turns(systems, options.rounds)
        choice = service.choice("", source, target, options.retriever)
        times = first_words(service.engine, choice, texts[:FIRST_WORDS])
        late = seconds_after_cancel(service.engine, choice, texts[:FIRST_WORDS])
    together, alone = (statistics.mean(rounds[name][0]) for name in systems)
    print(
        f"{source}-{target}, {len(texts)} requests of one sentence, retriever {options.retriever}: "
        f"one client {len(texts) / alone:.2f} requests/s, {options.clients} clients {len(texts) / together:.2f} "
        f"requests/s: {alone / together:.2f} x"
    )
    print(
        f"first words of a streamed sentence: median {statistics.median(times):.2f} s, longest {max(times):.2f} s "
        f"of {len(times)}"
    )
    print(f"last token after a cancellation: {late:+.2f} s")
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = Parser(
        prog="python -m eval.speed.server",
        description=__doc__,
        examples=["--src de examples/news.de.txt --clients 16"],
    )
    add_text_options(parser, retriever="ccpr")
    parser.add_argument("--clients", type=positive, default=16, metavar="N", help="clients at once")
    parser.add_argument("--limit", type=positive, default=48, metavar="N", help="sentences")
    parser.add_argument("--rounds", type=positive, default=2, metavar="N", help="times that each is measured")
    add_model_options(parser)
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
