"""Checkpoints and savepoints by request, over real HTTP."""

from pathlib import Path

import pytest

from tests.jobs import hold_checkpoints, on_disk
from tests.programs import wait_until
from tests.served_jobs import restarting
from tidegate.core.rest_settings import RestSettings
from tidegate.protocol.job_status import JobStatus
from tidegate.web.allowed_paths import allowed_path
from tidegate.web.registry import known_jobs


def test_a_checkpoint_that_is_asked_for_is_in_the_history(serve, tmp_path):
    settings = on_disk(tmp_path / "checkpoints", **{"execution.checkpointing.interval": "1 h"})
    served = serve(settings)
    served.let(20)
    done = served.order("/checkpoints")
    number = done["checkpointId"]
    assert Path(done["external-path"], "_metadata").is_file()
    found = served.of_job("/checkpoints").document
    assert found["counts"] == {
        "restored": 0,
        "total": 1,
        "in_progress": 0,
        "completed": 1,
        "failed": 0,
    }
    assert found["latest"]["completed"]["id"] == number
    assert found["latest"]["completed"]["external_path"] == done["external-path"]
    assert [each["status"] for each in found["history"]] == ["COMPLETED"]
    assert found["summary"]["state_size"]["max"] == found["history"][0]["state_size"] > 0
    assert (found["history"][0]["num_subtasks"], found["latest"]["restored"]) == (4, None)


def test_the_statistics_of_subtasks_in_a_checkpoint_are_shown(serve, tmp_path):
    served = serve(on_disk(tmp_path / "c", **{"execution.checkpointing.interval": "1 h"}))
    served.let(20)
    number = served.order("/checkpoints")["checkpointId"]
    details = served.of_job(f"/checkpoints/details/{number}").document
    vertex = served.of_job().document["vertices"][1]["id"]
    assert details["tasks"][vertex]["num_acknowledged_subtasks"] == 2
    task = served.of_job(f"/checkpoints/details/{number}/subtasks/{vertex}").document
    assert [each["status"] for each in task["subtasks"]] == ["completed", "completed"]
    assert task["summary"]["state_size"]["max"] > 0
    # The history says the same of the subtask that was the last one.
    vertices = [each["id"] for each in served.of_job().document["vertices"]]
    paths = [f"/checkpoints/details/{number}/subtasks/{each}" for each in vertices]
    subtasks = [each for path in paths for each in served.of_job(path).document["subtasks"]]
    latest = max(each["ack_timestamp"] for each in subtasks)
    (row,) = served.of_job("/checkpoints").document["history"]
    slowest = row["tidegate"]["slowest"]
    assert slowest in [
        {name: each[name] for name in slowest}
        for each in subtasks
        if each["ack_timestamp"] == latest
    ]


def test_the_checkpoint_settings_are_shown(serve, tmp_path):
    served = serve(on_disk(tmp_path / "checkpoints"))
    found = served.of_job("/checkpoints/config").document
    assert (found["mode"], found["interval"]) == ("exactly_once", 10)
    assert (found["state_backend"], found["checkpoint_storage"]) == ("hashmap", "filesystem")
    assert found["externalization"] == {"enabled": True, "delete_on_cancellation": False}


def test_a_savepoint_is_written_where_it_shall_be(served, tmp_path):
    served.let(20)
    body = {"target-directory": f"{tmp_path}/savepoints/deep", "formatType": "NATIVE"}
    done = served.order("/savepoints", body)
    assert Path(done["location"]).parent == tmp_path / "savepoints" / "deep"
    assert Path(done["location"], "_metadata").is_file()
    assert served.job.status() is JobStatus.RUNNING
    savepoint = served.of_job("/checkpoints").document["latest"]["savepoint"]
    assert (savepoint["checkpoint_type"], savepoint["is_savepoint"]) == ("SAVEPOINT", True)


def test_a_job_is_cancelled_after_its_savepoint(served, tmp_path):
    served.let(20)
    done = served.order("/savepoints", {"cancel-job": True})
    assert Path(done["location"]).parent == tmp_path / "savepoints"
    wait_until(lambda: served.job.status() is JobStatus.CANCELED)


