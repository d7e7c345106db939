import tempfile
from pathlib import Path

from tidegate.prerequisites import Status
from tidegate.prerequisites.machine import (
    check_host_name,
    check_loopback,
    check_memory,
    check_temporary_directory,
    check_unix_sockets,
)


def test_the_memory_of_a_container_is_its_limit(tmp_path):
    (tmp_path / "memory.max").write_text("1500000000\n")
    check = check_memory(cgroup=tmp_path)
    assert (check.status, check.found) == (Status.WARNING, "1.5 GB")


def test_a_container_without_a_limit_has_the_memory_of_the_machine(tmp_path):
    unlimited = check_memory(cgroup=tmp_path)
    (tmp_path / "memory.max").write_text("max\n")
    assert check_memory(cgroup=tmp_path) == unlimited


def test_the_temporary_directory_is_named_and_left_clean(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    check = check_temporary_directory()
    assert check.found.startswith(f"{tmp_path}, ")
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_directory_that_cannot_be_written_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    check = check_temporary_directory()
    assert check.status is Status.MISSING
    assert check.advice == "set TMPDIR to a directory that you may write to"


def test_loopback_connects():
    assert check_loopback().status is Status.OK


def test_an_address_that_is_not_ours_is_reported():
    check = check_loopback("192.0.2.1")
    assert check.status is Status.MISSING
    assert check.found.startswith("192.0.2.1: ")


def test_a_host_name_that_cannot_be_looked_up_is_a_warning(monkeypatch):
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    check = check_host_name("no-such-host.invalid")
    assert check.status is Status.WARNING
    assert check.advice == "set SPARK_LOCAL_IP=127.0.0.1, or add the name to /etc/hosts"


def test_a_given_address_spares_the_look_up(monkeypatch):
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    assert check_host_name("no-such-host.invalid").status is Status.OK


def test_unix_sockets_are_usable_and_leave_nothing():
    with tempfile.TemporaryDirectory() as short:
        assert check_unix_sockets(Path(short)).found == f"usable in {short}"
        assert list(Path(short).iterdir()) == []


def test_a_path_too_long_for_a_socket_is_a_warning(tmp_path):
    directory = tmp_path / ("x" * 120)
    directory.mkdir()
    check = check_unix_sockets(directory)
    assert check.status is Status.WARNING
    assert "too long" in check.found
    assert list(directory.iterdir()) == []
