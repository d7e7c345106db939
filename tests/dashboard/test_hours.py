"""A page that stays open for hours, which pass in minutes as the driver sends more events."""

import pytest

from tests.dashboard.screenshots import shop
from tests.dashboard.steps import VIEWS, watch, weight
from tests.effort import times
from tidegate.web import hub

pytestmark = [pytest.mark.slow, pytest.mark.prove]
ROUNDS = 3
KEPT = 600
"""Events are sent once a second otherwise, so this is ten minutes."""


@pytest.mark.timeout(7200)
def test_a_page_does_not_grow_in_any_view(page, monkeypatch):
    monkeypatch.setattr(hub, "_SECONDS", 0.02)
    monkeypatch.setattr(hub, "_LEAST_REST", 3.0)
    with shop(seconds_between_outages=20) as (server, job):
        page.goto(server.login_link(f"/jobs/{job.job_id}/graph"))
        weights = []
        for number in range(2 + times(ROUNDS)):
            for view in VIEWS:
                page.goto(f"{server.url}/#/jobs/{job.job_id}/{view}")
                watch(page, KEPT // len(VIEWS))
            page.goto(f"{server.url}/#/jobs/{job.job_id}/graph")
            assert watch(page, KEPT) == KEPT
            weights.append(weight(page))
            print(number, *weights[-1], flush=True)
        page.goto("about:blank")  # before the driver ends
        page.complaints.found.clear()  # requests may time out on a busy machine
    before, *_, after = weights[1:]
    assert after[0] - before[0] < 1_000_000
    assert after[1] <= before[1] + 50
