"""What the REST API tells of jobs, over real HTTP."""

import json
import re
from pathlib import Path

import pytest

from tests.jobs import fail_once, on_disk
from tests.programs import wait_until
from tests.served_jobs import TOKEN
from tidegate.core.rest_settings import RestSettings
from tidegate.protocol.job_status import JobStatus
from tidegate.web.registry import known_jobs, owner_token, token_file


def test_the_driver_tells_its_jobs(served):
    assert served.ask("/jobs").document == {"jobs": [{"id": served.id, "status": "RUNNING"}]}
    overview = served.ask("/overview").document
    assert (overview["jobs-running"], overview["slots-total"]) == (1, 2)
    (job,) = served.ask("/jobs/overview").document["jobs"]
    assert (job["jid"], job["name"], job["state"]) == (served.id, "sums of numbers", "RUNNING")
    assert (job["tasks"]["total"], job["tasks"]["failed"], job["end-time"]) == (4, 0, -1)
    assert served.ask("/config").document["features"]["web-cancel"] is True


def test_paths_exist_below_v1_as_well(served):
    assert served.ask("/v1/jobs").document == served.ask("/jobs").document


def test_a_job_tells_its_vertices_and_their_records(served):
    served.let(59)
    wait_until(lambda: served.job.progress().records_out == 59)
    job = served.of_job().document
    source, sums = job["vertices"]
    assert (source["name"], sums["name"]) == ("source", "sums -> sums")
    assert source["metrics"]["write-records"] == sums["metrics"]["read-records"] == 59
    assert sums["status"] == "RUNNING"
    assert (job["state"], job["end-time"], job["tidegate"]["records-out"]) == ("RUNNING", -1, 59)
    assert job["start-time"] <= job["timestamps"]["RUNNING"] <= job["now"]
    node = job["plan"]["nodes"][1]
    assert [(each["id"], each["ship_strategy"]) for each in node["inputs"]] == [
        (source["id"], "HASH")
    ]


def test_a_vertex_tells_its_subtasks(served):
    served.let(59)
    wait_until(lambda: served.job.progress().records_out == 59)
    vertex = served.of_job().document["vertices"][1]
    found = served.of_job(f"/vertices/{vertex['id']}").document
    assert [subtask["subtask"] for subtask in found["subtasks"]] == [0, 1]
    assert sum(subtask["metrics"]["read-records"] for subtask in found["subtasks"]) == 59
    received = sum(subtask["metrics"]["read-bytes"] for subtask in found["subtasks"])
    assert received == served.of_job().document["vertices"][0]["metrics"]["write-bytes"] > 59
    one = served.of_job(f"/vertices/{vertex['id']}/subtasks/1").document
    assert counts_of(one) == counts_of(found["subtasks"][1])
    assert served.of_job(f"/vertices/{vertex['id']}/watermarks").document == []


def counts_of(subtask):
    """Its metrics without times: those pass between two questions."""
    return {name: value for name, value in subtask["metrics"].items() if not name.endswith("-time")}


def test_a_vertex_tells_its_metrics_by_name(served):
    served.let(59)
    wait_until(lambda: served.job.progress().records_out == 59)
    path = f"/vertices/{served.of_job().document['vertices'][0]['id']}/metrics"
    assert {"id": "0.numRecordsOut"} in served.of_job(path).document
    found = served.of_job(f"{path}?get=0.numRecordsOut,1.numRecordsOut,unknown").document
    assert sum(float(each["value"]) for each in found) == 59
    subtasks = path.replace("metrics", "subtasks")
    (one,) = served.of_job(f"{subtasks}/0/metrics?get=numRecordsOut").document
    assert one["value"] == found[0]["value"]
    (all_,) = served.of_job(f"{subtasks}/metrics?get=numRecordsOut,unknown").document
    assert (all_["sum"], all_["avg"], all_["id"]) == (59, 29.5, "numRecordsOut")
    assert all_["min"] + all_["max"] == 59
    assert {"id": "numBytesOut"} in served.of_job(f"{subtasks}/metrics").document


