import tempfile
from pathlib import Path

import pytest

from tidegate.prerequisites import Status
from tidegate.prerequisites.machine import (
    available_memory,
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


def test_the_memory_of_a_container_is_its_limit_in_the_first_version_of_groups(tmp_path):
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("1500000000\n")
    assert check_memory(cgroup=tmp_path).found == "1.5 GB"


def test_a_container_without_a_limit_has_the_memory_of_the_machine(tmp_path):
    unlimited = check_memory(cgroup=tmp_path)
    (tmp_path / "memory.max").write_text("max\n")
    assert check_memory(cgroup=tmp_path) == unlimited


@pytest.fixture
def linux(tmp_path):
    """Where a Linux with 3 GB to spare describes a process in two groups."""
    (tmp_path / "self").mkdir()
    (tmp_path / "meminfo").write_text("MemTotal: 8000000 kB\nMemAvailable: 3000000 kB\n")
    (tmp_path / "self" / "cgroup").write_text("1:name=systemd:/\n0::/slice/service\n")
    (tmp_path / "slice" / "service").mkdir(parents=True)
    return tmp_path


def set_group(directory, limit, current, cached):
    (directory / "memory.max").write_text(f"{limit}\n")
    (directory / "memory.current").write_text(f"{current}\n")
    (directory / "memory.stat").write_text(f"anon 5\ninactive_file {cached}\n")


def test_available_memory_is_what_the_machine_can_spare(linux):
    assert available_memory(linux, linux) == 3_072_000_000
    set_group(linux / "slice", "max", 10**9, 0)
    assert available_memory(linux, linux) == 3_072_000_000


@pytest.mark.parametrize("group", ["", "slice", "slice/service"])
def test_available_memory_is_what_the_narrowest_group_can_spare(linux, group):
    set_group(linux / group, 2 * 10**9, 10**9 + 7, 5)
    assert available_memory(linux, linux) == 10**9 - 2


@pytest.mark.parametrize("group", ["", "docker", "docker/1"])
def test_available_memory_respects_the_first_version_of_groups(linux, group):
    (linux / "self" / "cgroup").write_text("5:cpu,cpuacct:/other\n4:memory:/docker/1\n0::/\n")
    directory = linux / "memory" / group
    directory.mkdir(parents=True)
    (directory / "memory.limit_in_bytes").write_text(f"{2 * 10**9}\n")
    (directory / "memory.usage_in_bytes").write_text(f"{10**9 + 7}\n")
    (directory / "memory.stat").write_text("inactive_file 1\ntotal_inactive_file 5\n")
    assert available_memory(linux, linux) == 10**9 - 2


def test_available_memory_is_unknown_on_other_systems(tmp_path):
    assert available_memory(tmp_path, tmp_path) is None


@pytest.mark.parametrize("file", ["self/cgroup", "slice/memory.current", "slice/memory.stat"])
@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_text("?\n")])
def test_available_memory_is_unknown_if_a_group_does_not_tell(linux, file, damage):
    set_group(linux / "slice", 2 * 10**9, 10**9, 0)
    damage(linux / file)
    assert available_memory(linux, linux) is None


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
