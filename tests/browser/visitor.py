"""A person at the page: what they see in a browser, and what stands behind it in the server."""

from __future__ import annotations

from dataclasses import dataclass

from playwright.sync_api import BrowserContext, Page, ViewportSize

from ui.page.sessions import Sessions
from ui.server.service import Service

PATIENCE = 180_000
"""Milliseconds that a step may take on a slow machine with models that are still loading."""

WIDE = ViewportSize(width=1280, height=1000)
"""The window of a person at a desk."""


@dataclass(frozen=True)
class Demo:
    """The served page and what stands behind it."""

    url: str
    service: Service
    sessions: Sessions


@dataclass
class Visitor:
    """One person at the page: `said` is what the browser had to complain about."""

    page: Page
    context: BrowserContext
    said: list[str]

    def write(self, text: str) -> None:
        """Put a text into the source field."""
        self.page.locator("#source textarea").fill(text)

    def choose(self, field: str, name: str) -> None:
        """Choose an entry of a list by what it shows."""
        entry = self.page.locator(f"#{field} input")
        entry.click()
        entry.fill(name)
        self.page.get_by_role("option", name=name).first.click()

    def translate(self) -> str:
        """Press Translate and wait for the whole translation."""
        self.page.locator("#translate").click()
        return self.finished()

    def finished(self) -> str:
        """The translation, once it is whole."""
        self.page.locator("#message", has_text="Done:").wait_for(timeout=PATIENCE)
        self.page.locator('.mt-output[aria-busy="false"]').wait_for(timeout=PATIENCE)
        return self.page.locator("[data-copy]").get_attribute("data-copy") or ""

    def open_settings(self) -> None:
        """Show the settings and wait until gradio has drawn them: in the frame after they appear it sets each to the
        value that the page began with, whatever was put in meanwhile."""
        self.page.locator("#settings > button").click()
        self.page.locator("#context input[type=number]").wait_for()
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def open_tab(self, name: str) -> None:
        """Show a tab."""
        self.page.get_by_role("tab", name=name).click()