def test_the_parallelism_follows_the_bounds_that_flinks_tools_set(serve, tmp_path):
    served = serve(on_disk(tmp_path / "checkpoints"))
    wanted = served.of_job("/resource-requirements").document
    first, second = wanted
    assert wanted[first] == {"parallelism": {"lowerBound": 1, "upperBound": 2}}

    def put(body):
        return served.of_job("/resource-requirements", method="PUT", body=body)

    assert put(wanted).status == 200
    assert put({32 * "0": wanted[first]}).status == 400
    assert put({first: {"parallelism": {"upperBound": 0}}}).status == 400
    assert put({first: {"parallelism": 3}}).status == 400
    different = {"parallelism": {"upperBound": 4}}
    wanted[first]["parallelism"]["upperBound"] = 3
    assert "change together" in put({**wanted, second: different}).error
    assert served.job.graph.slots == 2
    assert put(wanted).status == 200
    wait_until(lambda: served.job.graph.slots == 3)


@pytest.mark.parametrize("drain", [True, False])
def test_a_job_is_stopped_with_a_savepoint(served, drain):
    served.let(20)
    done = served.order("/stop", {"drain": drain})
    assert "failure-cause" not in done, done
    assert Path(done["location"], "_metadata").is_file()
    wait_until(lambda: known_jobs()[0].state == JobStatus.FINISHED.name)
    (outcome,) = known_jobs()[0].operations.values()
    assert outcome["operation"] == {"location": done["location"]}


def test_the_same_trigger_id_is_one_order(served):
    served.let(20)
    body = {"triggerId": "a" * 32}
    for _ in range(2):
        assert served.of_job("/savepoints", method="POST", body=body).document == {
            "request-id": "a" * 32
        }
    served.outcome(f"{served.path}/savepoints/{'a' * 32}")
    assert served.of_job("/checkpoints").document["counts"]["total"] == 1


def test_two_savepoints_at_once_both_succeed(served):
    served.let(20)
    asked = [served.of_job("/savepoints", method="POST") for _ in range(2)]
    directories = {
        served.outcome(f"{served.path}/savepoints/{each.document['request-id']}")["location"]
        for each in asked
    }
    assert len(directories) == 2
    assert all(Path(directory, "_metadata").is_file() for directory in directories)


def test_a_savepoint_that_fails_says_why_and_leaves_nothing(serve, tmp_path):
    served = serve(on_disk(tmp_path / "checkpoints"))
    hold_checkpoints(_AsJob(served), served.watch, "sums")
    done = served.order("/savepoints")
    assert "the savepoint was not taken: sums" in done["failure-cause"]["stack-trace"]
    assert done["failure-cause"]["class"].endswith("SavepointFailed")
    wait_until(lambda: not any((tmp_path / "savepoints").glob("*")))
    assert served.job.status() is JobStatus.RUNNING


class _AsJob:
    """What `hold_checkpoints` asks a job for."""

    def __init__(self, served):
        self.history = served.job.checkpoints

    @property
    def newest(self):
        return max((record.checkpoint_id for record in self.history.records()), default=0)

    @property
    def latest(self):
        record = self.history.latest_completed
        return 0 if record is None else record.checkpoint_id


def test_how_far_a_savepoint_is_can_be_watched(served):
    served.let(20)
    seen = []
    served.watch.on("sums", "snapshot", lambda _: wait_until(lambda: seen))
    asked = served.of_job("/savepoints", method="POST").document["request-id"]
    path = f"{served.path}/savepoints/{asked}"
    wait_until(lambda: served.ask(path).document.get("progress"))
    found = served.ask(path).document
    seen.append(found)
    assert found["status"] == {"id": "IN_PROGRESS"}
    assert found["progress"]["subtasks"] == 4
    assert found["progress"]["acknowledged"] < 4
    assert "location" in served.outcome(path)


def test_without_a_directory_none_is_taken(serve):
    served = serve({"execution.checkpointing.savepoint-dir": None})
    assert served.of_job("/savepoints", method="POST").error.startswith(
        "execution.checkpointing.savepoint-dir = None: set it to the directory for savepoints"
    )
    answer = served.of_job("/savepoints", method="POST", body={"target-directory": "/tmp/x"})
    assert answer.status == 403
    assert "no directory for savepoints is set" in answer.error


def test_a_job_that_restarts_says_so(serve):
    served = restarting(serve)
    answer = served.of_job("/savepoints", method="POST")
    assert answer.status == 409
    assert answer.error == "no savepoint now: the job is restarting; ask again when it runs"


