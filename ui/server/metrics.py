"""What a server counts, for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ui.server.engine import BatchReport

SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128)
METHODS = ("GET", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS", "PUT")
SIZES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """Counters of one server; no text, language or client is in them."""

    def __init__(self) -> None:
        self._registry = own = CollectorRegistry()
        self.requests = Counter("rag_mt_requests", "Answered requests", ["path", "method", "status"], registry=own)
        self.seconds = Histogram("rag_mt_request_seconds", "Time of a request", ["path"], buckets=SECONDS, registry=own)
        self.running = Gauge("rag_mt_requests_running", "Requests that are being answered", registry=own)
        self.cancelled = Counter("rag_mt_disconnects", "Translations that ended with the connection", registry=own)
        self._batches = Histogram(
            "rag_mt_batch_sentences", "Sentences generated together when one ended", buckets=SIZES, registry=own
        )
        self._shared = Histogram(
            "rag_mt_batch_requests",
            "Requests that shared the model when a sentence ended",
            buckets=SIZES,
            registry=own,
        )
        self._tokens = Counter("rag_mt_tokens", "Tokens that the language models made", registry=own)
        self._busy = Counter("rag_mt_busy_seconds", "Time in which sentences were translated", registry=own)

    def observe(self, report: BatchReport) -> None:
        self._batches.observe(report.sentences)
        self._shared.observe(report.requests)
        self._tokens.inc(report.tokens)
        self._busy.inc(report.seconds)

    def follow(self, name: str, meaning: str, value: Callable[[], float]) -> None:
        """Show a number that is asked for when the metrics are."""
        Gauge(f"rag_mt_{name}", meaning, registry=self._registry).set_function(value)

    def text(self) -> bytes:
        return generate_latest(self._registry)


class Measured:
    """ASGI middleware that counts requests by route and status, and times them."""

    def __init__(self, app: Any, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, status = time.perf_counter(), [500]

        async def noted(message: Any) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
            await send(message)

        self._metrics.running.inc()
        try:
            await self._app(scope, receive, noted)
        finally:
            self._metrics.running.dec()
            route = getattr(scope.get("route"), "path", "other")  # no path that a client made up
            method = scope["method"] if route != "other" and scope["method"] in METHODS else "other"
            self._metrics.requests.labels(route, method, str(status[0])).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - begin)
