"""Runs many small steps and prints, now and then, what the processes of the job hold."""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from tidegate.common import Configuration, Types
from tidegate.connectors.datagen import DataGeneratorSource
from tidegate.datastream import StreamExecutionEnvironment
from tidegate.exchange.pipelined.requirements import session_settings

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


def role_of(process: psutil.Process) -> str:
    if process.pid == os.getpid():
        return "driver"
    return "jvm" if "java" in process.name() else "python"


def sample(steps: int, local: Path) -> dict[str, object]:
    files = [path for path in local.rglob("*") if path.is_file()]
    found: dict[str, object] = {"steps": steps, "shuffle_files": len(files)}
    me = psutil.Process()
    processes = [me, *me.children(recursive=True)]
    for role in ("driver", "jvm", "python"):
        chosen = [process for process in processes if role_of(process) == role]
        found[role] = {
            "processes": len(chosen),
            "megabytes": sum(process.memory_info().rss for process in chosen) >> 20,
            "threads": sum(process.num_threads() for process in chosen),
            "files": sum(process.num_fds() for process in chosen),
        }
    return found


def main(exchange: str, total: int, every: int, rate: float | None = None) -> None:
    local = Path(tempfile.mkdtemp(prefix="tidegate-soak-"))
    conf = {
        "spark.local.dir": str(local),
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.unix.domain.socket.enabled": "true",
        **session_settings(),
    }
    builder = SparkSession.builder.master("local[8]")
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    settings = Configuration()
    settings.set_string("tidegate.exchange", exchange)
    settings.set_string("execution.checkpointing.interval", "1 s")
    # One record a slice: the number of steps matters here, not what they carry.
    settings.set_string("tidegate.step.max-records", "1")
    env = StreamExecutionEnvironment.get_execution_environment(settings, spark=spark)
    env.set_parallelism(2)
    source = DataGeneratorSource(lambda i: (f"k{i % 7}", 1), type_info=PAIR, rate=rate)
    stream = env.from_source(source, source_name="numbers")
    stream.key_by(lambda pair: pair[0]).sum(1).add_sink(lambda pair: None)
    job = env.execute_async("soak")
    due = every
    while due <= total:
        steps = job.get_progress().steps
        if steps >= due:
            print(json.dumps(sample(steps, local)), flush=True)
            due += every
        if job.get_job_status().result().is_terminal:
            job.wait()
        time.sleep(0.2)
    job.cancel().result()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
