"""Debian's Chromium, driven by Playwright, for tests of the leaderboard's site."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

Theme = Literal["light", "dark"]
PATIENCE = 20_000  # milliseconds: other tests run beside it
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@contextmanager
def browser() -> Iterator[Browser]:
    """Yield a browser; skip where there is none, and fail where continuous integration has none."""
    from playwright.sync_api import expect, sync_playwright

    found = os.environ.get("DPBENCH_CHROMIUM") or shutil.which("chromium")
    if not found:
        said = "Expected chromium on the PATH, or named by DPBENCH_CHROMIUM: apt-get install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(said)
        pytest.skip(said)
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=found, args=ARGUMENTS)
        try:
            yield opened
        finally:
            opened.close()


@dataclass
class Seen:
    """What a page did beside being shown."""

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def outside(self, *inside: str) -> list[str]:
        """Return the requests that left the site."""
        return [url for url in self.requests if not url.startswith((*inside, "data:"))]


@contextmanager
def opened(browser: Browser, address: str, theme: Theme = "light", width: int = 1280) -> Iterator[tuple[Page, Seen]]:
    """Yield a page in a context of its own, and what it did."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
    page, seen = context.new_page(), Seen()
    page.set_default_timeout(PATIENCE)
    page.on("request", lambda request: seen.requests.append(request.url))
    page.on("requestfailed", lambda request: seen.complaints.append(f"failed: {request.url}"))
    page.on("console", lambda said: seen.complaints.append(f"{said.type}: {said.text}"))
    page.on("pageerror", lambda error: seen.complaints.append(f"error: {error}"))

    def refuse(dialog: Dialog) -> None:
        seen.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("dialog", refuse)
    try:
        page.goto(address)
        yield page, seen
    finally:
        context.close()


def address(folder: Path, path: str) -> str:
    """Return the address of a page on disk."""
    return f"{folder.resolve().as_uri()}/{path}"
