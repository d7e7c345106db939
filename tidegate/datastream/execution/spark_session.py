"""The Spark session of a job: the user's, or one that Tidegate creates."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.core.config import Settings
from tidegate.core.errors import ConfigError, UnsuitableSpark
from tidegate.core.foreign_logs import FOREIGN_LOG_VARIABLE
from tidegate.core.modes import ExchangeMode
from tidegate.core.redaction import is_secret
from tidegate.driver.interrupts import held_interrupts
from tidegate.exchange.pipelined.requirements import (
    FETCH_SETTINGS,
    JAR,
    SHUFFLE_SETTINGS,
    WORKER_SETTINGS,
)
from tidegate.prerequisites.class_archive import archive_options, remove_archive
from tidegate.prerequisites.java import JavaInstallation, require_java
from tidegate.storage.private_directory import PrivateDirectory

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

_LOOPBACK = "127.0.0.1"
_starting = threading.Lock()
_LOGGING = Path(__file__).with_name("spark-log4j2.properties")
_IMPORTABLE = (".py", ".zip", ".egg")
_LATE_OPTIMIZATION = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:Tier4InvocationThreshold=50000 "
    "-XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000 "
    "-XX:Tier4BackEdgeThreshold=400000"
)
"""Ten times Java's defaults: while Spark starts, Java would spend half of its time on optimizing
code that soon is not needed any more."""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_OURS = "spark.tidegate.session"
"""Marks sessions that Tidegate created and may replace."""
_SORT = """
trap '' INT TERM  # until Java has ended
said=
while IFS= read -r line; do
  if [ "$line" = "$1" ]; then
    [ -z "$said" ] || printf %s "$said" >>"$2"
    exec cat >&2
  fi
  [ -z "$line" ] || said="$said$line
"
done
printf %s "$said$line" >&2
"""
"""Copies lines to a log up to a mark, and the rest to the console; without a mark, everything."""


def refuse_spark_connect(spark: Any) -> None:
    """Check that the session is classic: slots are RDD tasks, which a remote session lacks.

    Raises:
        UnsuitableSpark: the session is one of Spark Connect.
    """
    if ".connect." in f".{type(spark).__module__}.":
        raise UnsuitableSpark(
            "a Spark Connect session",
            type(spark).__module__,
            "Tidegate's slots are RDD tasks, which Spark Connect lacks: create a classic "
            "session with SparkSession.builder.master(...), without remote()",
        )


def active_context() -> SparkContext | None:
    """The context of the classic session that this process already has, if any."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext

    return SparkContext._active_spark_context


def active_session() -> SparkSession | None:
    """The classic session that this process already has, if any."""
    context = active_context()
    return None if context is None else session_of(context)


def session_of(context: SparkContext) -> SparkSession:
    """The session of an active context; Spark takes seconds to create it, so jobs do without."""
    from pyspark.sql import SparkSession

    assert context is active_context()
    return SparkSession.builder.getOrCreate()


def is_ours(context: SparkContext) -> bool:
    return context.getConf().get(_OURS) is not None


def task_slots(context: SparkContext) -> int:
    """The number of concurrent tasks that Spark can currently run."""
    return context.defaultParallelism


def is_active(context: SparkContext) -> bool:
    """Whether the session has not been stopped."""
    return active_context() is context


def stop(context: SparkContext) -> None:
    """Stop Spark, with the session on this context if there is one."""
    from pyspark.sql import SparkSession

    session = SparkSession._instantiatedSession
    if session is not None and session.sparkContext is context:
        session.stop()
    else:
        context.stop()


def make_session(settings: Settings, parallelism: int) -> SparkSession:
    """Start Spark with a session, for work of the given parallelism; see `make_context`."""
    return session_of(make_context(settings, parallelism))


def make_context(settings: Settings, parallelism: int, tasks: int = 0) -> SparkContext:
    """Start Spark for a job of the given parallelism; replaces a session with too few tasks.

    A local master runs at least `tasks` tasks at once: most of them only wait for data.
    """
    from pyspark import SparkConf, SparkContext

    narrow = active_context()
    if narrow is not None:
        stop(narrow)
    java = require_java()
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    chosen = settings.spark.master or settings.spark_conf.get("spark.master")
    master = chosen or f"local[{max(2 * parallelism, tasks)}]"
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    log = _foreign_log(settings.pipeline.name)
    os.environ[FOREIGN_LOG_VARIABLE] = str(log)
    conf = {
        "spark.master": master,
        "spark.app.name": settings.pipeline.name,
        **session_conf(settings, master, 2 * parallelism, log, archive_options(java)),
    }
    # PySpark puts the settings it starts Java with on a command line that all users can read.
    shown = {key: value for key, value in conf.items() if not is_secret(key)}
    with held_interrupts():
        with _starting:  # two threads with their first jobs share one Java
            if SparkContext._gateway is None:
                gateway = start_java_with_archive(shown, java, log)
                SparkContext._ensure_initialized(gateway=gateway)
        context = SparkContext.getOrCreate(SparkConf().setAll(list(conf.items())))
    context.setLogLevel(settings.spark.log_level)
    return context


