"""A real browser for the tests of the dashboard, which complains about everything it sees."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.programs import PATIENCE
from tests.served_jobs import home, serve, served

__all__ = ["home", "serve", "served"]

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
ABORTED = "net::ERR_ABORTED"
"""A request that the page itself has given up, as its view was left."""
DISTURBING = ("critical", "serious")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Ends with its module: as long as it lives, no other test can run an event loop."""
    if CHROMIUM is None:
        pytest.skip("there is no chromium: make browser installs it on Debian")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Complaints:
    """What a browser says against a page; a test fails if there is any at its end."""

    def __init__(self, page: Any) -> None:
        self.found: list[str] = []
        page.on(
            "console", lambda message: message.type == "error" and self.found.append(message.text)
        )
        page.on("pageerror", lambda error: self.found.append(str(error)))
        page.on("requestfailed", self._failed)
        page.on(
            "response",
            lambda answer: (
                answer.status >= 400 and self.found.append(f"{answer.status} {answer.url}")
            ),
        )

    def _failed(self, request: Any) -> None:
        if request.failure != ABORTED:
            self.found.append(f"{request.failure} {request.url}")


@pytest.fixture
def page(browser) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.set_default_timeout(1000 * PATIENCE)
    page.complaints = Complaints(page)
    yield page
    context.close()
    assert page.complaints.found == []


AXE = (Path(__file__).parent / "axe.min.js").read_text()


@pytest.fixture
def disturbing_flaws():
    """What axe finds on a page that keeps people from using it."""

    def look(page: Any, *rules: str) -> list[str]:
        """By these rules, or by all of them."""
        if not page.evaluate("Boolean(window.axe)"):
            page.evaluate(AXE)
        chosen = {"runOnly": rules} if rules else {}
        found = page.evaluate(
            "(chosen) => axe.run({ resultTypes: ['violations'], ...chosen })", chosen
        )["violations"]
        return [
            f"{each['id']}: {each['help']}: {node['html'][:200]} {node['failureSummary']}"
            for each in found
            if each["impact"] in DISTURBING
            for node in each["nodes"][:2]
        ]

    return look