def test_a_job_tells_its_state_and_its_metrics_by_name(served):
    assert served.of_job("/status").document == {"status": "RUNNING"}
    (restarts,) = served.of_job("/metrics?get=numRestarts,unknown").document
    assert restarts == {"id": "numRestarts", "value": "0"}


def test_a_job_without_accumulators_says_so(served):
    assert served.of_job("/accumulators").document["user-task-accumulators"] == []


def test_the_plan_is_also_there_by_itself(served):
    assert served.of_job("/plan").document["plan"] == served.of_job().document["plan"]


def test_settings_are_shown_without_secrets(serve):
    served = serve(
        {
            "tidegate.rest.token": "0123456789abcdef",
            "spark.hadoop.fs.s3a.secret.key": "very secret",
            "execution.checkpointing.dir": "s3://key:word@bucket/checkpoints",
            "tidegate.step.max-records": 10,
        }
    )
    config = served.of_job("/config").document["execution-config"]
    assert config["user-config"]["tidegate.step.max-records"] == "10"
    assert config["user-config"]["tidegate.rest.token"] == "******"
    assert config["user-config"]["spark.hadoop.fs.s3a.secret.key"] == "******"
    assert config["user-config"]["execution.checkpointing.dir"] == "s3://bucket/checkpoints"
    assert config["restart-strategy"] == "none"


def test_failures_and_restarts_are_reported_with_their_cause(serve):
    served = serve(
        {
            "restart-strategy": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": 2,
            "restart-strategy.fixed-delay.delay": "1 ms",
        }
    )
    assert served.of_job("/exceptions").document["root-exception"] is None
    fail_once(served.watch, "sums")
    served.let(59)
    wait_until(lambda: served.job.chronicle.restarts == 1)
    found = served.of_job("/exceptions").document
    (entry,) = found["exceptionHistory"]["entries"]
    assert "ValueError: once" in found["root-exception"]
    assert (entry["exceptionName"], entry["tidegate"]["restarted"]) == ("UserFunctionError", True)
    assert entry["taskName"] in ("sums (1/2)", "sums (2/2)")
    assert entry["location"] in ("slot-0", "slot-1")
    assert served.of_job("/exceptions?maxExceptions=0").document["truncated"]


def test_metrics_have_flinks_names(serve, tmp_path):
    served = serve(on_disk(tmp_path / "checkpoints"))
    served.let(59)
    wait_until(lambda: served.job.progress().records_in == 59)
    wait_until(lambda: served.job.checkpoints.latest_completed)
    wait_until(lambda: served.job.checkpoints.latest_completed.incremental_size)
    answer = served.ask("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    values = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in answer.document.splitlines()
        if not line.startswith("#")
    }
    labels = f'{{job_id="{served.id}",job_name="sums of numbers"}}'
    assert values[f"tidegate_job_records_in{labels}"] == 59
    assert values[f"flink_jobmanager_job_numberOfCompletedCheckpoints{labels}"] >= 1
    assert values[f"flink_jobmanager_job_lastCheckpointSize{labels}"] > 0
    assert values[f"flink_jobmanager_job_numRestarts{labels}"] == 0
    received = [v for k, v in values.items() if k.startswith("flink_taskmanager_job_task_numRec")]
    assert sum(received) > 0
    assert any("checkpointAlignmentTime" in key for key in values)


def test_a_cancelled_job_is_served_until_the_driver_ends(served):
    assert served.of_job(method="PATCH").status == 202
    wait_until(lambda: served.job.status() is JobStatus.CANCELED)
    assert served.of_job().document["state"] == "CANCELED"
    again = served.of_job("?mode=cancel", method="PATCH")
    assert again.status == 409
    assert again.error == "no cancellation now: the job is canceled; it is too late"


# --- the registry -------------------------------------------------------------------------------


def test_a_running_job_is_written_down_for_its_user_alone(served, home):
    (record,) = known_jobs()
    assert (record.job_id, record.name, record.is_running) == (served.id, "sums of numbers", True)
    assert (record.application_id, record.url) == ("local-1", served.server.url)
    assert (home / "jobs").stat().st_mode & 0o777 == 0o700
    assert (home / "jobs" / f"{served.id}.json").stat().st_mode & 0o777 == 0o600


