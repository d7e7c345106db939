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
from tidegate.exchange.pipelined.requirements import JAR, SHUFFLE_SETTINGS, WORKER_SETTINGS
from tidegate.prerequisites.java import require_java
from tidegate.storage.private_directory import PrivateDirectory

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

_LOOPBACK = "127.0.0.1"
_starting = threading.Lock()
_LOGGING = Path(__file__).with_name("spark-log4j2.properties")
_IMPORTABLE = (".py", ".zip", ".egg")
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


def active_session() -> SparkSession | None:
    """The classic session that this process already has, if any."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:
        return None
    return SparkSession.builder.getOrCreate()


def is_ours(spark: SparkSession) -> bool:
    return spark.sparkContext.getConf().get(_OURS) is not None


def task_slots(spark: SparkSession) -> int:
    """The number of concurrent tasks that Spark can currently run."""
    return spark.sparkContext.defaultParallelism


def is_active(spark: SparkSession) -> bool:
    """Whether the session has not been stopped."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context is spark.sparkContext


def make_session(settings: Settings, parallelism: int, tasks: int = 0) -> SparkSession:
    """Start Spark for a job of the given parallelism; replaces a session with too few tasks.

    A local master runs at least `tasks` tasks at once: most of them only wait for data.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    narrow = active_session()
    if narrow is not None:
        narrow.stop()
    os.environ["JAVA_HOME"] = str(require_java().home)
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
        **session_conf(settings, master, 2 * parallelism, log),
    }
    builder = SparkSession.builder
    for key, value in conf.items():
        builder = builder.config(key, value)
    # PySpark puts the settings it starts Java with on a command line that all users can read.
    shown = {key: value for key, value in conf.items() if not is_secret(key)}
    with held_interrupts():
        with _starting:  # two threads with their first jobs share one Java
            if SparkContext._gateway is None:
                gateway = start_java(SparkConf().setAll(list(shown.items())), log)
                SparkContext._ensure_initialized(gateway=gateway)
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel(settings.spark.log_level)
    return spark


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


def prefer_this_python(spark: SparkSession) -> None:
    """Let workers on this machine use this interpreter, unless the user has chosen one.

    PySpark uses the first `python3` in the PATH, which may lack the packages of this one.
    """
    context = spark.sparkContext
    chosen = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")
    if not chosen and (context.master or "").startswith("local["):
        context.pythonExec = sys.executable


def ship_python_files(spark: SparkSession, paths: Sequence[str]) -> None:
    """Let Spark's workers import from these files."""
    for path in paths:
        if Path(path).suffix not in _IMPORTABLE or not Path(path).is_file():
            raise ConfigError(
                "python.files", path, f"give files that exist and end in {', '.join(_IMPORTABLE)}"
            )
        spark.sparkContext.addPyFile(path)


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


def session_conf(settings: Settings, master: str, parallelism: int, log: Path) -> dict[str, str]:
    """Spark's settings for a session of Tidegate; the user's `spark.*` keys override them."""
    conf = {
        _OURS: "true",
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} "
            f"-Dtidegate.log.level={settings.spark.log_level} "
            f'"-Dtidegate.log.file={log}"'
        ),
        "spark.driver.memory": f"{settings.spark.driver_memory.get_kibi_bytes()}k",
        "spark.python.task.killTimeout": "100ms",
        "spark.ui.enabled": str(settings.spark.ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        **WORKER_SETTINGS,
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
