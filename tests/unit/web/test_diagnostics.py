"""Logs, stacks, profiles, samples of records and dead letters of a running job."""

import base64
import logging

import pytest

from tests.jobs import fail_once, on_disk
from tests.programs import wait_until
from tidegate.core.rest_settings import RestSettings
from tidegate.protocol.job_status import JobStatus
from tidegate.web.recent_logs import RecentLogs

PRIVATE = (
    "/tidegate/logs",
    "/jobmanager/thread-dump",
    "/jobmanager/environment",
    "/tidegate/jobs/{id}/dead-letters",
    "/tidegate/state?path=/nowhere",
    "/tidegate/savepoints",
)


def slot_of(served):
    return f"/taskmanagers/{served.id}-slot-0"


def test_who_has_no_token_sees_no_records_state_logs_and_stacks(serve):
    served = serve(rest=RestSettings())
    for path in PRIVATE:
        path = path.format(id=served.id)
        assert served.ask(path, headers={"authorization": ""}).status == 401, path


def test_slots_are_processes_with_threads(served):
    (slot, other) = served.ask("/taskmanagers").document["taskmanagers"]
    assert (slot["tidegate"]["slot"], other["tidegate"]["slot"]) == (0, 1)
    assert served.ask(slot_of(served)).document["id"] == slot["id"]
    threads = served.ask(f"{slot_of(served)}/thread-dump").document["threadInfos"]
    assert any("tidegate-pipeline-0" in each["threadName"] for each in threads)
    assert all("File" in each["stringifiedThreadInfo"] for each in threads)
    driver = served.ask("/jobmanager/thread-dump").document["threadInfos"]
    assert any("tidegate-rest" in each["threadName"] for each in driver)
    assert served.ask(f"/taskmanagers/{served.id}-slot-9").status == 404


def test_a_profile_is_a_tree_of_functions(served):
    vertex = served.of_job().document["vertices"][1]["id"]
    graph = served.of_job(f"/vertices/{vertex}/flamegraph?seconds=1").document
    assert graph["tidegate"]["sampler"] in ("py-spy", "in-process")
    assert graph["data"]["name"] == "root"
    assert graph["data"]["value"] == sum(each["value"] for each in graph["data"]["children"])
    assert served.of_job(f"/vertices/{vertex}/flamegraph?subtaskindex=7").status == 404


def test_records_of_an_edge_are_shown_on_demand(served):
    path = f"/tidegate{served.path}/edges/0/sample"
    nothing = served.ask(path, "POST", {"seconds": 1})
    assert (nothing.status, nothing.document["records"]) == (200, [])
    assert served.ask(path, "POST").status in (200, 429)
    assert served.ask(f"/tidegate{served.path}/edges/7/sample", "POST").status == 404


def test_a_sample_waits_for_records(served):
    import threading

    answers = []
    path = f"/tidegate{served.path}/edges/0/sample"
    asking = threading.Thread(
        target=lambda: answers.append(served.ask(path, "POST", {"records": 3, "seconds": 10}))
    )
    asking.start()
    for number in range(10, 60, 10):
        served.let(number)
    asking.join()
    records = answers[0].document["records"]
    assert 1 <= len(records) <= 3
    assert all(each["record"].startswith("(") for each in records)


def test_a_failure_tells_where_it_went_back_to_and_how_long_it_took(serve, tmp_path):
    served = serve(
        {
            **on_disk(tmp_path / "checkpoints"),
            "restart-strategy": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": 2,
            "restart-strategy.fixed-delay.delay": "1 ms",
        }
    )
    served.let(5)
    done = served.order("/checkpoints")
    fail_once(served.watch, "sums")
    served.tap.let(20)
    wait_until(lambda: served.job.chronicle.failures)
    wait_until(lambda: served.job.status() is JobStatus.RUNNING)
    wait_until(lambda: served.job.chronicle.failures[0].recovered_at)
    (entry,) = served.of_job("/exceptions").document["exceptionHistory"]["entries"]
    facts = entry["tidegate"]
    assert facts["restarted"] and facts["traceback"].startswith("Traceback")
    assert facts["operator"] == "sums" and facts["record"] is not None
    assert facts["checkpoint-id"] >= done["checkpointId"]
    assert 0 <= facts["recovery-time"] == pytest.approx(facts["recovered"] - entry["timestamp"], 1)
    assert set(facts["vertices"]) == {each["id"] for each in served.of_job().document["vertices"]}


def test_skipped_records_are_dead_letters(serve):
    served = serve({"tidegate.poison-records.skip-after": 0})
    fail_once(served.watch, "sums")
    served.let(20)
    path = f"/tidegate{served.path}/dead-letters"
    wait_until(lambda: served.ask(path).document["total"] == 1)
    (letter,) = served.ask(path).document["letters"]
    live = f"/tidegate{served.path}/live"
    wait_until(lambda: served.ask(live).document["vertices"][1]["skipped"] == 1)
    assert letter["operator"] == "sums"
    assert letter["traceback"].startswith("Traceback")
    assert base64.b64decode(letter["raw"])


def test_the_log_can_be_searched(served):
    log = logging.getLogger("tidegate.tests")
    for number in range(5):
        log.warning("line %d of many", number)
    log.error("a line with password=hunter2hunter2")
    found = served.ask("/tidegate/logs?search=OF%20MANY&limit=2").document
    assert [line["message"] for line in found["lines"]] == ["line 4 of many", "line 3 of many"]
    assert found["more"] is True
    before = found["lines"][-1]["id"]
    rest = served.ask(f"/tidegate/logs?search=of%20many&before={before}").document
    assert len(rest["lines"]) == 3
    (error,) = served.ask("/tidegate/logs?level=ERROR&search=password").document["lines"]
    assert "hunter2" not in error["message"]
    assert served.ask("/tidegate/logs?level=LOUD").status == 400


def test_warnings_are_printed_as_if_nobody_kept_them(capsys, monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    kept, other = RecentLogs(), RecentLogs()
    kept.install()
    other.install()
    try:
        logging.getLogger("tidegate.tests").warning("look here")
    finally:
        kept.remove()
        other.remove()
    assert capsys.readouterr().err == "look here\n"
    assert [line.message for line in other.find(0, "", "", None, 9)[0]] == ["look here"]