def test_the_end_of_a_job_is_written_down(served):
    served.of_job(method="PATCH")
    wait_until(lambda: not known_jobs()[0].is_running)
    (record,) = known_jobs()
    assert (record.state, record.token) == ("CANCELED", None)
    assert record.ended_at >= record.started_at


# --- bad requests -------------------------------------------------------------------------------


def test_the_document_describes_every_path(served):
    document = served.ask("/openapi.json").document
    assert document["openapi"] == "3.1.0"
    assert set(document["paths"]["/jobs/{jobid}"]) == {"get", "patch"}
    page = (Path(__file__).parents[3] / "docs" / "rest-api.md").read_text()
    words = {re.sub(r"/{\w+}", "", path).rpartition("/")[2] for path in document["paths"]}
    assert len(words) > 30
    assert [word for word in words if word not in page] == []


@pytest.mark.parametrize(
    ("method", "path", "status", "sentence"),
    [
        ("GET", "/nothing", 404, "there is no /nothing"),
        ("GET", "/jobs/", 404, "there is no /jobs/"),
        ("DELETE", "/jobs", 405, "DELETE is not allowed here"),
        ("GET", "/jobs/abc", 400, "'abc' is not the id of a job"),
        ("GET", f"/jobs/{'0' * 32}", 404, f"this driver has no job {'0' * 32}"),
        ("GET", "{job}/vertices/abc", 400, "'abc' is not the id of a vertex"),
        ("GET", f"{{job}}/vertices/{'0' * 32}", 404, "the job has no vertex"),
        ("GET", "{job}/vertices/{vertex}/subtasks/2", 404, "no subtask 2, but 2 of them"),
        ("GET", "{job}/vertices/{vertex}/subtasks/-1", 400, "'-1' is not a subtask number"),
        ("GET", "{job}/checkpoints/details/one", 400, "'one' is not a checkpoint number"),
        ("GET", "{job}/checkpoints/details/99", 404, "there is no checkpoint 99"),
        ("GET", f"{{job}}/checkpoints/{'0' * 32}", 404, "no checkpoint was requested"),
        ("GET", f"{{job}}/savepoints/{'0' * 32}", 404, "no savepoint was requested"),
        ("GET", f"/savepoint-disposal/{'0' * 32}", 404, "no disposal was requested"),
        ("GET", "{job}/exceptions?maxExceptions=-1", 400, "maxExceptions = -1: give"),
        ("PATCH", "{job}?mode=stop", 400, 'mode = "stop": give one of cancel'),
    ],
)
def test_a_wrong_request_is_refused_with_the_reason(served, method, path, status, sentence):
    path = path.replace("{job}", served.path)
    path = path.replace("{vertex}", served.of_job().document["vertices"][0]["id"])
    answer = served.ask(path, method=method)
    assert answer.status == status
    assert sentence in answer.error


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("/savepoints", b"{", "the body is not JSON"),
        ("/savepoints", b"\xff", "the body is not JSON"),
        ("/savepoints", b"[" * 60_000, "the body is not JSON"),
        ("/savepoints", ["a"], "must be a JSON object"),
        ("/savepoints", {"target": "x"}, "there is no field 'target'"),
        ("/savepoints", {"cancel-job": "yes"}, "give true or false"),
        ("/savepoints", {"target-directory": 3}, "give text"),
        ("/savepoints", {"target-directory": "a\0b"}, "give text that can be printed"),
        ("/savepoints", {"target-directory": "\ud800"}, "give text that can be printed"),
        ("/savepoints", {"formatType": "parquet"}, "give one of CANONICAL, NATIVE"),
        ("/stop", {"triggerId": "abc"}, "give text of the form"),
        ("/checkpoints", {"checkpointType": "some"}, "give one of CONFIGURED"),
    ],
)
def test_a_wrong_body_is_refused_with_the_reason(served, path, body, sentence):
    answer = served.of_job(path, method="POST", body=body)
    assert answer.status == 400
    assert sentence in answer.error


