"""Spark for many jobs, and the driver processes that use it.

A separate program runs Spark's JVM; drivers attach to it. Killing a driver leaves the JVM alone,
and with it the executors and slots of that driver, for as long as they live.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from tests.kills.cases import LOCAL, PUMP
from tests.kills.programs import Place, build, obey

ROOT = Path(__file__).parents[2]
MASTERS = {LOCAL: "local[256]", "cluster": "local-cluster[2,64,640]"}
_START_SECONDS = 240
_MOST_TASKS = 1000
_CONF = {
    "spark.default.parallelism": "4",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.memory": "640m",
    "spark.python.daemon.module": "tests.kills.daemon",
    "spark.python.task.killTimeout": "15s",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_forks = get_context("forkserver")
_forks.set_forkserver_preload(["tests.kills.stage", "tests.kills.daemon", "tidegate.driver.launch"])


class Stage:
    """Spark's JVM, restarted whenever it was killed."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self._directory = directory
        self._keeper: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self.gateway = ("", "")

    def start(self) -> None:
        with self._lock:
            if self._keeper is None or self._keeper.poll() is not None:
                self._start()

    def _start(self) -> None:
        with (self._directory / "spark.log").open("ab") as log:
            self._keeper = subprocess.Popen(
                [sys.executable, "-m", "tests.kills.stage", MASTERS[self.kind]],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._keeper.stdout is not None
        timer = threading.Timer(_START_SECONDS, self._keeper.kill)
        timer.start()
        port, secret = self._keeper.stdout.readline().split()
        timer.cancel()
        self.gateway = port, secret

    def kill(self) -> None:
        """Kill the JVM and everything that belongs to it."""
        with self._lock:
            if self._keeper is not None:
                self._kill(self._keeper)
                self._keeper = None

    @staticmethod
    def _kill(keeper: subprocess.Popen[str]) -> None:
        family = psutil.Process(keeper.pid).children(recursive=True)
        for member in family:
            with suppress(psutil.NoSuchProcess):
                if "java" in member.name():
                    member.kill()
        keeper.kill()
        keeper.wait()
        psutil.wait_procs(family, timeout=30)


@dataclass(frozen=True, slots=True)
class Script:
    """What a driver process does."""

    program: str
    place: Place
    gateway: tuple[str, str]
    parallelism: int
    settings: Mapping[str, Any]


class Driver:
    """A driver process."""

    def __init__(self, script: Script) -> None:
        self.line, other = _forks.Pipe()
        self._process = _forks.Process(target=_drive, args=(script, other), daemon=True)
        self._process.start()
        other.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    @property
    def exit_code(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._process.join()

    def signal(self, number: signal.Signals) -> None:
        if self._process.is_alive():
            os.kill(self.pid, number)

    def join(self, seconds: float | None = None) -> None:
        self._process.join(seconds)


class _Events(logging.Handler):
    """Reports checkpoints and recoveries."""

    def __init__(self, line: Connection) -> None:
        super().__init__()
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        print(f"{record.created:.3f} {record.name}: {text}", file=sys.stderr, flush=True)
        if record.exc_info and record.exc_info[1] is not None:
            print(self.format(record), file=sys.stderr, flush=True)
        for event in ("Completed checkpoint", "Restoring job"):
            if text.startswith(event):
                self._line.send((event, text))


def _drive(script: Script, line: Connection) -> None:
    log = os.open(script.place.directory / "driver.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.register(signal.SIGUSR1)
    print(f"--- driver {os.getpid()}", file=sys.stderr, flush=True)
    obey(script.place.orders)
    logging.getLogger("tidegate").addHandler(_Events(line))
    logging.getLogger("tidegate").setLevel(logging.INFO)
    try:
        client = _submit(script)
        threading.Thread(target=_obey, args=(client, line), daemon=True).start()
        client.wait()
    except BaseException as error:
        traceback.print_exc()
        line.send(("failed", f"{type(error).__name__}: {error}"))
    else:
        line.send(("ended", ""))
    line.close()
    os._exit(0)


def _submit(script: Script) -> Any:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    from tidegate import Configuration, StreamExecutionEnvironment

    os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"] = script.gateway
    gateway = launch_gateway()
    jvm = gateway.jvm
    session = jvm.org.apache.spark.sql.classic.SparkSession.active()
    context = jvm.org.apache.spark.api.java.JavaSparkContext(session.sparkContext())
    conf = SparkConf(_jvm=jvm, _jconf=context.getConf())
    attached = SparkContext(gateway=gateway, jsc=context, conf=conf)
    # Spark's scheduler waits for accumulators: a sleeping driver would block all jobs.
    attached._javaAccumulator = None
    spark = SparkSession(attached, session)
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(script.settings), spark=spark
    )
    env.set_parallelism(script.parallelism)
    build(script.program, env, script.place)
    return env.execute_async(script.place.name)


def _obey(client: Any, line: Connection) -> None:
    """Carry out a user request, and report the resulting path."""
    while True:
        try:
            what, argument = line.recv()
        except EOFError:
            return
        try:
            if what == PUMP:
                answer = kill_pump(str(client.get_job_id()), **argument)
            else:
                answer = getattr(client, what)(**argument).result()
        except Exception as error:
            line.send(("refused", f"{type(error).__name__}: {error}"))
        else:
            line.send(("done", answer))


def kill_pump(job: str, chance: float) -> bool:
    """Kill a task of the endless jobs, if one runs."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    assert context is not None
    spark = context._jsc.sc()
    store, running = spark.statusStore(), []
    for each in map(store.job, context.statusTracker().getActiveJobsIds()):
        group = each.jobGroup()
        if group.isDefined() and f"{job}-pumps" in group.get():
            for stage in _listed(each.stageIds()):
                tasks = _listed(store.taskList(stage, 0, _MOST_TASKS))
                running += [task.taskId() for task in tasks if task.status() == "RUNNING"]
    if not running:
        return False
    victim = sorted(running)[int(chance * len(running))]
    return bool(spark.killTaskAttempt(victim, True, "killed by a test"))


def _listed(sequence: Any) -> list[Any]:
    """A sequence of Scala's."""
    return [sequence.apply(index) for index in range(sequence.size())]


def main(master: str) -> None:
    """Keep a JVM alive until nobody listens any more."""
    from pyspark.sql import SparkSession

    from tidegate.exchange.pipelined.requirements import session_settings

    spark = (
        SparkSession.builder.master(master)
        .config(map={**session_settings(), **_CONF})
        .config("spark.local.dir", os.environ["TMPDIR"])
        .config("spark.sql.warehouse.dir", os.environ["TMPDIR"])
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    parameters = spark.sparkContext._gateway.java_parameters
    print(parameters.port, parameters.auth_token, flush=True)
    sys.stdin.read()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
