"""One queue for the language models: concurrent requests share batches, and whoever stops waiting stops the work.

Requests wait until their translator is loaded. Then sentences of all waiting requests with the same language model are
retrieved for and generated together, request by request in turn, so that a long text does not hold up short ones. A
sentence whose answer has ended makes room for the next one at once.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest

from rag_mt.base.errors import UserError
from rag_mt.base.types import Completion, LanguageModel, Prompt
from rag_mt.translation.queue import TaskQueue
from rag_mt.translation.translator import Translator
from ui.server.limits import BusyError, LimitError, Limits, StoppedError
from ui.server.translators import Translators
from ui.server.work import Item, Job, Order, named_fault

log = logging.getLogger("rag_mt")

TO_STOP = 10.0
"""Seconds in which a service ends after its patience is over: a model that is loaded, say, cannot be stopped."""


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What was there when an answer ended: `sentences` that were generated together, the `requests` they came from;
    the `tokens` of the answer, and the `seconds` since the one before it, or since the work began."""

    sentences: int
    requests: int
    tokens: int
    seconds: float


class Engine:
    """Translates orders in one thread. All methods may be called from any thread.

    Whatever goes wrong fails the requests that it is about, and the thread goes on. Should it end all the same, `fault`
    says why in one sentence (it is empty while all is well), and all who wait or come later get a StoppedError.
    """

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
        self.fault = ""
        self.pace = 1.0  # seconds per sentence, smoothed
        self._narrowing = ThreadPoolExecutor(1, thread_name_prefix="narrowing")
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of accepted orders that are not done, background ones left out."""
        with self._changed:
            return self._foreground()

    def submit(self, order: Order) -> Job:
        """Accept an order; raises LimitError (too long), BusyError (too many wait) or StoppedError (after a fault)."""
        return self.submit_all([order])[0]

    def submit_all(self, orders: Sequence[Order]) -> list[Job]:
        """Accept several orders, all or none."""
        foreground = [order for order in orders if not order.background]
        self.limits.check_texts([order.text for order in foreground])
        if len(foreground) > self.limits.queue:
            raise LimitError(
                f"the request has {len(foreground)} texts and the queue holds {self.limits.queue}: send fewer"
            )
        jobs = [Job(order) for order in orders]
        with self._changed:
            if self.fault:
                raise StoppedError(self.fault)
            if self._closing:
                raise BusyError("the server is shutting down: try again later", 30)
            if foreground and self._foreground() + len(foreground) > self.limits.queue:
                sentences = sum(max(1, len(job.items)) for job in self._jobs)
                delay = min(120, max(1, math.ceil(sentences * self.pace / 2)))  # until a place should be free
                raise BusyError(f"{self._foreground()} texts are waiting already: try again in {delay} seconds", delay)
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
        """Accept nothing more, let what was accepted finish for up to `patience` seconds, cancel the rest, and wait
        up to TO_STOP seconds more for what cannot be stopped at once."""
        end = time.monotonic() + patience + TO_STOP
        with self._changed:
            self._closing = True
            self._changed.wait_for(lambda: not self._foreground(), patience)
            left = list(self._jobs)
        for job in left:
            job.cancel()
        self._narrowing.shutdown(wait=False, cancel_futures=True)
        with self._changed:
            self._changed.notify_all()
        self._thread.join(max(0.0, end - time.monotonic()))
        self.translators.close(max(0.0, end - time.monotonic()))

    def _foreground(self) -> int:
        return sum(not job.order.background for job in self._jobs)

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
        if error := future.exception():
            job.fail(error if isinstance(error, UserError) else RuntimeError(f"loading failed: {error}"))
            return
        if job.order.only:  # its index is opened anew, which may take its time, and this thread may be anyone's
            self._narrowing.submit(self._begin, job, future.result())
        else:
            self._begin(job, future.result())

    def _begin(self, job: Job, translator: Translator) -> None:
        if job.future.done():  # while it waited for its turn
            return
        try:
            job.begin(translator)
        except BaseException as problem:  # a text that cannot even be split must not stop the loading of others
            if not isinstance(problem, UserError):
                log.exception("a text could not be begun with")
            job.fail(problem)
            return
        if not job.items:  # nothing to translate
            job.finish_if_complete()
        with self._changed:
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._ready() or (self._closing and not self._jobs))
                    ready = self._ready()
                if not ready:
                    return
                self._translate(ready[0].items[0].translator)
        except BaseException as error:
            fault = f"the server makes no more translations ({named_fault(error)}): start it again"
            with self._changed:
                self.fault = fault
                left = list(self._jobs)
            for job in left:
                job.fail(StoppedError(fault))
            log.critical("the engine has ended", exc_info=True)

    def _ready(self) -> list[Job]:
        """The loaded jobs with sentences to translate, those in the background last."""
        ready = [job for job in self._jobs if not job.future.done() and any(not item.taken for item in job.items)]
        return sorted(ready, key=lambda job: job.order.background)

    def take(self, llm: LanguageModel, most: int) -> list[Item]:
        """The next sentences for a model, from each of its jobs in turn; none if it is another model's turn."""
        with self._changed:
            ready = self._ready()
            if not ready or ready[0].items[0].translator.llm is not llm:
                return []
            jobs = [job for job in ready if job.items[0].translator.llm is llm]
            waiting: list[Item] = []
            for background in (False, True):
                lane_jobs = [job for job in jobs if job.order.background is background]
                lane = [[item for item in job.items if not item.taken and item.ready] for job in lane_jobs]
                waiting += [item for turn in zip_longest(*lane) for item in turn if item is not None]
            taken = waiting[:most]
            for item in taken:
                item.taken = True
            served = {id(item.job) for item in taken}
            self._jobs.sort(key=lambda job: id(job) in served)  # stable: whoever was served goes behind the others
        return taken

    def _translate(self, first: Translator) -> None:
        """Translate with the first translator's language model until no sentence is left or it is another's turn."""
        queue = _Sentences(self, first.llm)
        try:
            for _ in first.answer(queue):
                pass
            if left := len(queue.running):
                raise RuntimeError(f"the language model has ended without an answer to {left} sentences")
        except BaseException as error:  # a panic in Rust is no Exception, and must not end the engine either
            if not isinstance(error, UserError):
                log.exception("a batch of %d sentences failed", len(queue.running))
            self._fail_batch(first.llm, error)
        with self._changed:
            for item in queue.left:  # drafts of a job whose other sentences come when it is the model's turn again
                item.taken = False

    def _fail_batch(self, llm: LanguageModel, error: BaseException) -> None:
        """Fail the jobs whose sentences were being answered; if there are none, all that wait for the model,
        which would be asked again and again."""
        with self._changed:
            failed = [j for j in self._jobs if any(item.taken and item.translation is None for item in j.items)]
            failed = failed or [job for job in self._ready() if job.items[0].translator.llm is llm]
        for job in failed:
            job.fail(error)


