"""What the Flink peers share: a session cluster in this process's JVM, and a job watched by REST.

PyFlink's default local mode starts a cluster per job and takes it down with the job, and the final
counts with it. So the same mini cluster is started here as a session, and jobs are submitted to it.
"""

from __future__ import annotations

import json
import socket
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyflink.common import Configuration
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway

from benchmarks.peers.protocol import Order

POLL = 0.3
ENDED = {"FINISHED", "FAILED", "CANCELED"}


@dataclass(frozen=True)
class Watched:
    """A finished job as Flink counted it at the input of its last vertex."""

    records: int
    samples: list[tuple[float, int]]
    commits: int
    commit_interval: float | None


class Cluster:
    """A mini cluster with one task manager, and how jobs run on it."""

    def __init__(self, order: Order, settings: dict[str, str]) -> None:
        self._port = _free_port()
        self._order = order
        chosen = {
            "rest.address": "127.0.0.1",
            "rest.bind-address": "127.0.0.1",
            "rest.port": str(self._port),
            "rest.bind-port": str(self._port),
            "metrics.fetcher.update-interval": str(int(POLL * 1000)),
            "parallelism.default": str(order.parallelism),
            "pipeline.object-reuse": "true",
            "restart-strategy.type": "none",
            "python.executable": sys.executable,
            "python.client.executable": sys.executable,
            # The interpreter embedded in the JVM (thread mode) does not know the venv by itself.
            "python.pythonpath": sysconfig.get_path("purelib"),
            "execution.checkpointing.interval": f"{int(order.commit_seconds * 1000)} ms",
            "execution.checkpointing.dir": f"file://{order.scratch}/checkpoints",
            "execution.checkpointing.incremental": "true",
            "taskmanager.memory.managed.size": "512m",
            "taskmanager.memory.network.min": "128m",
            "taskmanager.memory.network.max": "128m",
            "io.tmp.dirs": f"{order.scratch}/tmp",
            **settings,
            **order.options.get("settings", {}),
        }
        self._configuration = Configuration()
        for key, value in chosen.items():
            self._configuration.set_string(key, value)
        jvm = get_gateway().jvm
        mini = jvm.org.apache.flink.runtime.minicluster
        layout = (
            mini.MiniClusterConfiguration.Builder()
            .setNumTaskManagers(1)
            .setNumSlotsPerTaskManager(order.parallelism)
            .setConfiguration(self._configuration._j_configuration)
            .build()
        )
        self._cluster = mini.MiniCluster(layout)
        self._cluster.start()
        self._configuration.set_string("execution.target", "remote")

    def environment(self) -> StreamExecutionEnvironment:
        """An environment whose jobs go to this cluster."""
        flink = get_gateway().jvm.org.apache.flink.streaming.api.environment
        return StreamExecutionEnvironment(
            flink.StreamExecutionEnvironment(self._configuration._j_configuration)
        )

    def watch(self, job: str, *, sources: Sequence[str] = (), records: int = 0) -> Watched:
        """Sample a job's count until it ends; a job that fails raises with its root cause.

        Where sources are named, what they have emitted is counted, `records` in the end: counters
        of operators go with the job.
        """
        samples: list[tuple[float, int]] = []
        while True:
            state = self._get(f"/jobs/{job}")
            if not sources:
                count = _received(state)
            elif state["state"] in ENDED:
                count = records
            else:
                count = self._emitted(job, state["vertices"], sources)
            # The counts are fetched now and then: an unchanged one is an old one.
            if not samples or count > samples[-1][1]:
                samples.append((time.time(), count))
            if state["state"] in ENDED:
                break
            time.sleep(POLL)
        if state["state"] != "FINISHED":
            raise RuntimeError(_root_cause(self._get(f"/jobs/{job}/exceptions")))
        commits = self._get(f"/jobs/{job}/checkpoints")["counts"]["completed"]
        took = samples[-1][0] - samples[0][0]
        return Watched(count, samples, commits, took / commits if commits else None)

    def received(self, job: str) -> int:
        """How many records have reached the last vertex of a job."""
        return _received(self._get(f"/jobs/{job}"))

    def _emitted(self, job: str, vertices: Any, sources: Sequence[str]) -> int:
        total = 0.0
        for name in sources:
            vertex = next(v["id"] for v in vertices if f"Source: {name}" in v["name"])
            counter = f"Source__{name}.numRecordsOut"
            path = f"/jobs/{job}/vertices/{vertex}/subtasks/metrics?get={counter}&agg=sum"
            total += sum(metric["sum"] for metric in self._get(path))
        return int(total)

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=60) as answer:
            return json.load(answer)


def _received(state: Any) -> int:
    return int(state["vertices"][-1]["metrics"]["read-records"])


def _root_cause(exceptions: Any) -> str:
    """The last "Caused by" of a failed job's history, with the lines around it."""
    entries = exceptions["exceptionHistory"]["entries"]
    trace = str(entries[0]["stacktrace"]) if entries else "the job did not finish"
    return trace[trace.rfind("Caused by") :][:2000]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
