"""Archives of Spark's classes: found for the Java that they fit, and stored as a whole."""

import shlex
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.programs import wait_until
from tidegate.core.errors import ExternalError
from tidegate.prerequisites import class_archive
from tidegate.prerequisites.class_archive import archive_options, store_classes
from tidegate.prerequisites.java import JavaInstallation, JavaOrigin

JAVA = JavaInstallation(Path("/opt/java"), "21.0.8", JavaOrigin.JAVA_HOME, True)


@pytest.fixture
def job(monkeypatch):
    """Stands in for the job: writes the archive that the options of its Java name, and ends."""
    job = SimpleNamespace(code=0, writes=True, seconds=0, environment={}, family=[])
    start = subprocess.Popen

    def play(argv, env, **options):
        job.environment = env
        option = next(each for each in argv if "ArchiveClassesAtExit" in each)
        first, *_ = shlex.split(option.partition("=")[2])
        archive = Path(first.removeprefix("-XX:ArchiveClassesAtExit="))
        assert argv[0] == sys.executable
        assert Path(argv[-1]).is_file()
        writes = f"echo classes > {shlex.quote(str(archive))}; " if job.writes else ""
        java = f"echo it said so; sleep {job.seconds}"
        process = start(["sh", "-c", f"{writes}sh -c '{java}'; exit {job.code}"], **options)
        wait_until(lambda: job.seconds == 0 or len(family_of(process.pid)) == 3)
        job.family += family_of(process.pid)
        return process

    monkeypatch.setattr(class_archive.subprocess, "Popen", play)
    return job


def family_of(pid):
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def test_an_archive_is_used_by_the_java_that_it_is_for(tmp_path, job):
    folder = tmp_path / "a folder"
    assert archive_options(JAVA, [folder]) == ""
    archive = store_classes(JAVA, [folder])
    assert list(folder.iterdir()) == [archive]
    options = shlex.split(archive_options(JAVA, [tmp_path / "other", folder]))
    assert options[0] == f"-XX:SharedArchiveFile={archive}"
    for other in (replace(JAVA, version="21.0.9"), replace(JAVA, home=Path("/opt/other"))):
        assert archive_options(other, [folder]) == ""


def test_what_a_java_says_of_an_archive_does_not_go_where_programs_print(tmp_path, job):
    store_classes(JAVA, [tmp_path])
    assert archive_options(JAVA, [tmp_path]).endswith("-Xlog:disable -Xlog:all=warning:stderr")


def test_the_job_is_not_listed_among_those_of_the_user(tmp_path, job):
    store_classes(JAVA, [tmp_path])
    assert Path(job.environment["TIDEGATE_HOME"]).parent == tmp_path


def test_the_job_does_not_use_what_the_user_has_set_for_theirs(tmp_path, job, monkeypatch):
    """It must not take the port of a job that runs, or write to its log."""
    for variable in ("TIDEGATE_CONF_DIR", "FLINK_CONF_DIR", "TIDEGATE_SETTINGS", "TIDEGATE_LOG"):
        monkeypatch.setenv(variable, "of the user")
    monkeypatch.setenv("PYTHONPATH", "of the user")
    store_classes(JAVA, [tmp_path])
    kept = [name for name, value in job.environment.items() if value == "of the user"]
    assert kept == ["PYTHONPATH"]


def test_nothing_is_left_when_it_is_interrupted(tmp_path, job):
    job.seconds = 600
    interrupt = threading.Timer(1, signal.pthread_kill, [threading.get_ident(), signal.SIGINT])
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        store_classes(JAVA, [tmp_path])
    assert len(job.family) == 3
    wait_until(lambda: not any(each.is_running() for each in job.family))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_to_is_skipped(tmp_path, job):
    file = tmp_path / "file"
    file.touch()
    assert store_classes(JAVA, [file, tmp_path / "second"]).parent == tmp_path / "second"
    with pytest.raises(ExternalError, match=r"the classes could not be stored: .*file"):
        store_classes(JAVA, [file])


@pytest.mark.parametrize(("code", "writes"), [(1, True), (0, False)])
def test_a_job_that_stores_nothing_whole_leaves_nothing(tmp_path, job, code, writes):
    job.code, job.writes = code, writes
    with pytest.raises(ExternalError, match=r"no classes were stored; .*\nit said so"):
        store_classes(JAVA, [tmp_path])
    assert list(tmp_path.iterdir()) == []