def start_java_with_archive(conf: dict[str, str], java: JavaInstallation, log: Path) -> Any:
    """Start Spark's Java; without an archive of classes if it does not start with it.

    An archive that was to blame is removed.
    """
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError

    try:
        return start_java(SparkConf().setAll(list(conf.items())), log)
    except PySparkRuntimeError:
        options, archive = conf[_JAVA_OPTIONS], archive_options(java)
        if not archive or archive not in options:
            raise
        without = {**conf, _JAVA_OPTIONS: options.replace(archive, "")}
        gateway = start_java(SparkConf().setAll(list(without.items())), log)
        remove_archive(java)
        return gateway


def start_java(conf: SparkConf, log: Path) -> Any:
    """Start Spark's Java; returns PySpark's gateway to it.

    What Java prints meanwhile goes to the log, unless it does not start. Its standard error is the
    console afterwards: this is where functions print.
    """
    from pyspark.java_gateway import launch_gateway

    launch: Any = launch_gateway
    mark = secrets.token_hex(16)
    reading, writing = os.pipe()
    sorter = subprocess.Popen(["sh", "-c", _SORT, "sh", mark, log], stdin=reading)
    os.close(reading)
    try:
        gateway = launch(conf, {"stderr": writing})
        os.write(writing, f"\n{mark}\n".encode())
    finally:
        os.close(writing)
    gateway.sorter = sorter  # like `gateway.proc`: Python warns if a running one is dropped
    return gateway


def prefer_this_python(context: SparkContext) -> None:
    """Let workers on this machine use this interpreter, unless the user has chosen one.

    PySpark uses the first `python3` in the PATH, which may lack the packages of this one.
    """
    chosen = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")
    if not chosen and (context.master or "").startswith("local["):
        context.pythonExec = sys.executable


def ship_python_files(context: SparkContext, paths: Sequence[str]) -> None:
    """Let Spark's workers import from these files."""
    for path in paths:
        if Path(path).suffix not in _IMPORTABLE or not Path(path).is_file():
            raise ConfigError(
                "python.files", path, f"give files that exist and end in {', '.join(_IMPORTABLE)}"
            )
        context.addPyFile(path)


def _foreign_log(job_name: str) -> Path:
    """The file for the logs of Spark and other libraries: the job's log file, or one next to it."""
    from tidegate.web.log_files import remove_old, spark_log
    from tidegate.web.registry import LOG_VARIABLE, home

    given = os.environ.get(FOREIGN_LOG_VARIABLE) or os.environ.get(LOG_VARIABLE)
    if given is not None:
        return Path(given)
    directory = home() / "logs"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_old(directory)
    except OSError:
        return Path("/dev/stderr")
    return spark_log(directory, job_name, os.getpid())


@cache
def _socket_directory() -> PrivateDirectory:
    """The directory for sockets of this process."""
    return PrivateDirectory("spark")


def session_conf(
    settings: Settings, master: str, parallelism: int, log: Path, java_options: str = ""
) -> dict[str, str]:
    """Spark's settings for a session of Tidegate; the user's `spark.*` keys override them."""
    conf = {
        _OURS: "true",
        _JAVA_OPTIONS: (
            f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} "
            f"-Dtidegate.log.level={settings.spark.log_level} "
            f'"-Dtidegate.log.file={log}" {_LATE_OPTIMIZATION} {java_options}'
        ).rstrip(),
        "spark.driver.memory": f"{settings.spark.driver_memory.get_kibi_bytes()}k",
        "spark.python.task.killTimeout": "100ms",
        "spark.ui.enabled": str(settings.spark.ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        **WORKER_SETTINGS,
        **FETCH_SETTINGS,
    }
    if settings.engine.exchange is not ExchangeMode.JOBS:
        conf |= SHUFFLE_SETTINGS
        jars = settings.spark_conf.get("spark.jars")
        conf["spark.jars"] = str(JAR) if jars is None else f"{jars},{JAR}"
    if master.startswith("local"):
        conf["spark.default.parallelism"] = str(parallelism)
        conf["spark.driver.bindAddress"] = conf["spark.driver.host"] = _LOOPBACK
        # Faster than TCP, but without PySpark's secret: only this user may enter the directory.
        conf["spark.python.unix.domain.socket.enabled"] = "true"
        conf["spark.python.unix.domain.socket.dir"] = str(_socket_directory().path)
    return {**conf, **{k: v for k, v in settings.spark_conf.items() if k != "spark.jars"}}
