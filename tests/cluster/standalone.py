"""A real standalone Spark cluster on loopback, from the installed PySpark."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark
import pytest

from tests.cluster.line import Badness, Line
from tidegate.prerequisites.java import require_java


@dataclass(frozen=True, slots=True)
class Host:
    """Where a process of the cluster runs, and the command by which one gets there."""

    address: str = "127.0.0.1"
    enter: tuple[str, ...] = ()


HERE: Final = Host()


@contextmanager
def two_hosts(badness: Badness) -> Iterator[tuple[Host, Host, Line]]:
    """This machine and one of its network namespaces, with a bad line between them.

    The other host has a name of its own, so that nobody takes it for this machine.
    """
    name = f"tg{os.getpid() % 10**6}"
    ours, theirs = f"10.231.{os.getpid() % 251}.1", f"10.231.{os.getpid() % 251}.2"
    try:
        line = Line(f"{name}a", f"{name}b", badness)
    except OSError as error:
        pytest.skip(f"this machine permits no second host: {error}")
    try:
        for command in (
            f"ip netns add {name}",
            f"ip link set {name}b netns {name}",
            f"ip addr add {ours} peer {theirs} dev {name}a",
            f"ip link set {name}a up",
            f"ip -n {name} addr add {theirs} peer {ours} dev {name}b",
            f"ip -n {name} link set {name}b up",
            f"ip -n {name} link set lo up",
        ):
            done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
            if done.returncode != 0:
                pytest.skip(f"this machine permits no second host: {done.stderr.strip()}")
        named = ("unshare", "--uts", "sh", "-c", f'hostname {name}; exec "$@"', "sh")
        yield Host(ours), Host(theirs, ("ip", "netns", "exec", name, *named)), line
    finally:
        line.end()
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def environment(host: Host = HERE) -> dict[str, str]:
    return {
        **os.environ,
        "JAVA_HOME": str(require_java().home),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": host.address,
        "PYSPARK_PYTHON": sys.executable,
    }


@contextmanager
def standalone_cluster(
    directory: Path, cores: int, workers: Sequence[Host] = (HERE, HERE)
) -> Iterator[str]:
    """Start a master and workers, the first beside it; yields the master's address."""
    port, processes, host = _free_port(), [], workers[0]
    address = f"spark://{host.address}:{port}"
    try:
        log = directory / "master.log"
        processes.append(_start(host, "master.Master", log, "--port", str(port)))
        _wait_for_port(host, port)
        processes.extend(
            _start(
                worker,
                "worker.Worker",
                directory / f"worker-{i}.log",
                *("-c", str(cores), "-m", "2g", "-d", str(directory / f"work-{i}")),
                address,
            )
            for i, worker in enumerate(workers)
        )
        yield address
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(120)


def run_program(program: Path, *arguments: str, host: Host = HERE) -> str:
    """Run a driver program as a user would, and return what it prints."""
    done = subprocess.run(
        [sys.executable, str(program), *arguments],
        env=environment(host),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _start(host: Host, role: str, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    command = [*host.enter, str(spark_class), f"org.apache.spark.deploy.{role}"]
    command += ["--host", host.address, "--webui-port", "0", *arguments]
    with log.open("wb") as output:
        return subprocess.Popen(
            command, env=environment(host), stdout=output, stderr=subprocess.STDOUT
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HERE.address, 0))
        return int(probe.getsockname()[1])


def _wait_for_port(host: Host, port: int, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host.address, port), 1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, f"nobody listens on port {port}"
            time.sleep(0.1)
