"""Archives of Spark's classes: found for the Java that they fit, and stored as a whole."""

import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tidegate.core.errors import ExternalError
from tidegate.prerequisites import class_archive
from tidegate.prerequisites.class_archive import archive_options, store_classes
from tidegate.prerequisites.java import JavaInstallation, JavaOrigin

JAVA = JavaInstallation(Path("/opt/java"), "21.0.8", JavaOrigin.JAVA_HOME, True)


@pytest.fixture
def job(monkeypatch):
    """Stands in for the job: writes the archive that the options of its Java name, and ends."""
    job = SimpleNamespace(code=0, writes=True, environment={})

    def run(argv, env, **_):
        job.environment = env
        option = next(each for each in argv if "ArchiveClassesAtExit" in each)
        first, *_ = shlex.split(option.partition("=")[2])
        archive = Path(first.removeprefix("-XX:ArchiveClassesAtExit="))
        assert argv[0] == sys.executable
        assert Path(argv[-1]).is_file()
        if job.writes:
            archive.write_text("classes")
        return subprocess.CompletedProcess(argv, job.code, stdout="it said so")

    monkeypatch.setattr(class_archive.subprocess, "run", run)
    return job


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
