"""How long a user of the demo waits: from the click to the first words in the page, in a real browser.

    python -m eval.speed.demo --src de [--clicks 12] [--browser /usr/bin/chromium]

Serves the demo on this machine, opens its page in Chromium without a window (package chromium, extra `browser`) and
translates one sentence of the sample texts per click, with the defaults. Two clicks are not counted: they load and warm
the models. The time is taken in the page, from the click on Translate until the first words of the translation are in
place.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

from rag_mt.base.console import OK, Parser, note, positive, run
from rag_mt.base.defaults import DEFAULT_LLM
from rag_mt.base.errors import UserError
from rag_mt.base.files import EXAMPLES
from rag_mt.base.languages import language
from rag_mt.text.splitting import split
from ui.server.limits import Limits

WARM_UP = 2
TARGET = 1.5
"""Seconds that the median should not exceed."""
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]

CLICK = """() => new Promise((resolve) => {
  const begin = performance.now();
  let emptied = false;
  const look = () => {
    const shown = document.querySelector('.mt-output');
    if (!shown) return;
    if (shown.querySelector('.mt-empty')) emptied = true;
    else if (emptied && shown.textContent.trim()) {
      watcher.disconnect();
      resolve(performance.now() - begin);
    }
  };
  const watcher = new MutationObserver(look);
  const options = {childList: true, subtree: true, characterData: true};
  watcher.observe(document.querySelector('#output'), options);
  document.querySelector('#translate').click();
})"""
"""Presses Translate; its promise gives the milliseconds until the emptied translation has words again."""


def example_sentences(code: str, number: int) -> list[str]:
    """So many sentences of the example texts in a language, from all of its texts in turn."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob(f"*.{code}.txt"))]
    if not texts:
        raise UserError(f"there is no example text in {language(code).name}: give another --src")
    by_turns = zip_longest(*([span.of(text) for span in split(text, code)] for text in texts))
    sentences = [sentence for turn in by_turns for sentence in turn if sentence]
    if len(sentences) < number:
        count = len(sentences)
        raise UserError(f"{number} clicks need {number} sentences and the examples have {count}: give less --clicks")
    return sentences[:number]


@contextmanager
def opened_page(browser: str) -> Iterator[Any]:
    """The demo's page in a browser, and the seconds that it took to be usable."""
    from playwright.sync_api import sync_playwright

    from ui.page.page import build_page, launch
    from ui.page.sessions import Sessions
    from ui.server.languages import offer_of
    from ui.server.service import Service
    from ui.server.translators import SharedModels

    limits = Limits()
    models = SharedModels()
    service = Service(models, models.default_encoder, limits=limits, offer=offer_of())
    blocks = build_page(service, Sessions(service.delete_owner), DEFAULT_LLM)
    url = launch(blocks, limits, "127.0.0.1", 0)
    try:
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=browser, args=FLAGS)
            page = chromium.new_page()
            page.set_default_timeout(300_000)
            begin = time.perf_counter()
            page.goto(url)
            page.locator("#translate").wait_for()
            page.locator("#source textarea").fill(" ")
            yield page, time.perf_counter() - begin
            chromium.close()
    finally:
        blocks.close(verbose=False)
        service.close(0)


def report(options: argparse.Namespace) -> int:
    """Measure and print; returns the exit code."""
    code = language(options.src).code
    texts = example_sentences(code, WARM_UP + options.clicks)
    browser = options.browser or shutil.which("chromium") or shutil.which("chromium-browser")
    if not browser:
        raise UserError("there is no Chromium: install it with `apt-get install chromium`, or name one with --browser")
    with opened_page(browser) as (page, usable):
        field = page.locator("#source textarea")
        times, hints = [], 0
        for number, text in enumerate(texts):
            field.fill(text)
            page.wait_for_timeout(500)  # the language of what was typed is detected meanwhile
            seconds = page.evaluate(CLICK) / 1000
            page.locator("#message", has_text="Done:").wait_for()
            if number >= WARM_UP:
                times.append(seconds)
                hints += page.locator("#hints-table [data-hint-row]").count()
                note(f"{seconds:.2f} s  {text[:60]}")
    times.sort()
    print(
        f"{language(code).name} to English, {len(times)} clicks, one sentence each with {hints / len(times):.1f} hints "
        f"on average: first words after {statistics.median(times):.2f} s (median, {times[0]:.2f} to {times[-1]:.2f}); "
        f"{sum(t <= TARGET for t in times)} of {len(times)} within {TARGET} s; page usable after {usable:.2f} s"
    )
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = Parser(
        prog="python -m eval.speed.demo",
        description=__doc__,
        examples=["--src de --clicks 12"],
    )
    parser.add_argument("--src", default="de", metavar="LANG", help="language of the sentences")
    parser.add_argument("--clicks", type=positive, default=12, metavar="N", help="clicks that count")
    parser.add_argument("--browser", metavar="FILE", help="Chromium's program (default: chromium of this machine)")
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
