"""A job from its first checkpoint to its end, as its owner sees it in the browser."""

from pathlib import Path

import pytest

from tests.dashboard.steps import VIEWS, act, confirm, leave, look_up
from tests.jobs import RESTARTS, fail_once
from tests.programs import wait_until
from tests.served_jobs import TOKEN
from tidegate.core.rest_settings import RestSettings
from tidegate.protocol.job_status import JobStatus
from tidegate.web.registry import known_jobs

pytestmark = pytest.mark.slow


@pytest.fixture
def stored(serve, tmp_path):
    """A job that restarts, with checkpoints in files, taken when the test asks for them."""
    return serve({**RESTARTS, "execution.checkpointing.dir": str(tmp_path / "checkpoints")})


def enter(page, served, view="graph"):
    """Open a view as `tidegate ui` does."""
    page.goto(served.server.login_link(f"/jobs/{served.id}/{view}"))
    page.get_by_text("Live").wait_for()


def test_a_checkpoint_a_failure_a_savepoint_another_parallelism_and_the_end(stored, page):
    enter(page, stored)
    page.locator(".node").first.wait_for()
    assert page.locator(".node").count() == 2
    assert "login" not in page.url

    stored.let(20)
    dialog = act(page, "Checkpoint")
    assert "Checkpoint 1 is complete" in dialog.inner_text()
    leave(dialog)
    page.get_by_role("link", name="Checkpoints").click()
    row = page.get_by_role("region", name="History of checkpoints").locator("tbody tr")
    row.filter(has_text="Completed").wait_for()
    page.locator(".columns .tone-1").wait_for(state="attached")
    row.click()
    page.get_by_role("region", name="Subtasks of the checkpoint").locator(
        "tbody tr"
    ).first.wait_for()

    fail_once(stored.watch, "sums")
    stored.tap.let(30)
    page.get_by_role("link", name="Failures").click()
    page.get_by_text("restarted", exact=True).wait_for()
    assert "in map" in page.locator(".trace").first.inner_text()
    wait_until(lambda: stored.job.status() is JobStatus.RUNNING)

    dialog = act(page, "Savepoint")
    path = dialog.locator("code").first.inner_text()
    assert "/savepoints/savepoint-" in path
    leave(dialog)
    page.get_by_role("link", name="State").click()
    savepoints = page.locator(".list").get_by_role("button", name="Savepoint")
    savepoints.click()
    look_up(page, "sum", "key 3")

    stored.let(40)
    later = act(page, "Savepoint").locator("code").first.inner_text()
    leave(page.get_by_role("dialog"))
    page.get_by_label("Compare with").select_option(later)
    page.get_by_text("5 changed").wait_for()
    page.get_by_role("button", name="Back", exact=True).click()
    page.get_by_role("button", name="Delete").click()
    leave(confirm(page.get_by_role("dialog"), "Delete"))
    page.get_by_text("Choose a savepoint").wait_for()
    wait_until(lambda: savepoints.count() == 1)
    assert not Path(path).exists()

    dialog = act(page, "Rescale", parallelism=1)
    assert "The job runs with parallelism 1." in dialog.inner_text()
    leave(dialog)
    page.get_by_role("link", name="Graph").click()
    page.locator(".node").filter(has_text="\N{MULTIPLICATION SIGN} 1").first.wait_for()

    dialog = act(page, "Stop", drain=True)
    assert "--drain" in dialog.locator(".command").inner_text()
    assert "The job has stopped" in dialog.inner_text()
    leave(dialog)
    page.get_by_role("button", name="Start again").wait_for()
    assert stored.job.status() is JobStatus.FINISHED


def test_every_view_can_be_used_by_everyone(stored, page, disturbing_flaws):
    stored.let(10)
    enter(page, stored)
    for view in VIEWS:
        page.goto(f"{stored.server.url}/#/jobs/{stored.id}/{view}")
        page.locator("[aria-busy]").first.wait_for(state="detached")
        assert disturbing_flaws(page) == [], view
        page.emulate_media(color_scheme="dark")
        assert disturbing_flaws(page, "color-contrast") == [], view
        page.emulate_media(color_scheme="light")
        assert page.locator(".problem").count() == 0


def test_a_page_without_the_token_asks_for_it(served, page):
    page.goto(served.server.url)
    page.get_by_label("token").fill(TOKEN)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("cell", name="sums of numbers").wait_for()
    assert all("401" in each for each in page.complaints.found)
    page.complaints.found.clear()


def test_who_has_not_logged_in_sees_the_graph_but_neither_records_nor_buttons(serve, page):
    served = serve(rest=RestSettings())
    page.goto(f"{served.server.url}/#/jobs/{served.id}")
    page.get_by_role("button", name="Log in to act").wait_for()
    assert page.locator(".node").count() == 2
    page.get_by_role("link", name="Dead letters").click()
    page.get_by_label("paste the link").fill(served.server.login_link())
    page.get_by_role("button", name="Log in", exact=True).click()
    page.get_by_text("No dead letters").wait_for()
    page.get_by_role("button", name="Savepoint").wait_for()


def test_a_driver_that_may_only_be_read_offers_no_action(serve, page):
    served = serve(rest=RestSettings(token=TOKEN, read_only=True))
    enter(page, served)
    page.get_by_text("read-only").wait_for()
    assert page.locator(".actions").count() == 0


def test_a_job_that_has_ended_is_shown_as_it_was(stored, serve, page):
    stored.let(10)
    stored.order("/checkpoints")
    enter(page, stored)
    leave(act(page, "Cancel"))
    wait_until(lambda: known_jobs()[0].ended_at is not None)
    other = serve(name="another")
    page.goto(other.server.login_link())
    page.get_by_role("cell", name="sums of numbers").click()
    page.locator(".node").first.click()
    page.locator(".drawer tbody tr").first.wait_for()
    for view in ("checkpoints/1", "failures", "charts", "state", "dead-letters", "configuration"):
        page.goto(f"{other.server.url}/#/jobs/{stored.id}/{view}")
        page.locator("[aria-busy]").first.wait_for(state="detached")
        assert page.locator(".problem").all_inner_texts() == [], view
    assert page.get_by_role("link", name="Threads").count() == 0


def test_a_job_that_nobody_knows_is_not_found(served, page):
    page.goto(served.server.login_link(f"/jobs/{32 * 'f'}"))
    page.get_by_text("This job is not known here").wait_for()
    assert all("404" in each for each in page.complaints.found)
    page.complaints.found.clear()


def test_a_job_of_another_driver_is_opened_there(serve, page):
    first, second = serve(name="first"), serve(name="second")
    page.goto(first.server.login_link())
    page.get_by_role("cell", name="second").click()
    page.wait_for_url(f"{second.server.url}/**")
    page.get_by_role("heading", name="second").wait_for()
    page.get_by_role("button", name="Savepoint").wait_for()
