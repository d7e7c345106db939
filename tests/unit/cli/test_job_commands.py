"""Commands on jobs that run behind the real server, in this process."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.jobs import fail_once, on_disk
from tests.programs import wait_until
from tests.served_jobs import restarting
from tidegate.cli.main import app
from tidegate.core.errors import NotEnoughTaskSlots
from tidegate.protocol.job_status import JobStatus
from tidegate.web.registry import JobRecord, Registration, known_jobs, running_jobs


def invoke(*arguments):
    return CliRunner().invoke(app, list(arguments))


def done(*arguments):
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def refused(code, *arguments):
    result = invoke(*arguments)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result.output


@pytest.fixture
def ended():
    """A job that is no more."""
    record = JobRecord(job_id="e" * 32, name="old", pid=os.getpid(), started_at=1.0)
    registration = Registration(record)
    registration.end(
        JobRecord(
            job_id=record.job_id,
            name=record.name,
            pid=record.pid,
            started_at=1.0,
            ended_at=2.0,
            state="FAILED",
            failure="no disk",
        )
    )
    return record


# --- list and info ------------------------------------------------------------------------------


def test_without_jobs_the_list_says_so():
    assert done("list") == "No jobs are running."
    assert done("list", "-a") == "There are no jobs."
    assert json.loads(done("list", "--json")) == {"jobs": []}


def test_the_list_names_jobs_that_run(served, ended):
    wait_until(lambda: served.job.status() is JobStatus.RUNNING)
    lines = done("list").splitlines()
    assert len(lines) == 2
    assert lines[0].split() == ["job", "name", "state", "started", "for", "application"]
    assert lines[1].startswith(served.id)
    assert "sums of numbers" in lines[1] and "RUNNING" in lines[1] and "local-1" in lines[1]


def test_the_list_of_all_names_also_jobs_that_have_ended(served, ended):
    jobs = json.loads(done("list", "-a", "--json"))["jobs"]
    assert [(job["jid"], job["state"]) for job in jobs] == [
        (served.id, "RUNNING"),
        (ended.job_id, "FAILED"),
    ]
    assert [job["jid"] for job in json.loads(done("list", "-r", "--json"))["jobs"]] == [served.id]


def test_the_list_can_be_narrowed_to_a_spark_application(served):
    assert json.loads(done("list", "--application", "local-1", "--json"))["jobs"]
    assert not json.loads(done("list", "--application", "local-2", "--json"))["jobs"]


def test_a_job_of_a_lost_driver_is_recognised(home, served):
    path = home / "jobs" / f"{served.id}.json"
    record = {**json.loads(path.read_text()), "job_id": "d" * 32, "pid": 2**22 + 1}
    (home / "jobs" / "lost.json").write_text(json.dumps(record))
    states = {job["jid"]: job["state"] for job in json.loads(done("list", "-a", "--json"))["jobs"]}
    assert states == {served.id: "RUNNING", "d" * 32: "LOST"}
    [lost] = [line for line in done("list", "-a").splitlines() if line.startswith("d" * 32)]
    assert " - " in lost, "nobody knows how long it ran"
    assert "is lost" in refused(5, "cancel", "d" * 32)


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", b"[]", b"{}", b'"job"', b"[" * 100_000]
    + [
        json.dumps(
            {"job_id": "d" * 32, "name": "bad", "pid": 1, "started_at": 1.0, **wrong}
        ).encode()
        for wrong in (
            {"name": 3},
            {"pid": "1"},
            {"pid": 2**80},
            {"started_at": "today"},
            {"started_at": None},
            {"operations": []},
            {"state": ["RUNNING"]},
        )
    ],
    ids=range(13),
)
def test_a_file_of_the_registry_that_no_driver_wrote_is_skipped(home, ended, content):
    (home / "jobs" / "bad.json").write_bytes(content)
    assert [line.split()[0] for line in done("list", "-a").splitlines()] == ["job", ended.job_id]
    assert "old" in done("info", "old")
    assert "bad" in refused(3, "info", "bad")


def test_a_driver_that_does_not_answer_is_said_to_be_out_of_reach(served):
    Registration(
        JobRecord(
            job_id="c" * 32, name="deaf", pid=os.getpid(), started_at=1.0, url="http://127.0.0.1:1"
        )
    )
    states = {job["jid"]: job["state"] for job in json.loads(done("list", "--json"))["jobs"]}
    assert states["c" * 32] == "UNREACHABLE"
    assert "does not answer at http://127.0.0.1:1" in refused(4, "cancel", "deaf")


def test_info_tells_vertices_checkpoints_and_failures(serve):
    served = serve(
        {"restart-strategy": "fixed-delay", "restart-strategy.fixed-delay.delay": "1 ms"}
    )
    served.let(20)
    path = done("savepoint", served.id)
    fail_once(served.watch, "sums")
    served.tap.let(59)
    wait_until(lambda: served.job.chronicle.restarts == 1)
    wait_until(lambda: served.job.status() is JobStatus.RUNNING)
    text = done("info", served.id)
    assert "state        RUNNING" in text
    assert "latest savepoint 1:" in text
    assert path in text
    [failure] = [line for line in text.splitlines() if line.startswith("failure")]
    assert "ValueError: once" in failure
    assert "while processing the record" in failure
    assert "Traceback" not in failure
    assert "sums -> sums" in text
    document = json.loads(done("info", served.id, "--json"))
    assert (document["jid"], document["state"]) == (served.id, "RUNNING")
    assert document["driver"]["url"] == served.server.url


def test_info_of_a_job_that_has_ended(ended):
    text = done("info", "eeee")
    assert "state        FAILED, for 0:00:01" in text
    assert "no disk" in text
    assert json.loads(done("info", "old", "--json"))["failure"] == "no disk"


# --- which job ----------------------------------------------------------------------------------


def test_a_job_is_found_by_the_beginning_of_its_id_and_by_its_name(served):
    for asked in (served.id, served.id[:5], served.id[:5].upper(), "sums of numbers"):
        assert json.loads(done("info", asked, "--json"))["jid"] == served.id


def test_for_an_unknown_job_the_others_are_listed(served):
    assert (
        f"there is no job 'x'; there are:\n  {served.id}  running   sums of numbers\n"
        in refused(3, "savepoint", "x")
    )


def test_without_any_job_that_is_said():
    assert "no job of this user runs on this machine" in refused(3, "stop", "x")


def test_a_name_of_two_jobs_is_ambiguous(serve):
    first, second = serve(), serve()
    output = refused(3, "cancel", "sums of numbers")
    assert "matches several jobs" in output
    assert first.id in output and second.id in output
    assert first.job.status() is second.job.status() is JobStatus.RUNNING


def test_a_name_means_the_job_that_runs(served):
    for number, state in enumerate(["FINISHED", "FAILED"]):
        record = JobRecord(
            job_id=f"{number:032}", name=served.job.name, pid=os.getpid(), started_at=1.0
        )
        Registration(record).end(replace(record, state=state))
    assert json.loads(done("info", served.job.name, "--json"))["jid"] == served.id
    served.job.cancel()
    wait_until(lambda: not known_jobs()[0].is_running)
    listed = refused(3, "info", served.job.name).splitlines()
    assert f"  {0:032}  finished  {served.job.name}" in listed
    assert f"  {1:032}  failed    {served.job.name}" in listed
    assert f"  {served.id}  canceled  {served.job.name}" in listed


def test_a_beginning_of_two_ids_is_ambiguous(served):
    others = ["abc1" + "0" * 28, "abc2" + "0" * 28]
    for each in others:
        Registration(JobRecord(job_id=each, name=each, pid=os.getpid(), started_at=1.0))
    output = refused(3, "savepoint", "abc")
    assert "matches several jobs" in output
    assert all(each in output for each in others)
    assert served.id not in output


@pytest.mark.parametrize("command", ["savepoint", "stop", "checkpoint"])
def test_a_job_that_restarts_is_asked_later(serve, tmp_path, command):
    served = restarting(serve)
    output = refused(5, command, served.id)
    assert "now: the job is restarting; ask again when it runs" in output
    assert not (tmp_path / "savepoints").exists()


def test_a_job_that_has_ended_takes_no_orders(served, ended):
    output = refused(5, "savepoint", ended.job_id)
    assert f"job {ended.job_id} (old) no longer runs: it is failed" in output


# --- savepoints and checkpoints -----------------------------------------------------------------


def test_a_savepoint_goes_to_the_directory_of_the_settings(served, tmp_path):
    served.let(20)
    path = Path(done("savepoint", served.id))
    assert path.parent == tmp_path / "savepoints"
    assert (path / "_metadata").is_file()
    assert served.job.status() is JobStatus.RUNNING


def test_a_savepoint_goes_to_the_directory_of_the_command(served, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    served.let(20)
    answer = json.loads(done("savepoint", served.id, "here", "--format", "native", "--json"))
    assert Path(answer["savepoint"]).parent == tmp_path / "here"
    assert answer["jid"] == served.id


def test_a_savepoint_is_disposed_of_without_its_job(served):
    served.let(20)
    path = done("savepoint", served.id)
    assert done("savepoint", "-d", path) == f"{path} is deleted."
    assert not Path(path).exists()
    path = done("savepoint", served.id)
    Path(path, "notes").touch()
    assert "except for foreign files: notes" in done("savepoint", "--dispose", path)
    assert [each.name for each in Path(path).iterdir()] == ["notes"]
    assert "there is no savepoint" in refused(1, "savepoint", "--dispose", path)


def test_a_checkpoint_of_a_job_that_runs_is_not_disposed_of(serve, tmp_path):
    all_kept = {"execution.checkpointing.num-retained": 1000}
    served = serve(on_disk(tmp_path / "checkpoints", **all_kept))
    served.let(20)
    path = Path(done("checkpoint", served.id))
    link = tmp_path / "link"
    link.symlink_to(path)
    for meant in (path, path / "_metadata", link, path / ".." / path.name):
        assert "which is running and deletes it itself" in refused(5, "savepoint", "-d", str(meant))
    assert (path / "_metadata").exists()


def test_a_savepoint_needs_a_job(served):
    assert "name a job" in refused(2, "savepoint")
    assert "do not name a job" in refused(1, "savepoint", "-d", "/x", served.id)


def test_a_savepoint_that_cannot_be_written_says_why(served):
    served.let(20)
    output = refused(5, "savepoint", served.id, "/proc/nowhere")
    assert "the savepoint was not taken" in output
    assert served.job.status() is JobStatus.RUNNING


def test_a_checkpoint_is_taken_at_once_and_listed(served):
    served.let(20)
    assert done("checkpoint", served.id) == "checkpoint 1, in the memory of the driver"
    assert json.loads(done("checkpoint", served.id, "--json")) == {
        "jid": served.id,
        "checkpoint": 2,
        "path": None,
    }
    counts, _, *rows = done("checkpoints", served.id).splitlines()
    assert counts == "2 triggered, 2 completed, 0 failed, 0 under way, 0 restored from"
    assert [row.split()[0] for row in rows] == ["2", "1"]
    assert len(json.loads(done("checkpoints", served.id, "--json"))["history"]) == 2


# --- ends ---------------------------------------------------------------------------------------


def test_cancel_returns_when_nothing_runs_any_more(served):
    assert done("cancel", served.id) == f"{served.id} is canceled."
    assert served.job.status() is JobStatus.CANCELED


def test_stop_prints_the_path_of_the_savepoint(served, tmp_path):
    served.let(20)
    path = Path(done("stop", served.id, "-p", str(tmp_path / "other"), "--drain"))
    assert path.parent == tmp_path / "other"
    assert served.job.status() is JobStatus.FINISHED


@pytest.mark.parametrize(
    "words",
    [
        ["{job}", "-s"],
        ["-s", "{job}"],
        ["{job}", "-s", "{dir}"],
        ["-s", "{dir}", "{job}"],
        ["-s", "{job}", "{dir}"],
        ["-s", "there", "{job}"],
    ],
)
def test_the_job_is_never_mistaken_for_the_directory(served, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    served.let(20)
    chosen = str(tmp_path / "there")
    filled = [word.replace("{job}", served.id[:6]).replace("{dir}", chosen) for word in words]
    path = Path(done("cancel", *filled))
    has_directory = any(word in ("{dir}", "there") for word in words)
    assert path.parent == tmp_path / ("there" if has_directory else "savepoints")
    assert (path / "_metadata").is_file()
    assert served.job.status() is JobStatus.CANCELED
    assert not (tmp_path / served.id[:6]).exists()


def test_words_that_are_both_jobs_are_refused(serve):
    one, other = serve(name="one"), serve(name="savepoints")
    assert "write the directory as a path" in refused(1, "cancel", "-s", "savepoints", "one")
    assert one.job.status() is other.job.status() is JobStatus.RUNNING


def test_a_directory_without_a_savepoint_is_refused(served):
    assert "give one job" in refused(1, "cancel", served.id, "/somewhere")
    assert served.job.status() is JobStatus.RUNNING


def test_rescaling_beyond_the_cores_is_refused_with_the_documented_code(serve, monkeypatch):
    def too_many(parallelism):
        raise NotEnoughTaskSlots("local[4]", 4, parallelism)

    served = serve()
    monkeypatch.setattr(served.job, "_replan", too_many)
    assert "lower the parallelism" in refused(5, "rescale", served.id, "50")
    assert served.job.status() is JobStatus.RUNNING
    page = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith("| 5 |")]
    assert "`rescale`" in row


def test_a_job_is_rescaled_and_runs_on(serve, tmp_path):
    served = serve(on_disk(tmp_path / "checkpoints"), parallelism=2)
    served.let(20)
    assert done("rescale", served.id, "3") == f"{served.id} runs with parallelism 3."
    info = json.loads(done("info", served.id, "--json"))
    assert [vertex["parallelism"] for vertex in info["vertices"]] == [3, 3]
    assert info["checkpoints"]["latest"]["restored"] is not None
    assert "cannot have 500 subtasks" in refused(5, "rescale", served.id, "500")
    served.let(60)
    served.job.result(120)


# --- the rest -----------------------------------------------------------------------------------


def test_logs_are_printed(home, tmp_path):
    log = tmp_path / "job.log"
    log.write_text("one\ntwo\nthree\n")
    record = JobRecord(job_id="a" * 32, name="a", pid=os.getpid(), started_at=1.0, log=str(log))
    registration = Registration(record)
    assert done("logs", "a") == "one\ntwo\nthree"
    assert done("logs", "a", "-n", "1") == "three"
    registration.end(JobRecord(**{**record_as_dict(record), "state": "FINISHED"}))
    assert done("logs", "-f", "a") == "one\ntwo\nthree"
    log.unlink()
    assert "no longer exists" in refused(5, "logs", "a")


def record_as_dict(record):
    return {name: getattr(record, name) for name in JobRecord.__dataclass_fields__}


def test_a_job_in_a_terminal_has_no_log(served):
    assert "--detached" in refused(5, "logs", served.id)


def test_the_end_of_a_driver_does_not_hide_the_one_that_took_over_its_job():
    record = JobRecord(job_id="b" * 32, name="b", pid=os.getpid(), started_at=1.0)
    replaced = Registration(record)
    successor = Registration(replace(record, started_at=2.0))
    replaced.end(replace(record, state="FAILED"))
    assert [each.started_at for each in running_jobs()] == [2.0]
    successor.end(replace(successor.record, state="FINISHED"))
    assert [each.state for each in known_jobs()] == ["FINISHED"]


def test_only_the_last_jobs_stay_known():
    for number in range(25):
        record = JobRecord(
            job_id=f"{number:032x}", name="n", pid=os.getpid(), started_at=float(number)
        )
        Registration(record).end(
            JobRecord(**{**record_as_dict(record), "state": "FINISHED", "ended_at": number + 1.0})
        )
    assert [int(record.job_id, 16) for record in known_jobs()] == list(range(24, 3, -1))


@pytest.mark.parametrize(
    "command",
    [
        "cancel",
        "checkpoint",
        "checkpoints",
        "info",
        "list",
        "logs",
        "rescale",
        "run",
        "savepoint",
        "stop",
    ],
)
def test_every_command_has_an_example(command):
    assert f"Example: tidegate {command}" in done(command, "--help")
