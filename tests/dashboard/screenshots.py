"""Takes the screenshots of docs/dashboard.md: `python -m tests.dashboard.screenshots`.

Runs the job of `make demo-ui` without Spark for two minutes, and opens every view in both themes.
"""

from __future__ import annotations

import base64
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from tests.dashboard.conftest import CHROMIUM, FLAGS
from tests.dashboard.steps import act, leave
from tests.programs import PATIENCE, wait_until
from tidegate import RestartStrategies
from tidegate.core.rest_settings import RestSettings
from tidegate.driver.job_handle import JobHandle
from tidegate.testing.environments import mini_environment
from tidegate.web.server import RestServer

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images" / "dashboard"
LOOK = {"format": "webp", "quality": 82}
WARM_SECONDS = 100


def choose_vertex(page: Page) -> None:
    page.locator(".node").filter(has_text="Accounts").click()
    page.locator(".drawer tbody tr").first.wait_for()


def choose_state(page: Page) -> None:
    leave(act(page, "Savepoint"))
    page.locator(".split .list").get_by_role("button", name="Savepoint").first.click()
    page.locator(".list button").filter(has_text="owed").click()
    page.get_by_role("region", name="Entries").locator("tbody tr").first.wait_for()


def sample(page: Page) -> None:
    button = page.get_by_role("button", name="Sample 10 records")
    while not page.locator(".records code").count():
        button.click()
        button.wait_for()


def ask_for_stop(page: Page) -> None:
    page.locator(".actions").get_by_role("button", name="Stop").click()


def nothing(page: Page) -> None:
    """The view as it is."""


SHOTS: dict[str, tuple[str, Callable[[Page], None]]] = {
    "jobs": ("", nothing),
    "graph": ("graph", nothing),
    "vertex": ("graph", choose_vertex),
    "stop": ("graph", ask_for_stop),
    "checkpoints": ("checkpoints", nothing),
    "failures": ("failures", nothing),
    "charts": ("charts", nothing),
    "state": ("state", choose_state),
    "dead-letters": ("dead-letters", nothing),
    "sample": ("sample", sample),
    "configuration": ("configuration", nothing),
    "logs": ("logs", nothing),
    "threads": ("threads", nothing),
}


@contextmanager
def shop(seconds_between_outages: float = 60) -> Iterator[tuple[RestServer, JobHandle]]:
    """The job of `make demo-ui`, served as a driver does."""
    with tempfile.TemporaryDirectory(prefix="shop-") as folder:
        directory = Path(folder)
        shutil.copy(ROOT / "examples" / "shop.py", directory)  # its path is in tracebacks
        sys.path.insert(0, folder)
        from shop import open_shop

        settings = {
            "execution.checkpointing.dir": str(directory / "checkpoints"),
            "execution.checkpointing.savepoint-dir": str(directory / "savepoints"),
            "tidegate.console.live-line": "off",
        }
        env = mini_environment(settings, parallelism=2)
        env.enable_checkpointing("3 s")
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1_000_000, "2 s"))
        open_shop(env, directory, 2_000, seconds_between_outages)
        client = env.execute_async("shop")
        server = RestServer(RestSettings())
        server.publish(client._job, "local")
        try:
            yield server, client._job
        finally:
            client._job.cancel()
            wait_until(lambda: client._job.status().is_terminal)
            server.close()


def take(server: RestServer, job: JobHandle, wanted: list[str]) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for theme in ("light", "dark"):
            context = browser.new_context(
                viewport={"width": 1280, "height": 800}, color_scheme=theme
            )
            page = context.new_page()
            page.set_default_timeout(1000 * PATIENCE)
            page.goto(server.login_link())
            page.get_by_text("Live").wait_for()
            for name in wanted:
                view, prepare = SHOTS[name]
                page.goto(f"{server.url}/#/" + (f"jobs/{job.job_id}/{view}" if view else ""))
                page.reload()
                page.locator("h1").wait_for()
                page.locator("[aria-busy]").first.wait_for(state="detached")
                prepare(page)
                page.wait_for_timeout(2_000)  # figures of some seconds
                save(page, IMAGES / f"{name}-{theme}.webp")
            context.close()
        browser.close()


def save(page: Page, file: Path) -> None:
    taken: dict[str, Any] = page.context.new_cdp_session(page).send("Page.captureScreenshot", LOOK)
    file.write_bytes(base64.b64decode(taken["data"]))
    print(file.relative_to(ROOT), f"{file.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    with shop() as (server, job):
        time.sleep(WARM_SECONDS)
        take(server, job, sys.argv[1:] or list(SHOTS))