class _Sentences(TaskQueue[Item]):
    """The sentences of all jobs with one language model, as its queue."""

    def __init__(self, engine: Engine, llm: LanguageModel) -> None:
        super().__init__(finished=lambda item: item.job.finish_if_complete())
        self._engine, self._llm = engine, llm
        self._last = time.perf_counter()

    def take(self, most: int) -> Sequence[Prompt]:
        """See `PromptQueue.take`; no more than the limit are answered together."""
        return super().take(min(most, self._engine.limits.batch - len(self.running)))

    def next_tasks(self, most: int) -> list[Item]:
        """The next sentences whose jobs are wanted."""
        while taken := self._engine.take(self._llm, most):
            for item in taken:
                item.changed()
            if wanted := [item for item in taken if item.wanted]:
                return wanted
        return []

    def progress(self, number: int, text: str) -> bool:
        """See `PromptQueue.progress`."""
        self.running[number].job.last_token = time.monotonic()
        return super().progress(number, text)

    def finish(self, number: int, completion: Completion) -> None:
        """See `PromptQueue.finish`; the engine is told of every answer."""
        now = time.perf_counter()
        requests = len({id(item.job) for item in self.running.values()})
        report = BatchReport(len(self.running), requests, completion.tokens, now - self._last)
        self._last = now
        super().finish(number, completion)
        self._engine.pace = 0.9 * self._engine.pace + 0.1 * report.seconds
        self._engine.observe(report)

    def failed(self, tasks: Sequence[Item], error: BaseException) -> None:
        """End the jobs of these sentences with the error; the others go on."""
        if not isinstance(error, UserError):
            log.error("%d sentences could not be translated", len(tasks), exc_info=error)
        for item in tasks:
            item.job.fail(error)
