"""Archives of Spark's classes: found for the Java that they fit, and stored as a whole."""

import errno
import fcntl
import os
import shlex
import signal
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pyspark
import pytest

from tests.programs import wait_until
from tidegate.core.errors import ExternalError
from tidegate.prerequisites import class_archive
from tidegate.prerequisites.class_archive import archive_options, remove_archive, store_classes
from tidegate.prerequisites.java import JavaInstallation, JavaOrigin
from tidegate.prerequisites.java_wrapper import wrapper_folders

JAVA = JavaInstallation(Path("/opt/java"), "21.0.8", JavaOrigin.JAVA_HOME, True)


@pytest.fixture
def job(monkeypatch):
    """Stands in for the job: writes the archive that the options of its Java name, and ends.

    The second time, its Java has to use that archive.
    """
    job = SimpleNamespace(
        code=0, writes=True, works=True, seconds=0, environment={}, family=[], options=[]
    )
    start = subprocess.Popen

    def play(argv, env, **options):
        job.environment = env
        option = next(each for each in argv if "extraJavaOptions" in each)
        job.options.append(shlex.split(option.partition("=")[2]))
        archive = Path(job.options[-1][0].partition("=")[2])
        assert argv[0] == sys.executable
        assert Path(argv[-1]).is_file()
        is_first = "ArchiveClassesAtExit" in option
        writes = f"echo classes > {shlex.quote(str(archive))}; " if is_first and job.writes else ""
        java = f"echo it said so; sleep {job.seconds}"
        code = job.code if is_first or job.works else 1
        process = start(["sh", "-c", f"{writes}sh -c '{java}'; exit {code}"], **options)
        wait_until(lambda: job.seconds == 0 or len(family_of(process.pid)) == 3)
        job.family += family_of(process.pid)
        return process

    monkeypatch.setattr(class_archive.subprocess, "Popen", play)
    return job


def family_of(pid):
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def left_in(folder):
    return [each for each in folder.iterdir() if each.name != "storing.lock"]


def test_an_archive_is_used_by_the_java_that_it_is_for(tmp_path, job):
    folder = tmp_path / "a folder"
    assert archive_options(JAVA, [folder]) == ""
    archive = store_classes(JAVA, [folder])
    assert left_in(folder) == [archive]
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
    theirs = "TIDEGATE_CONF_DIR TIDEGATE_SETTINGS TIDEGATE_LOG FLINK_CONF_DIR SPARK_CONF_DIR"
    for variable in theirs.split():
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
    assert left_in(tmp_path) == []


def test_a_folder_that_cannot_be_written_to_is_skipped(tmp_path, job):
    file = tmp_path / "file"
    file.touch()
    assert store_classes(JAVA, [file, tmp_path / "second"]).parent == tmp_path / "second"
    with pytest.raises(ExternalError, match=r"the classes could not be stored: .*file"):
        store_classes(JAVA, [file])


@pytest.mark.parametrize(
    ("code", "writes", "works"), [(1, True, True), (0, False, True), (0, True, False)]
)
def test_a_job_that_stores_nothing_whole_leaves_nothing(tmp_path, job, code, writes, works):
    job.code, job.writes, job.works = code, writes, works
    with pytest.raises(ExternalError, match=r"no classes were stored; .*\nit said so"):
        store_classes(JAVA, [tmp_path])
    assert left_in(tmp_path) == []


def test_an_archive_is_verified_before_it_is_used(tmp_path, job):
    store_classes(JAVA, [tmp_path])
    recording, verifying = job.options
    assert verifying[0].startswith("-XX:SharedArchiveFile=")
    assert verifying[0].partition("=")[2] == recording[0].partition("=")[2]
    assert verifying[1:3] == ["-Xshare:on", "-XX:+VerifySharedSpaces"]


@pytest.mark.parametrize("size", [0, 3, 100])
def test_an_archive_of_another_size_is_not_used_and_is_replaced(tmp_path, job, size):
    """A Java that maps a truncated file crashes."""
    archive = store_classes(JAVA, [tmp_path])
    archive.chmod(0o644)
    os.truncate(archive, size)
    assert archive_options(JAVA, [tmp_path]) == ""
    assert store_classes(JAVA, [tmp_path]) == archive
    assert archive_options(JAVA, [tmp_path])


def test_an_archive_replaces_those_for_the_same_java(tmp_path, job):
    archive = store_classes(JAVA, [tmp_path])
    other = store_classes(replace(JAVA, version="21.0.9"), [tmp_path])
    archive.rename(tmp_path / archive.name.replace("-8.", "-9."))
    assert store_classes(JAVA, [tmp_path]) == archive
    assert set(left_in(tmp_path)) == {archive, other}


def test_an_archive_is_on_disk_before_it_is_used(tmp_path, job, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file.fileno()).st_ino))
    assert store_classes(JAVA, [tmp_path]).stat().st_ino in synced


def test_all_users_can_read_an_archive(tmp_path, job):
    mask = os.umask(0o077)
    try:
        assert stat.S_IMODE(store_classes(JAVA, [tmp_path]).stat().st_mode) == 0o644
    finally:
        os.umask(mask)


def test_an_archive_that_cannot_be_read_is_not_used(tmp_path, job, monkeypatch):
    archive = store_classes(JAVA, [tmp_path])
    monkeypatch.setattr(os, "access", lambda path, mode: (path, mode) != (archive, os.R_OK))
    assert archive_options(JAVA, [tmp_path]) == ""


