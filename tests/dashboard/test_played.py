"""The page against a played driver: large jobs, hostile names, a driver that dies."""

import pytest

from tests.dashboard.played_driver import JID, PlayedDriver, PlayedJob

pytestmark = pytest.mark.slow
GRAPH = f"/#/jobs/{JID}/graph"
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@pytest.fixture
def play():
    """Starts played drivers, and ends them."""
    started = []

    def start(*args, **more):
        started.append(PlayedDriver(PlayedJob(*args, **more)))
        return started[-1]

    yield start
    for driver in started:
        driver.die()


class Work:
    """The processor time of a page: tells the same on a busy machine."""

    def __init__(self, page):
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def seconds(self):
        found = self._session.send("Performance.getMetrics")["metrics"]
        return next(each["value"] for each in found if each["name"] == "TaskDuration")


LAY_OUT = """async () => {
    const { laidOut } = await import("/dashboard/views/graph/layout.js");
    const { live } = await import("/dashboard/core/live.js");
    laidOut(live.value.vertices, live.value.edges);
}"""
DRAG = """async (frames) => {
    const graph = document.querySelector(".graph");
    const { left, top } = graph.getBoundingClientRect();
    const at = (type, x) => graph.dispatchEvent(new PointerEvent(type,
        { bubbles: true, pointerId: 1, clientX: left + x, clientY: top + 4 }));
    graph.setPointerCapture = () => {};
    at("pointerdown", 4);
    for (let frame = 0; frame < frames; frame += 1) {
        at("pointermove", 4 + frame);
        await new Promise(requestAnimationFrame);
    }
    at("pointerup", 4);
}"""


def test_a_job_of_200_operators_and_20000_subtasks_is_laid_out_and_stays_smooth(play, page):
    page.goto(play(200, 100).url + GRAPH)
    page.locator(".node").nth(199).wait_for()
    work = Work(page)
    begun = work.seconds()
    page.evaluate(LAY_OUT)
    laid_out = work.seconds()
    page.evaluate(DRAG, 60)
    dragged = work.seconds()
    assert laid_out - begun < 1
    assert (dragged - laid_out) / 60 < 1 / 30
    page.locator(".node").nth(20).click()
    rows = page.locator(".drawer tbody tr")
    rows.first.wait_for()
    assert rows.count() <= 100


def test_names_of_users_are_text(play, page):
    driver = play(name=HOSTILE)
    driver.job.names[0] = HOSTILE
    page.goto(driver.url + GRAPH)
    page.locator(".node").first.wait_for()
    assert page.locator("h1").inner_text() == HOSTILE
    assert page.locator("#app img, #app script").count() == 0


def test_a_dead_driver_shows_within_five_seconds_and_the_page_recovers(play, page):
    driver = play()
    page.goto(driver.url + GRAPH)
    page.get_by_text("Live").wait_for()
    driver.die()
    page.get_by_text("The driver does not answer").wait_for(timeout=5_000)
    assert page.locator(".node").count() == 6
    driver.revive()
    page.get_by_text("Live").wait_for()
    assert page.get_by_text("The driver does not answer").count() == 0
    page.complaints.found.clear()


def test_a_driver_that_falls_silent_shows_within_five_seconds(play, page):
    driver = play()
    page.goto(driver.url + GRAPH)
    page.get_by_text("Live").wait_for()
    driver.is_silent = True
    page.get_by_text("The driver does not answer").wait_for()
    limit = "import('/dashboard/core/live.js').then(({ SILENCE }) => SILENCE)"
    assert page.evaluate(limit) < 5_000
    driver.is_silent = False
    page.get_by_text("Live").wait_for()


MINUTES = """async (minutes) => {
    const { points } = await import("/dashboard/core/live.js");
    const end = (points.times.at(-1) ?? Date.now() / 1000) + 60 * minutes;
    while ((points.times.at(-1) ?? 0) < end) await new Promise((done) => setTimeout(done, 20));
    return points.times.length;
}"""


def test_a_page_that_stays_open_does_not_grow(play, page):
    """Events of a quarter of an hour in some seconds: what is kept is full after ten minutes."""
    driver = play()
    page.goto(driver.url + GRAPH)
    page.locator(".node").first.wait_for()
    session = page.context.new_cdp_session(page)

    def heap():
        session.send("HeapProfiler.collectGarbage")
        return session.send("Runtime.getHeapUsage")["usedSize"]

    driver.pace = 0.003
    assert page.evaluate(MINUTES, 10.5) == 600
    before, elements = heap(), page.locator("*").count()
    assert page.evaluate(MINUTES, 5) == 600
    driver.pace = 1.0
    assert heap() - before < 500_000
    assert page.locator("*").count() <= elements + 20


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_theme_of_the_system_is_used_and_can_be_changed(play, page, theme):
    page.emulate_media(color_scheme=theme)
    page.goto(play().url + GRAPH)
    page.locator(".node").first.wait_for()
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    page.get_by_title("Change the theme").click()
    assert page.evaluate("document.documentElement.dataset.theme") != theme


def test_a_phone_needs_no_sideways_scrolling(play, page):
    page.set_viewport_size({"width": 390, "height": 844})
    driver = play()
    for view in ("/#/", GRAPH, f"/#/jobs/{JID}/charts"):
        page.goto(driver.url + view)
        page.locator("h1").wait_for()
        assert page.evaluate("document.querySelector('.main').scrollWidth") <= 390
