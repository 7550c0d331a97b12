"""The demo with the embedded models, served once for all tests, and pages of a real browser that look at it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

from rag_mt.base.defaults import DEFAULT_LLM, DEFAULT_RETRIEVER
from tests.browser.visitor import PATIENCE, WIDE, Demo, Visitor
from ui.page.page import build_page, launch
from ui.page.sessions import Sessions
from ui.server.languages import offer_of
from ui.server.limits import Limits
from ui.server.service import Service
from ui.server.translators import SharedModels

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
expect.set_options(timeout=PATIENCE)

skipped: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember which of these tests did not run."""
    if report.skipped and "browser" in report.keywords:
        skipped.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A browser test that was asked for and skipped has shown nothing: the run fails."""
    if skipped:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def demo() -> Iterator[Demo]:
    """The demo as `python -m ui.demo` serves it, in this process: tests can look into the server."""
    limits = Limits()
    models = SharedModels()
    service = Service(models, models.default_encoder, limits=limits, offer=offer_of(), retriever=DEFAULT_RETRIEVER)
    sessions = Sessions(service.delete_owner)
    page = build_page(service, sessions, DEFAULT_LLM)
    yield Demo(launch(page, limits, "127.0.0.1", 0), service, sessions)
    page.close(verbose=False)
    service.close(0)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium without a window; a new empty profile each time."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.fail("there is no Chromium: install it with `apt-get install -y chromium chromium-driver`")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def visit(browser: Browser, demo: Demo) -> Iterator[Callable[..., Visitor]]:
    """Opens the page for a new person, with an empty profile. At the end nobody's console may hold an error."""
    visitors: list[Visitor] = []

    def opened(viewport: ViewportSize = WIDE, dark: bool = False) -> Visitor:
        context = browser.new_context(
            viewport=viewport, color_scheme="dark" if dark else "light", accept_downloads=True, locale="en-GB"
        )
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        visitor = Visitor(page, context, [])
        page.on("console", lambda m: visitor.said.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: visitor.said.append(str(error)))
        page.on("dialog", lambda dialog: (visitor.said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.goto(demo.url)
        page.locator("#translate").wait_for()
        visitors.append(visitor)
        return visitor

    yield opened
    for visitor in visitors:
        visitor.context.close()
    assert [said for visitor in visitors for said in visitor.said] == []


@pytest.fixture
def visitor(visit: Callable[..., Visitor]) -> Visitor:
    """One person at the page."""
    return visit()


@pytest.fixture
def picture() -> Callable[[Page, str], None]:
    """Saves what a page shows into the folder SCREENSHOTS as a PNG of few colours, if it is set."""

    def save(page: Page, name: str) -> None:
        folder = os.environ.get("SCREENSHOTS")
        if not folder:
            return
        from PIL import Image

        path = Path(folder) / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=path, animations="disabled")
        Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)

    return save