@pytest.mark.parametrize("of", ["archive", "folder"])
@pytest.mark.parametrize(
    ("owner", "is_used"), [("root", True), ("us", True), ("environment", True), ("other", False)]
)
def test_an_archive_of_another_user_is_not_used(tmp_path, job, monkeypatch, of, owner, is_used):
    """A Java runs what is in it."""
    archive = store_classes(JAVA, [tmp_path])
    owned = archive if of == "archive" else tmp_path
    us, environment = 4_000_001, 4_000_002
    owners = {"root": 0, "us": us, "environment": environment, "other": 4_000_003}
    look_up = Path.stat

    def play(path, *, follow_symlinks=True):
        found = list(look_up(path, follow_symlinks=follow_symlinks))
        found[stat.ST_UID] = owners[owner] if path == owned else us
        if path == Path(sys.prefix):
            found[stat.ST_UID] = environment
        return os.stat_result(found)

    monkeypatch.setattr(Path, "stat", play)
    monkeypatch.setattr(Path, "lstat", lambda path: play(path, follow_symlinks=False))
    monkeypatch.setattr(os, "getuid", lambda: us)
    assert bool(archive_options(JAVA, [tmp_path])) == is_used


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_an_archive_that_others_can_change_is_not_used(tmp_path, job, mode):
    store_classes(JAVA, [tmp_path]).chmod(mode)
    assert archive_options(JAVA, [tmp_path]) == ""


def test_a_folder_that_others_can_change_is_not_used(tmp_path, job):
    store_classes(JAVA, [tmp_path])
    tmp_path.chmod(0o777)
    assert archive_options(JAVA, [tmp_path]) == ""
    with pytest.raises(ExternalError, match="other users can write"):
        store_classes(JAVA, [tmp_path])


def test_an_archive_is_not_a_link(tmp_path, job):
    archive = store_classes(JAVA, [tmp_path])
    archive.symlink_to(archive.rename(tmp_path / "elsewhere"))
    assert archive_options(JAVA, [tmp_path]) == ""


def test_a_folder_that_cannot_be_looked_into_has_no_archive(tmp_path, job, monkeypatch):
    store_classes(JAVA, [tmp_path])
    look_up = Path.stat

    def refuse(path, **options):
        if path.is_relative_to(tmp_path / "closed"):
            raise PermissionError(errno.EACCES, "closed", str(path))
        return look_up(path, **options)

    monkeypatch.setattr(Path, "stat", refuse)
    assert archive_options(JAVA, [tmp_path / "closed"]) == ""
    assert archive_options(JAVA, [tmp_path / "closed", tmp_path])


def test_a_user_without_a_home_has_the_environment(monkeypatch):
    def fail():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", fail)
    assert wrapper_folders() == (Path(sys.prefix, "share", "tidegate"),)
    assert archive_options(JAVA) == ""


def test_a_pyspark_that_was_not_installed_as_a_package_has_archives(tmp_path, job, monkeypatch):
    assert pyspark.__spec__ is not None
    monkeypatch.setattr(sys, "path", [each for each in sys.path if "-packages" not in each])
    store_classes(JAVA, [tmp_path])
    assert archive_options(JAVA, [tmp_path])


def test_another_spark_has_another_archive(tmp_path, job, monkeypatch):
    store_classes(JAVA, [tmp_path])
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert archive_options(JAVA, [tmp_path]) == ""


def test_a_removed_archive_is_not_used(tmp_path, job):
    store_classes(JAVA, [tmp_path])
    remove_archive(JAVA, [tmp_path])
    assert archive_options(JAVA, [tmp_path]) == ""
    remove_archive(JAVA, [tmp_path])


def test_one_process_at_a_time_stores(tmp_path, job):
    with (tmp_path / "storing.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ExternalError, match="another process is storing"):
            store_classes(JAVA, [tmp_path, tmp_path / "second"])
    assert job.options == []
    assert store_classes(JAVA, [tmp_path]).is_file()


def test_a_machine_with_too_many_processes_is_no_other_process_that_stores(tmp_path, monkeypatch):
    """Both make Python raise BlockingIOError."""

    def refuse(*arguments, **options):
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(class_archive.subprocess, "Popen", refuse)
    with pytest.raises(ExternalError, match=r"could not be stored: .*Resource temporarily"):
        store_classes(JAVA, [tmp_path])


def test_the_job_holds_the_lock_if_the_process_that_stores_is_killed(tmp_path, job):
    job.seconds = 600
    seen = []

    def look_and_interrupt():
        wait_until(lambda: len(job.family) == 3)
        lock = (tmp_path / "storing.lock").stat().st_ino
        files = Path(f"/proc/{job.family[0].pid}/fd").iterdir()
        seen.extend(each for each in files if each.stat().st_ino == lock)
        signal.pthread_kill(main_thread, signal.SIGINT)

    main_thread = threading.get_ident()
    threading.Thread(target=look_and_interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        store_classes(JAVA, [tmp_path])
    assert len(seen) == 1


def test_what_a_killed_process_left_is_removed(tmp_path, job):
    (tmp_path / "tmpabc").mkdir()
    (tmp_path / "tmpabc" / "sample.py").touch()
    archive = store_classes(JAVA, [tmp_path])
    assert left_in(tmp_path) == [archive]