@pytest.mark.parametrize("path", ["/savepoints", "/stop", "/checkpoints"])
def test_a_job_that_has_ended_says_so(served, path):
    served.job.cancel()
    wait_until(lambda: served.job.status() is JobStatus.CANCELED)
    answer = served.of_job(path, method="POST")
    assert answer.status == 409
    assert answer.error.endswith("now: the job is canceled; it is too late")


# --- directories --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/etc", "{tmp}", "{tmp}/savepoints/../x", "{tmp}/savepoints/out"])
def test_a_place_outside_the_directories_for_savepoints_is_refused(served, tmp_path, path):
    (tmp_path / "savepoints").mkdir()
    (tmp_path / "savepoints" / "out").symlink_to("/etc")
    directory = path.replace("{tmp}", str(tmp_path))
    orders = {"/savepoints": "target-directory", "/stop": "targetDirectory"}
    for order, field in orders.items():
        answer = served.of_job(order, method="POST", body={field: directory})
        assert answer.status == 403
        assert "is outside the directories for savepoints" in answer.error
    disposal = served.ask("/savepoint-disposal", "POST", {"savepoint-path": directory})
    assert disposal.status == 403
    assert served.job.status() is JobStatus.RUNNING


def test_other_directories_can_be_allowed(serve, tmp_path):
    served = serve({"tidegate.rest.savepoint-directories": f"{tmp_path}/a;{tmp_path}/b"})
    served.let(20)
    done = served.order("/savepoints", {"target-directory": f"{tmp_path}/b"})
    assert Path(done["location"]).parent == tmp_path / "b"


def test_the_owner_of_the_job_may_choose_any_directory(served, tmp_path):
    served.let(20)
    body = {"target-directory": str(tmp_path / "elsewhere")}
    done = served.order("/savepoints", body, headers=served.as_owner())
    assert Path(done["location"]).parent == tmp_path / "elsewhere"


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("s3://bucket/save/x", "s3://user:word@bucket/save/x?endpoint_override=here"),
        ("s3://bucket/save", "s3://user:word@bucket/save?endpoint_override=here"),
        ("s3://bucket/saved", None),
        ("s3://bucket/save/../x", None),
        ("s3://bucket/save/%2e%2e/x", None),
        ("s3://bucket/save/x?endpoint_override=there", None),
        ("s3://other/save/x", None),
        ("gs://bucket/save/x", None),
        ("/save/x", None),
        ("s3://[bucket/x", None),
    ],
)
def test_a_url_must_be_below_one_that_is_allowed(wanted, found):
    assert allowed_path(wanted, ["s3://user:word@bucket/save?endpoint_override=here"]) == found


def test_a_savepoint_is_disposed_of(served):
    served.let(20)
    path = served.order("/savepoints")["location"]
    asked = served.ask("/savepoint-disposal", "POST", {"savepoint-path": path})
    assert asked.status == 202
    status = f"/savepoint-disposal/{asked.document['request-id']}"
    assert served.outcome(status) == {}
    assert not Path(path).exists()
    again = served.ask("/savepoint-disposal", "POST", {"savepoint-path": path})
    done = served.outcome(f"/savepoint-disposal/{again.document['request-id']}")
    assert "there is no savepoint" in done["failure-cause"]["stack-trace"]


def test_a_checkpoint_of_a_running_job_is_not_disposed_of(serve, tmp_path):
    all_kept = {"execution.checkpointing.num-retained": 1000}
    served = serve(on_disk(tmp_path / "checkpoints", **all_kept))
    served.let(20)
    path = served.order("/checkpoints")["external-path"]
    order = {"savepoint-path": path}
    refused = served.ask("/savepoint-disposal", "POST", order, served.as_owner())
    assert (refused.status, "which is running" in refused.error) == (409, True)
    assert Path(path, "_metadata").exists()


def test_a_token_does_not_make_an_owner(serve, tmp_path):
    served = serve(rest=RestSettings(token="a-long-enough-token"))
    body = {"target-directory": str(tmp_path / "elsewhere")}
    token = {"authorization": "Bearer a-long-enough-token"}
    assert served.of_job("/savepoints", method="POST", body=body, headers=token).status == 403
