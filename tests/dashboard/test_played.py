"""The page against a played driver: large jobs, hostile names, a driver that dies."""

import pytest

from tests.dashboard.played_driver import JID, PlayedDriver, PlayedJob
from tests.dashboard.steps import DRAG, watch, weight
from tests.programs import wait_until

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


WATCH = """() => {
    window.touched = [];
    const note = (records) => window.touched.push(...records.map(({ target }) =>
        (target.closest ? target : target.parentElement).closest(".node, .world, .graph")));
    new MutationObserver(note).observe(document.querySelector(".graph"),
        { subtree: true, childList: true, attributes: true, characterData: true });
}"""
TOUCHED = "[...new Set(window.touched.splice(0).map((each) => each.title || each.classList[0]))]"


def test_of_200_operators_and_20000_subtasks_only_what_changes_is_drawn_again(play, page):
    driver = play(200, 100)
    figures = driver.job.live()
    driver.job.live = lambda: figures
    page.goto(driver.url + GRAPH)
    page.locator(".node").nth(199).wait_for()
    page.evaluate(WATCH)
    page.evaluate(DRAG, 20)
    assert sorted(page.evaluate(TOUCHED)) == ["graph", "world"]
    figures["vertices"][7]["busy"] = 0.01
    wait_until(lambda: page.evaluate("window.touched.length"))
    assert page.evaluate(TOUCHED) == [driver.job.names[7]]
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


def test_a_page_that_stays_open_does_not_grow(play, page):
    """What is kept is full after ten minutes, which pass in some seconds."""
    driver = play()
    page.goto(driver.url + GRAPH)
    page.locator(".node").first.wait_for()
    driver.pace = 0.003
    assert watch(page, 630) == 600
    before, elements = weight(page)
    assert watch(page, 300) == 600
    driver.pace = 1.0
    after, more = weight(page)
    assert after - before < 500_000
    assert more <= elements + 20


def test_the_theme_of_the_system_is_used_and_can_be_changed(play, page):
    page.goto(play().url + GRAPH)
    page.locator(".node").first.wait_for()
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        page.locator(f"html[data-theme={theme}]").wait_for()
    page.get_by_title("Change the theme").click()
    page.locator("html[data-theme=light]").wait_for()


def test_a_phone_needs_no_sideways_scrolling(play, page):
    page.set_viewport_size({"width": 390, "height": 844})
    driver = play()
    for view in ("/#/", GRAPH, f"/#/jobs/{JID}/charts"):
        page.goto(driver.url + view)
        page.locator("h1").wait_for()
        assert page.evaluate("document.querySelector('.main').scrollWidth") <= 390
