"""`tidegate run --supervise` and `--detached`, on programs without Spark."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from tests.jobs import on_disk
from tests.programs import wait_until
from tidegate.cli import supervision
from tidegate.cli.detached import warn_of_namesakes
from tidegate.cli.main import app
from tidegate.cli.standby import Standby
from tidegate.cli.supervision import restart_path, supervise
from tidegate.web.registry import LAUNCH_VARIABLE, JobRecord, Registration, known_jobs

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys, time
from tests.programs import graph_of, read, collected, mapped, settings_of
from tidegate.testing.mini_cluster import run
from tidegate.web.server import rest_server

settings = settings_of({"tidegate.console.live-line": "off", "tidegate.step.max-records": 1})
server = rest_server(settings.rest)
wait = lambda n: time.sleep(float(sys.argv[1]) * n) or n
job = run(graph_of(collected(mapped(wait, read([0, 1])))), settings)
server.publish(job)
print("begun")
job.result()
"""


@pytest.fixture
def quickly(monkeypatch):
    monkeypatch.setattr(supervision, "_FIRST_WAIT_SECONDS", 0.01)


def script(directory, text):
    file = directory / "program.py"
    file.write_text(text)
    return [sys.executable, str(file)]


@pytest.mark.parametrize(("code", "starts"), [(0, 1), (1, 1), (2, 1), (7, 3), (-9, 3)])
def test_a_driver_is_started_again_unless_its_end_is_final(tmp_path, quickly, capsys, code, starts):
    """It ends well at the third start."""
    program = script(
        tmp_path,
        "import os, pathlib, sys\n"
        "log = pathlib.Path(sys.argv[1])\n"
        "with log.open('a') as file: file.write('start\\n')\n"
        "if len(log.read_text().split()) == 3: sys.exit(0)\n"
        f"if {code} < 0: os.kill(os.getpid(), {-code})\n"
        f"sys.exit({code})\n",
    )
    log = tmp_path / "starts"
    found = supervise(lambda path: [*program, str(log)], None)
    assert len(log.read_text().split()) == starts
    assert found == (0 if starts == 3 else code)


def test_the_search_for_the_checkpoint_is_part_of_the_wait(tmp_path, monkeypatch):
    now, waits = [0.0], []
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=waits.append)
    monkeypatch.setattr(supervision, "time", clock)

    def search(record, start_from):
        now[0] += 0.75

    monkeypatch.setattr(supervision, "restart_path", search)
    codes = iter([7, 7, 0])
    assert supervise(lambda path: [sys.executable, "-c", f"exit({next(codes)})"], None) == 0
    assert waits == [0.0, 0.25]


def test_the_first_restart_is_not_delayed(monkeypatch, capsys):
    """Only restarts in a row are: the wait is reset after a driver that ran for long."""
    now, waits = [0.0], []
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=waits.append)
    monkeypatch.setattr(supervision, "time", clock)
    runs = iter([(5, 7), (5, 7), (5, 7), (70, 7), (5, 0)])

    def run(argv, successor):
        seconds, code = next(runs)
        now[0] += seconds
        return code

    monkeypatch.setattr(supervision, "_run", run)
    assert supervise(lambda path: [], None) == 0
    assert waits == [0.0, 1.0, 2.0, 0.0]
    first, second = capsys.readouterr().err.splitlines()[:2]
    assert first.endswith("restarting it from the beginning")
    assert second.endswith("restarting it from the beginning in 1 s")


