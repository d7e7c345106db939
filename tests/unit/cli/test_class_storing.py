"""Spark's classes are stored in the background, by a process that disturbs nothing."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from tests.programs import wait_until
from tidegate.cli import class_storing, supervision
from tidegate.cli.class_storing import ClassStoring
from tidegate.cli.main import app

ROOT = Path(__file__).parents[3]


@pytest.fixture
def storing():
    storing = ClassStoring()
    yield storing
    storing.end()


@pytest.fixture
def played(monkeypatch, tmp_path):
    """Stands in for the module: takes its time to store, and says how far it is."""
    state = tmp_path / "state"
    (tmp_path / "played_storing.py").write_text(
        "import pathlib, time\n"
        "from tidegate.cli import class_storing\n"
        f"state = pathlib.Path({str(state)!r})\n"
        "def store(java):\n"
        "    try:\n"
        "        print('a word')\n"
        "        state.write_text('begun')\n"
        "        time.sleep(600)\n"
        "    finally:\n"
        "        state.write_text('ended')\n"
        "class_storing.require_java = lambda: None\n"
        "class_storing.archive_options = lambda java: ''\n"
        "class_storing.available_memory = lambda: 10**10\n"
        "class_storing.store_classes = store\n"
        "class_storing.main()\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(tmp_path)]))
    monkeypatch.setattr(class_storing, "__name__", "played_storing")
    return state


def is_begun(state):
    return state.exists() and state.read_text() == "begun"


def test_it_is_the_last_to_run_and_the_first_to_be_killed_and_says_nothing(played, storing, capfd):
    before = psutil.Process().children()
    storing.begin()
    storing.begin()
    (process,) = set(psutil.Process().children()) - set(before)
    assert process.nice() == 19
    assert Path(f"/proc/{process.pid}/oom_score_adj").read_text() == "1000\n"
    wait_until(lambda: is_begun(played))
    storing.end()
    assert played.read_text() == "ended"
    assert not process.is_running()
    assert capfd.readouterr() == ("", "")
    storing.begin()
    assert psutil.Process().children() == before


def test_it_ends_with_its_supervisor(played):
    script = (
        "import pathlib, os, sys, time\n"
        "from tidegate.cli import class_storing\n"
        "class_storing.__name__ = 'played_storing'\n"
        "storing = class_storing.ClassStoring()\n"
        "storing.begin()\n"
        "state = pathlib.Path(sys.argv[1])\n"
        "while not state.exists(): time.sleep(0.01)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(played)], check=False)
    wait_until(lambda: played.read_text() == "ended")


@pytest.mark.parametrize(
    ("stored", "memory", "stores"),
    [("", 2 * 10**9, True), ("-XX", 2 * 10**9, False), ("", 10**9, False), ("", None, False)],
    ids=["nothing is stored", "an archive fits", "too little memory", "unknown memory"],
)
def test_it_stores_what_is_missing_if_there_is_room(monkeypatch, stored, memory, stores):
    done = []
    monkeypatch.setattr(class_storing, "require_java", lambda: "java")
    monkeypatch.setattr(class_storing, "archive_options", lambda java: stored)
    monkeypatch.setattr(class_storing, "available_memory", lambda: memory)
    monkeypatch.setattr(class_storing, "store_classes", done.append)
    class_storing.store_if_missing()
    assert done == (["java"] if stores else [])


@pytest.mark.parametrize(
    ("options", "stores"), [([], True), (["--no-store-classes"], False)], ids=["by default", "off"]
)
def test_a_supervisor_stores_classes_unless_told_not_to(monkeypatch, tmp_path, options, stores):
    monkeypatch.delenv("TIDEGATE_STORE_CLASSES")
    given = []
    monkeypatch.setattr(supervision, "supervise", lambda *all: given.append(all[2]) or 0)
    program = tmp_path / "job.py"
    program.touch()
    CliRunner().invoke(app, ["run", "--supervise", *options, str(program)], catch_exceptions=False)
    assert [each is not None for each in given] == [stores]


def test_tests_do_not_store_classes(monkeypatch, tmp_path):
    given = []
    monkeypatch.setattr(supervision, "supervise", lambda *all: given.append(all[2]) or 0)
    (tmp_path / "job.py").touch()
    CliRunner().invoke(app, ["run", "--supervise", str(tmp_path / "job.py")])
    assert given == [None]
