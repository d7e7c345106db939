"""The whole story with a job on Spark that `tidegate run` started."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.dashboard.steps import act, leave
from tidegate.web.registry import running_jobs

pytestmark = [pytest.mark.spark, pytest.mark.slow]
PROGRAM = Path(__file__).with_name("failing_program.py")


def tidegate(*arguments):
    command = [sys.executable, "-m", "tidegate", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
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
    page.get_by_role("banner").or_(page.locator(".job-header")).get_by_text("Running").wait_for()

    leave(act(page, "Savepoint"))
    leave(act(page, "Rescale", parallelism=1))
    page.get_by_role("link", name="Graph").click()
    page.locator(".node").filter(has_text="\N{MULTIPLICATION SIGN} 1").first.wait_for()

    dialog = act(page, "Stop")
    savepoint = dialog.locator("code").first.inner_text()
    assert Path(savepoint).is_dir()
