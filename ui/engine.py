"""One queue for the language models: concurrent requests share batches, and whoever stops waiting stops the work.

Requests wait until their translator is loaded. Then sentences of all waiting requests with the same language model are
retrieved for and generated together, request by request in turn, so that a long text does not hold up short ones.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from rag_mt.errors import UserError
from rag_mt.translator import Translator
from ui.limits import BusyError, LimitError, Limits
from ui.translators import Translators
from ui.work import Item, Job, Order

log = logging.getLogger("rag_mt")

GATHER = 0.1
"""Seconds that a batch waits, at the longest, for as many requests as the last one had: who was answered just now asks
again. A lone user never waits."""


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What one batch was: sentences, requests they came from, new tokens, seconds."""

    sentences: int
    requests: int
    tokens: int
    seconds: float


class Engine:
    """Translates orders in one thread. All methods may be called from any thread."""

    def __init__(
        self,
        translators: Translators,
        limits: Limits | None = None,
        observe: Callable[[BatchReport], None] = lambda report: None,
    ) -> None:
        self.translators = translators
        self.limits = limits or Limits()
        self.observe = observe
        self._jobs: list[Job] = []  # accepted and not ended, in the order of their turns
        self._changed = threading.Condition()
        self._closing = False
        self._last_requests = 1
        self._rate = 1.0  # sentences per second, smoothed
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of accepted orders that are not done, background ones left out."""
        with self._changed:
            return self._foreground()

    def submit(self, order: Order) -> Job:
        """Accept an order, to be loaded for and translated soon.

        Raises LimitError for a text that is too long, BusyError when too many wait.
        """
        return self.submit_all([order])[0]

    def submit_all(self, orders: Sequence[Order]) -> list[Job]:
        """Accept several orders, all or none."""
        asked = [o for o in orders if not o.background]
        self.limits.check_texts([o.text for o in asked])
        if len(asked) > self.limits.queue:
            raise LimitError(f"the request has {len(asked)} texts and the queue holds {self.limits.queue}: send fewer")
        jobs = [Job(order) for order in orders]
        with self._changed:
            if self._closing:
                raise BusyError("the server is shutting down: try again later", 30)
            if asked and self._foreground() + len(asked) > self.limits.queue:
                raise BusyError(
                    f"{self._foreground()} texts are waiting already: try again in {self._delay()} seconds",
                    self._delay(),
                )
            self._jobs += jobs
        for job in jobs:
            job.future.add_done_callback(lambda _, job=job: self._remove(job))  # type: ignore[misc]
            try:
                loading = self.translators.load(job.order.choice)
            except RuntimeError as error:  # it was closed just now
                job.fail(error)
                continue
            loading.add_done_callback(lambda f, job=job: self._loaded(job, f))  # type: ignore[misc]
        return jobs

    def close(self, patience: float = 10.0) -> None:
        """Accept nothing more, let what was accepted finish for up to `patience` seconds, cancel the rest."""
        with self._changed:
            self._closing = True
            self._changed.wait_for(lambda: not self._foreground(), patience)
            left = list(self._jobs)
        for job in left:
            job.cancel()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(patience + 10)
        self.translators.close()

    def _foreground(self) -> int:
        return sum(not job.order.background for job in self._jobs)

    def _delay(self) -> int:
        """Seconds after which a place in the queue should be free."""
        sentences = sum(max(1, len(job.items)) for job in self._jobs)
        return min(120, max(1, math.ceil(sentences / self._rate / 2)))

    def _remove(self, job: Job) -> None:
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)
            self._changed.notify_all()

    def _loaded(self, job: Job, future: Future[Translator]) -> None:
        if job.future.done():
            return
        if future.cancelled():
            job.cancel()
            return
        error = future.exception()
        if error:
            job.fail(error if isinstance(error, UserError) else RuntimeError(f"loading failed: {error}"))
            return
        try:
            job.begin(future.result())
        except Exception as problem:  # a text that cannot even be split must not stop the others
            log.exception("a text could not be split into sentences")
            job.fail(problem)
            return
        job.finish_if_complete()  # nothing to translate
        with self._changed:
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ready() or (self._closing and not self._jobs))
                if not self._ready():
                    return
                self._changed.wait_for(self._enough, GATHER)
                batch = self._take()
            if batch:
                self._translate(batch)

    def _ready(self) -> list[Job]:
        """The jobs with sentences to translate."""
        return [job for job in self._jobs if not job.future.done() and any(not item.taken for item in job.items)]

    def _enough(self) -> bool:
        ready = self._ready()
        return (
            len(ready) >= min(self._last_requests, self.limits.batch)
            or sum(not item.taken for job in ready for item in job.items) >= self.limits.batch
        )

    def _take(self) -> list[Item]:
        """The sentences of the next batch: one of each job with the first one's language model, in turn."""
        ready = sorted(self._ready(), key=lambda job: job.order.background)
        if not ready:
            return []
        llm = _translator(ready[0]).llm
        own = [job for job in ready if _translator(job).llm is llm]
        lanes = [[job for job in own if not job.order.background], [job for job in own if job.order.background]]
        batch: list[Item] = []
        for lane in lanes:
            left = [[item for item in job.items if not item.taken] for job in lane]
            while any(left) and len(batch) < self.limits.batch:
                for items in left:
                    if items and len(batch) < self.limits.batch:
                        batch.append(items.pop(0))
        for item in batch:
            item.taken = True
        served = {id(item.job) for item in batch}
        self._jobs.sort(key=lambda job: id(job) in served)  # stable: whoever was served goes behind the others
        self._last_requests = len(served)
        return batch

    def _translate(self, batch: Sequence[Item]) -> None:
        """Translate sentences of one language model together; what goes wrong is told to their jobs."""
        begin = time.perf_counter()
        for job in dict.fromkeys(item.job for item in batch):
            job.changed()
        try:
            self._prepare(batch)
            tokens = self._generate([item for item in batch if not item.job.future.done()])
            seconds = time.perf_counter() - begin
            self._rate = 0.7 * self._rate + 0.3 * len(batch) / max(seconds, 1e-3)
            self.observe(BatchReport(len(batch), len({id(item.job) for item in batch}), tokens, seconds))
        except Exception as error:
            if not isinstance(error, UserError):
                log.exception("a batch of %d sentences failed", len(batch))
            for item in batch:
                item.job.fail(error)

    def _prepare(self, batch: Sequence[Item]) -> None:
        """Find hints and build prompts, for all sentences of one translator in one call."""
        by_translator: dict[int, list[Item]] = {}
        for item in batch:
            if item.prompt is None and not item.job.future.done():
                by_translator.setdefault(id(item.job.translator), []).append(item)
        for items in by_translator.values():
            translator = _translator(items[0].job)
            found = translator.retriever.retrieve([item.sentence for item in items])
            for item, hints in zip(items, found, strict=True):
                item.prompt = translator.prompts.build(item.sentence, item.job.order.shown(hints))
                item.job.changed()

    def _generate(self, items: Sequence[Item]) -> int:
        """Generate all answers in one call, those of cancelled jobs up to then; returns the number of new tokens."""
        if not items:
            return 0

        def watch(number: int, raw: str) -> bool:
            item = items[number]
            item.job.last_token = time.monotonic()
            if item.job.future.done():
                return False
            if raw != item.raw:
                item.raw = raw
                item.job.changed()
            return True

        translator = _translator(items[0].job)
        prompts = [item.prompt for item in items if item.prompt is not None]
        completions = translator.llm.generate(prompts, translator.max_new_tokens, watch)
        for item, prompt, completion in zip(items, prompts, completions, strict=True):
            if not item.job.future.done():
                item.translation = _translator(item.job).read(item.sentence, prompt, completion)
                item.job.changed()
        for job in dict.fromkeys(item.job for item in items):
            job.finish_if_complete()
        return sum(completion.tokens for completion in completions)


def _translator(job: Job) -> Translator:
    assert job.translator is not None  # jobs are taken only when they have one
    return job.translator
