"""Measures the figures of docs/dashboard.md: `python -m tests.dashboard.measure`.

How fast a graph of 200 operators with 100 subtasks each is laid out and drawn, and what 50 open
pages cost a job on Spark that runs as fast as it can.
"""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median
from typing import Any

from playwright.sync_api import Page, sync_playwright

from tests.dashboard.conftest import CHROMIUM, FLAGS
from tests.dashboard.played_driver import JID, PlayedDriver, PlayedJob
from tests.dashboard.steps import DRAG
from tests.programs import wait_until
from tidegate import StreamExecutionEnvironment, Types
from tidegate.core.rest_settings import RestSettings
from tidegate.datastream.connectors import DataGeneratorSource
from tidegate.web.server import RestServer

PAGES = 50
ROUNDS = 5
SECONDS = 5
LAYOUT = """async ({ vertices, edges }) => {
    const { laidOut } = await import("/dashboard/views/graph/layout.js");
    const began = performance.now();
    laidOut(vertices, edges);
    return performance.now() - began;
}"""
FRAMES = 300
READ = """
import sys, threading, urllib.request
def read():
    with urllib.request.urlopen(sys.argv[1]) as events:
        while events.read1(1 << 16):
            pass
for _ in range(int(sys.argv[2])):
    threading.Thread(target=read).start()
"""


def measure_graph(page: Page) -> None:
    job = PlayedJob(200, 100)
    driver = PlayedDriver(job)
    try:
        page.goto(f"{driver.url}/#/jobs/{JID}/graph")
        page.locator(".node").nth(199).wait_for()
        graph: dict[str, Any] = {
            "vertices": [{"id": vertex} for vertex in job.ids],
            "edges": [
                {"id": number, "source": job.ids[source], "target": job.ids[target]}
                for number, (source, target) in enumerate(job.edges)
            ],
        }
        layouts = [page.evaluate(LAYOUT, graph) for _ in range(ROUNDS)]
        print(f"layout of 200 operators: {median(layouts):.0f} ms")
        began = time.monotonic()
        page.evaluate(DRAG, FRAMES)
        seconds = time.monotonic() - began
        print(f"frames per second while it is dragged: {FRAMES / seconds:.0f}")
    finally:
        driver.die()


def measure_pages() -> None:
    settings = {"tidegate.console.live-line": "off"}
    with StreamExecutionEnvironment.get_execution_environment(settings) as env:
        env.set_parallelism(2)
        numbers = DataGeneratorSource(lambda number: (number % 1000, 1), type_info=PAIR)
        counts = env.from_source(numbers, source_name="numbers").key_by(lambda pair: pair[0]).sum(1)
        counts.filter(lambda count: False).print()
        client = env.execute_async("watched")
        job, server = client._job, RestServer(RestSettings())
        server.publish(job, "local")
        wait_until(lambda: job.progress().records_in > 1_000_000)

        def rate() -> float:
            before, began = job.progress().records_in, time.monotonic()
            time.sleep(SECONDS)
            return (job.progress().records_in - before) / (time.monotonic() - began)

        ratios = []
        for _ in range(ROUNDS):
            alone = rate()
            events = f"{server.url}/tidegate/events?job={job.job_id}"
            pages = subprocess.Popen([sys.executable, "-c", READ, events, str(PAGES)])
            time.sleep(2)  # while they start
            ratios.append(rate() / alone)
            pages.kill()
            pages.wait()
            print(f"{alone:,.0f} records/s; with {PAGES} pages {ratios[-1]:.1%} of it", flush=True)
        print(f"median: {median(ratios):.1%}")
        job.cancel()
        wait_until(lambda: job.status().is_terminal)
        server.close()


PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])

if __name__ == "__main__":
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        measure_graph(browser.new_page(viewport={"width": 1280, "height": 800}))
        browser.close()
    measure_pages()
