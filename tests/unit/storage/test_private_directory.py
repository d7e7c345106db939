import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tidegate.core.config import Settings
from tidegate.core.setting_groups import SparkSettings
from tidegate.datastream.environment import ExchangeDirectory
from tidegate.datastream.execution.spark_session import session_conf
from tidegate.storage.private_directory import PrivateDirectory

ROOT = Path(__file__).parents[3]


@pytest.fixture
def temporary(monkeypatch):
    with tempfile.TemporaryDirectory(prefix="tg-") as path:
        monkeypatch.setattr(tempfile, "tempdir", path)
        yield Path(path)


def make_old(path):
    os.utime(path, (1, 1))


def test_only_its_user_enters_it_and_it_ends_with_its_owner(temporary):
    directory = PrivateDirectory("job")
    assert directory.path.stat().st_mode & 0o777 == 0o700
    (directory.path / "file").touch()
    directory.remove()
    assert list(temporary.iterdir()) == []
    directory.remove()


def test_what_a_killed_process_leaves_is_removed_by_the_next(temporary):
    command = (
        "import os, signal, socket\n"
        "from tidegate.storage.private_directory import PrivateDirectory\n"
        "directory = PrivateDirectory('spark')\n"
        "socket.socket(socket.AF_UNIX).bind(str(directory.path / 'x.sock'))\n"
        "print(directory.path, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
    done = subprocess.run(
        [sys.executable, "-c", command],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    left = Path(done.stdout.strip())
    assert (left / "x.sock").exists()
    make_old(left)
    PrivateDirectory("job").remove()
    assert not left.exists()


def test_what_is_in_use_or_not_ours_stays(temporary):
    used = PrivateDirectory("job")
    make_old(used.path)
    beginning = temporary / "tidegate-job-beginning"
    other = temporary / "tidegate-job-link"
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    other.symlink_to(elsewhere)
    os.utime(other, (1, 1), follow_symlinks=False)
    beginning.mkdir()
    PrivateDirectory("slot").remove()
    assert used.path.exists()
    assert beginning.exists()
    assert (elsewhere / "file").exists()
    used.remove()


def test_sockets_of_spark_and_what_is_exchanged_are_private(temporary):
    conf = session_conf(Settings(), "local[2]", 2, temporary / "log")
    assert conf["spark.python.unix.domain.socket.enabled"] == "true"
    sockets = Path(conf["spark.python.unix.domain.socket.dir"])
    assert sockets.stat().st_mode & 0o777 == 0o700
    exchange = ExchangeDirectory()
    assert Path(exchange.path(SparkSettings())).parent.stat().st_mode & 0o777 == 0o700
    exchange.remove()
    assert not list(temporary.glob("tidegate-exchange-*"))


def test_on_a_cluster_pyspark_keeps_its_own_secret(temporary):
    """A directory of this machine is none of the executors'."""
    conf = session_conf(Settings(), "spark://host:7077", 2, temporary / "log")
    assert not [key for key in conf if "unix.domain" in key]
