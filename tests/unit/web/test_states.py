"""Savepoints and checkpoints on disk, as the dashboard browses them."""

from urllib.parse import quote

import pytest

from tests.jobs import on_disk
from tests.programs import wait_until
from tidegate.core.rest_settings import RestSettings
from tidegate.web.archive import Archive
from tidegate.web.registry import COMMAND_VARIABLE, owner_token
from tidegate.web.server import RestServer


@pytest.fixture
def two(serve, tmp_path):
    """A job, and two of its savepoints between which it went on."""
    served = serve(on_disk(tmp_path / "checkpoints"))
    paths = []
    for number in (20, 40):
        served.let(number)
        wait_until(lambda number=number: served.job.progress().records_out == number)
        paths.append(served.order("/savepoints")["location"])
    return served, paths


def test_savepoints_are_found_opened_and_compared(two, tmp_path):
    served, (before, after) = two
    owner = served.as_owner()

    def listed():
        return served.ask("/tidegate/savepoints", headers=owner).document["savepoints"]

    assert {before, after} <= {each["path"] for each in listed()}
    # The last checkpoint may be deleted for a newer one while they are listed.
    wait_until(lambda: {each["kind"] for each in listed()} == {"savepoint", "checkpoint"})
    contents = served.ask(f"/tidegate/state?path={after}", headers=owner).document
    (operator,) = [each for each in contents["operators"] if each["states"]]
    (state,) = [each for each in operator["states"] if each["keyed"]]
    base = f"/tidegate/state/entries?path={after}&operator={operator['id']}&state={state['name']}"
    first = served.ask(f"{base}&limit=2", headers=owner).document
    rest = served.ask(f"{base}&limit=500&offset=2", headers=owner).document
    assert (first["more"], rest["more"]) == (True, False)
    keys = [key for key, _ in [*first["entries"], *rest["entries"]]]
    assert len(keys) == len(set(keys)) == state["entries"]
    some = served.ask(f"{base}&search={quote(keys[0].strip(chr(39)))}", headers=owner).document
    assert keys[0] in [key for key, _ in some["entries"]]
    path = f"/tidegate/state/difference?before={before}&after={after}"
    difference = served.ask(path, headers=owner).document
    assert difference["operators"][0]["states"][0]["changed"] > 0
    # Who has the token of the settings alone stays in the directories of the job.
    assert served.ask(f"/tidegate/state?path={after}").status == 200
    assert served.ask(f"/tidegate/state?path={tmp_path}/elsewhere").status == 403
    assert served.ask(f"{base}&trust=true").status == 403


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/tidegate/state?path=/nowhere", 404),
        ("/tidegate/state?path=s3://[bad", 400),
        ("/tidegate/state?path=http://h:port/x", 400),
        ("/tidegate/state", 400),
        ("/tidegate/savepoints?directory=x://[", 400),
        ("/tidegate/state/difference?before=/nowhere&after=/nowhere", 404),
    ],
)
def test_what_is_no_savepoint_is_refused(served, path, status):
    assert served.ask(path, headers=served.as_owner()).status == status


@pytest.mark.parametrize("url", ["s3://[bad", "file://[::1", "hdfs://h:port/x", "no-scheme://\0"])
def test_a_malformed_url_of_a_savepoint_is_refused(served, url):
    owner = served.as_owner()
    body = {"target-directory": url}
    assert served.of_job("/savepoints", method="POST", body=body, headers=owner).status == 400
    disposal = {"savepoint-path": url}
    assert served.ask("/savepoint-disposal", "POST", disposal, owner).status == 400


def test_a_job_that_has_ended_is_still_known(serve, tmp_path, monkeypatch):
    monkeypatch.delenv(COMMAND_VARIABLE, raising=False)
    served = serve(on_disk(tmp_path / "checkpoints"))
    served.let(20)
    wait_until(lambda: served.job.progress().records_out == 20)
    vertex = served.of_job().document["vertices"][1]["id"]
    served.job.cancel()
    wait_until(lambda: Archive().has(served.id))
    served.server.close()
    registry = RestServer(RestSettings(), kind="registry")
    served.server = registry
    try:
        (job,) = served.ask("/tidegate/jobs").document["jobs"]
        assert (job["archived"], job["here"]) == (True, True)
        details = served.of_job().document
        assert (details["state"], details["tidegate"]["records-out"]) == ("CANCELED", 20)
        for path in ("/plan", "/config", "/exceptions", "/checkpoints", f"/vertices/{vertex}"):
            assert served.of_job(path).status == 200, path
        assert served.ask(f"/tidegate{served.path}/live").document["end-time"] > 0
        assert served.ask(f"/jobs/{'0' * 32}").status == 404
        owner = {"authorization": f"Bearer {owner_token()}"}
        answer = served.ask(f"/tidegate{served.path}/start", "POST", {}, owner)
        assert (answer.status, "tidegate run" in answer.error) == (409, True)
    finally:
        registry.close()


def test_a_program_is_run_again_as_before_from_elsewhere():
    from tidegate.web.api.starts import run_again
    from tidegate.web.documents.states import StartOrder

    launch = {"program": "/p/job.py", "arguments": ["--x"], "settings": {"a": "1"}}
    command = run_again(launch, StartOrder(from_="/sp", parallelism=3))
    assert command[3:] == [
        *("run", "--detached", "--from", "/sp", "-D", "a=1", "-D", "parallelism.default=3"),
        *("/p/job.py", "--x"),
    ]