def test_a_driver_that_ran_for_a_while_has_a_successor_that_waits(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(supervision, "_SETTLED_SECONDS", 0.01)
    told = tmp_path / "told"
    job = tmp_path / "job.py"
    job.write_text(
        "import os, pathlib, sys\n"
        f"told = pathlib.Path({str(told)!r})\n"
        "with told.open('a') as file: print(sys.orig_argv[3], *sys.argv[1:], file=file)\n"
        "if len(told.read_text().splitlines()) == 1: os.kill(os.getpid(), 9)\n"
    )

    def argv(path):
        return [sys.executable, "-u", "-m", "tidegate", "run", str(job), "given"]

    assert supervise(argv, None) == 0
    assert told.read_text().splitlines() == ["tidegate given", "tidegate.cli.standby given"]


def test_a_driver_is_supervised_even_if_nothing_can_be_prepared(tmp_path, quickly, monkeypatch):
    """The limit of processes or descriptors may be reached while it runs."""
    monkeypatch.setattr(supervision, "_SETTLED_SECONDS", 0.01)
    ended = tmp_path / "ended"
    program = script(
        tmp_path,
        "import pathlib, sys, time\n"
        "ended, was_started = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[1]).exists()\n"
        "time.sleep(0.5)\n"
        "ended.write_text('')\n"
        "sys.exit(0 if was_started else 7)\n",
    )

    def fail(self):
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(Standby, "prepare", fail)
    assert supervise(lambda path: [*program, str(ended)], None) == 0
    assert ended.exists()


class CountedStoring:
    """Stands in for the process that stores classes."""

    def __init__(self):
        self.calls = []

    def begin(self):
        self.calls.append("begin")
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    def end(self):
        self.calls.append("end")


@pytest.mark.parametrize(("seconds", "calls"), [(0.01, ["begin", "end"]), (60.0, ["end"])])
def test_classes_are_stored_once_a_driver_has_run_for_a_while(monkeypatch, seconds, calls):
    """A failure does not matter."""
    monkeypatch.setattr(supervision, "_SETTLED_SECONDS", seconds)
    monkeypatch.setattr(Standby, "prepare", lambda self: None)
    storing = CountedStoring()
    command = [sys.executable, "-c", "import time; time.sleep(0.5)"]
    assert supervise(lambda path: command, None, storing) == 0
    assert storing.calls == calls


def test_a_job_that_has_finished_does_not_run_again_when_its_driver_dies(
    tmp_path, home, quickly, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv(LAUNCH_VARIABLE, raising=False)
    died = (
        "from tidegate.web.registry import known_jobs\n"
        "while known_jobs()[0].state is None: time.sleep(0.01)\n"
        "import os; os._exit(7)\n"
    )
    commands = iter([[*script(tmp_path, PROGRAM + died), "0"], [sys.executable, "-c", ""]])
    assert supervise(lambda path: next(commands), None) == 7
    assert [record.state for record in known_jobs()] == ["FINISHED"]


@pytest.mark.parametrize(
    "before",
    ["", "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"],
    ids=["in a terminal", "in the background of a script"],
)
def test_what_ends_the_supervisor_ends_the_driver_first(tmp_path, before):
    program = script(
        tmp_path,
        "import pathlib, sys, time\n"
        "try:\n"
        "    pathlib.Path(sys.argv[1]).write_text('begun')\n"
        "    time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        "    pathlib.Path(sys.argv[1]).write_text('closed')\n"
        "    sys.exit(5)\n",
    )
    begun = tmp_path / "state"
    command = (
        f"{before}from tidegate.cli.supervision import supervise\n"
        f"supervise(lambda path: {[*program, str(begun)]!r}, None)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", command], env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    wait_until(lambda: begun.exists() and begun.read_text() == "begun")
    process.send_signal(signal.SIGTERM)
    process.wait(120)
    assert begun.read_text() == "closed"


def test_a_job_resumes_from_its_own_checkpoints_only(serve, tmp_path):
    directory = tmp_path / "checkpoints"
    served = serve(on_disk(directory))
    wait_until(lambda: served.job.checkpoints.counts.completed > 0)
    (record,) = known_jobs()
    served.job.cancel()
    wait_until(lambda: served.job.status().is_terminal)
    assert restart_path(record, None) == "latest"
    assert restart_path(record, "/given") == "latest"
    own = Path(record.checkpoint_directory)
    earlier = own.rename(directory / ("0" * 32))
    assert restart_path(record, None) is None
    assert restart_path(record, "/given") == "/given"
    assert restart_path(record, "latest") == "latest"
    shutil.rmtree(earlier)
    assert restart_path(record, None) == "latest"
    assert restart_path(None, "/given") == "/given"


def invoke(*arguments):
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def detached(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "job.py").write_text(PROGRAM)

    def start(*words):
        return invoke("run", "--detached", *words)

    return start


@pytest.mark.slow
def test_a_detached_job_runs_on_and_has_a_log(detached, tmp_path, home):
    began = time.time()
    started = detached(str(tmp_path / "job.py"), "30")
    assert started.exit_code == 0, started.output
    job = started.stdout.strip()
    (found,) = json.loads(invoke("list", "--json").stdout)["jobs"]
    assert (found["jid"], found["state"]) == (job, "RUNNING")
    assert found["start-time"] >= 1000 * began
    assert Path(found["log"]).parent == home / "logs"
    assert "begun" in invoke("logs", job).stdout
    assert invoke("cancel", job).exit_code == 0
    wait_until(lambda: not json.loads(invoke("list", "--json").stdout)["jobs"])


@pytest.mark.slow
def test_a_detached_job_that_has_ended_already_is_named_all_the_same(detached, tmp_path):
    started = detached(str(tmp_path / "job.py"), "0")
    assert started.exit_code == 0, started.output
    wait_until(lambda: [record.state for record in known_jobs()] == ["FINISHED"])
    assert started.stdout.strip() == known_jobs()[0].job_id


def test_other_jobs_of_its_name_are_named_on_the_console_too(home, capsys):
    job = JobRecord(job_id="a" * 32, name="counts", pid=os.getpid(), started_at=1.0)
    for each in (job, replace(job, job_id="b" * 32), replace(job, job_id="c" * 32, name="sums")):
        Registration(each)
    warn_of_namesakes(job)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tidegate: another job named 'counts' already runs, with id {'b' * 32}")


FAILING = """
import sys
from tests.jobs import RESTARTS
from tests.programs import graph_of, read, collected, mapped, settings_of
from tidegate.testing.mini_cluster import run
from tidegate.web.server import rest_server

settings = settings_of({"tidegate.console.live-line": "off", **(RESTARTS if SLOWLY else {}),
                        "restart-strategy.fixed-delay.delay": "1 h"})
server = rest_server(settings.rest)
job = run(graph_of(collected(mapped(lambda n: {}["missing"], read([0])))), settings)
server.publish(job)
try:
    job.result()
except Exception:
    import time; time.sleep(1)
    sys.exit(7)
"""


@pytest.mark.slow
def test_a_detached_job_that_fails_at_its_start_is_no_success(detached, tmp_path):
    (tmp_path / "job.py").write_text(FAILING.replace("SLOWLY", "False"))
    started = detached(str(tmp_path / "job.py"))
    assert started.exit_code == 7, started.output
    assert started.stdout == ""
    assert "failed: Traceback" in started.stderr
    assert "KeyError: 'missing'" in started.stderr


@pytest.mark.slow
def test_a_detached_job_that_restarts_at_its_start_is_no_success_either(detached, tmp_path):
    (tmp_path / "job.py").write_text(FAILING.replace("SLOWLY", "True"))
    started = detached(str(tmp_path / "job.py"))
    assert started.exit_code == 1, started.output
    assert "fails at its start" in started.stderr
    assert "KeyError: 'missing'" in started.stderr
    assert invoke("cancel", started.stdout.strip()).exit_code == 0


@pytest.mark.slow
def test_a_detached_program_that_fails_shows_the_end_of_its_log(detached, tmp_path):
    (tmp_path / "job.py").write_text("raise SystemExit('no input is given')\n")
    started = detached(str(tmp_path / "job.py"))
    assert started.exit_code == 1
    assert "no input is given" in started.stderr
    assert "the program ended with exit code 1" in started.stderr
