"""Stores Spark's classes in .venv/spark.jsa, so that the JVMs of the tests start in half the time.

A JVM that cannot use the archive, such as a newer one, starts as it does without. Spark runs once
to show which classes it needs; nothing happens if the archive is already there.
"""

import os
import subprocess
import sys
from pathlib import Path

ARCHIVE = Path(__file__).resolve().parent.parent / ".venv" / "spark.jsa"
SILENT = "-Xlog:disable"
"""What a JVM has to say of an archive goes to standard output, where Spark looks for answers."""


def main() -> int:
    if ARCHIVE.exists():
        return 0
    print("Storing Spark's classes for the JVMs of the tests ...", flush=True)
    unfinished = ARCHIVE.with_suffix(".new")
    options = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit={unfinished}"
    environment = {**os.environ, "JAVA_TOOL_OPTIONS": f"{options} {SILENT}"}
    subprocess.run(
        [sys.executable, __file__, "show"], env=environment, capture_output=True, check=False
    )
    if unfinished.exists():
        unfinished.replace(ARCHIVE)
    else:
        print("This Java stores none; the tests take a little longer.")
    return 0


def show() -> int:
    """Use as much of Spark as most tests do."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    pairs = spark.sparkContext.parallelize([(1, 2), (2, 3)], 2)
    frame = spark.createDataFrame(pairs.reduceByKey(max).collect(), "k int, v int")
    frame.groupBy("k").sum("v").collect()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(show() if "show" in sys.argv[1:] else main())