def test_a_long_body_is_refused_and_the_next_request_answered(served):
    body = json.dumps({"target-directory": "x" * (4 << 20)}).encode()
    answer = served.of_job("/savepoints", method="POST", body=body)
    assert (answer.status, answer.error) == (413, "the body has more than 65536 bytes")
    assert served.ask("/jobs").status == 200
    assert served.job.status() is JobStatus.RUNNING


# --- who may ask --------------------------------------------------------------------------------


def test_a_token_is_asked_for_if_one_is_set(serve):
    served = serve(rest=RestSettings(token="a-long-enough-token"))
    refused = served.ask("/jobs")
    assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
    wrong = served.ask("/metrics", headers={"authorization": "Bearer a-long-enough-tokem"})
    assert wrong.status == 401
    right = served.ask("/jobs", headers={"authorization": "Bearer a-long-enough-token"})
    assert right.status == 200
    assert served.ask("/jobs", headers=served.as_owner()).status == 200


ORDERS = [
    ("POST", "{job}/savepoints"),
    ("POST", "{job}/stop"),
    ("POST", "{job}/checkpoints"),
    ("PATCH", "{job}?mode=cancel"),
    ("PATCH", "{job}/rescaling?parallelism=1"),
    ("POST", "/savepoint-disposal"),
]


STRANGERS = ["", "Bearer None", "Bearer ", "Basic x", "Bearer \xff"]


def test_on_loopback_everybody_reads_and_the_owner_orders(serve):
    served = serve(rest=RestSettings())
    for authorization in STRANGERS:
        stranger = {"authorization": authorization}
        assert served.ask(served.path, headers=stranger).status == 200
        for method, path in ORDERS:
            refused = served.ask(path.replace("{job}", served.path), method, headers=stranger)
            assert refused.status == 401
            assert refused.error.endswith(f"the owner finds it in {token_file()}")
    assert served.job.status() is JobStatus.RUNNING
    owner = {"authorization": f"Bearer {token_file().read_text()}"}
    assert served.of_job("/checkpoints", method="POST", headers=owner).status == 202


def test_the_token_of_the_owner_is_for_his_eyes_and_stays(home):
    first = owner_token()
    path = token_file()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert owner_token() == first
    path.chmod(0o644)
    assert owner_token() != first
    assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()
    path.symlink_to(home / "planted")
    (home / "planted").write_text("known to somebody else")
    assert owner_token() != "known to somebody else"
    assert [each.name for each in path.parent.iterdir()] == ["token"]


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
    ],
)
def test_pages_of_others_are_refused(served, headers):
    answer = served.of_job("/checkpoints", method="POST", headers=headers)
    assert answer.status == 403


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("host", ["", "[::1", "[]x[]", "evil.example:80@localhost"])
def test_what_is_no_host_is_no_request(serve, address, host):
    served = serve(rest=RestSettings(token=TOKEN, address=address))
    assert served.of_job(headers={"host": host}).status == 400


@pytest.mark.parametrize("host", ["localhost", "localhost:9999", "127.0.0.1", "[::1]:80"])
def test_this_machine_is_let_in_under_all_its_names(served, host):
    assert served.ask("/jobs", headers={"host": host}).status == 200


def test_a_port_that_is_taken_is_named(serve, served):
    port = int(served.server.url.rpartition(":")[2])
    with pytest.raises(Exception, match=rf"rest.port = '{port}': cannot listen on 127.0.0.1"):
        serve(rest=RestSettings(ports=(port,)))
    other = serve(rest=RestSettings(ports=(port, 0)))
    assert other.ask("/jobs").status == 200


def test_files_of_lost_and_broken_records_do_no_harm(served, home):
    record = json.loads((home / "jobs" / f"{served.id}.json").read_text())
    lost = {**record, "job_id": "f" * 32, "started_at": 1.0}
    Path(home, "jobs", "lost.json").write_text(json.dumps(lost))
    Path(home, "jobs", "broken.json").write_text("{")
    states = {each.job_id: each.state for each in known_jobs()}
    assert states == {served.id: None, "f" * 32: "LOST"}
