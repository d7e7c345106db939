"""The whole story with a job on Spark that `tidegate run` started."""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.dashboard.steps import act, confirm, leave, look_up
from tests.programs import wait_until
from tidegate.web.registry import running_jobs

pytestmark = [pytest.mark.spark, pytest.mark.slow]
PROGRAM = Path(__file__).with_name("failing_program.py")


def tidegate(*arguments):
    command = [sys.executable, "-m", "tidegate", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def job(home, tmp_path):
    """A job in another process."""
    yield tidegate("run", "--detached", "-p", 2, "--master", "local[6]", PROGRAM, tmp_path)
    for record in running_jobs():
        tidegate("cancel", record.job_id)


def test_a_job_fails_recovers_is_rescaled_stopped_started_again_and_its_state_is_read(
    job, page, tmp_path
):
    page.goto(tidegate("ui", "--no-browser", job))
    page.locator(".node").first.wait_for()

    page.get_by_role("link", name="Checkpoints").click()
    history = page.get_by_role("region", name="History of checkpoints").locator("tbody tr")
    history.filter(has_text="Completed").first.wait_for()

    (tmp_path / "fail").touch()
    page.get_by_role("link", name="Failures").click()
    page.get_by_text("restarted", exact=True).first.wait_for()
    assert "there is a file" in page.locator(".trace").first.inner_text()
    page.locator(".job-header").get_by_text("Running").wait_for()

    leave(act(page, "Savepoint"))
    page.get_by_role("link", name="State").click()
    page.locator(".list").get_by_role("button", name="Savepoint").click()
    page.get_by_role("button", name="Plan").click()
    page.get_by_text("The program can resume from it.").wait_for()
    leave(act(page, "Rescale", parallelism=1))
    page.get_by_role("link", name="Graph").click()
    page.locator(".node").filter(has_text="\N{MULTIPLICATION SIGN} 1").first.wait_for()

    dialog = act(page, "Stop")
    stopped = dialog.locator("code").first.inner_text()
    assert Path(stopped).is_dir()
    # The process of the job ends with it; what was stored is browsed from another one.
    wait_until(lambda: not running_jobs())
    with registry_server() as link:
        page.goto(link)
        page.get_by_role("link", name="Savepoints").click()
        page.locator(f'.list button[title="{stopped}"]').click()
        assert int(look_up(page, "counted", "3")) > 0
        page.get_by_role("button", name="Start from it").click()
        confirm(page.get_by_role("dialog"), "Start again")
        page.get_by_role("link", name="Open its dashboard").click()
    page.locator(".node").first.wait_for()
    page.locator(".job-header").get_by_text("Running").wait_for()
    page.complaints.found.clear()  # of the driver that ended


@contextmanager
def registry_server():
    """What `tidegate ui` serves when no job runs; the link that it prints."""
    command = [sys.executable, "-m", "tidegate", "ui", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(60)
