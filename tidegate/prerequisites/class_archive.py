"""Archives of Spark's classes, from which a Java loads them in a fraction of the time.

An archive fits one Java and one PySpark. A Java checks that itself, and starts without an archive
that does not fit.
"""

import hashlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from tidegate.core.errors import ExternalError
from tidegate.prerequisites.java import JavaInstallation
from tidegate.prerequisites.java_wrapper import wrapper_folders

_SILENT = "-Xlog:disable -Xlog:all=warning:stderr"
"""What a Java says of an archive goes to standard output by default, where programs print."""
_SAMPLE = """\
from tidegate import StreamExecutionEnvironment, Types

env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
numbers = env.from_sequence(1, 1000).map(lambda n: (n % 10, n), Types.TUPLE([Types.LONG()] * 2))
numbers.key_by(lambda pair: pair[0]).sum(1).print()
env.execute("classes of Spark")
"""
"""Uses what most jobs use of Spark."""


def archive_options(java: JavaInstallation, folders: Iterable[Path] | None = None) -> str:
    """The options with which this Java uses an archive; none if there is no archive for it."""
    name = _name_for(java)
    for folder in wrapper_folders() if folders is None else folders:
        if (archive := folder / name).is_file():
            return f'"-XX:SharedArchiveFile={archive}" {_SILENT}'
    return ""


def store_classes(java: JavaInstallation, folders: Iterable[Path] | None = None) -> Path:
    """Run a small job to see which classes it needs, and store them in the first writable folder.

    Raises:
        ExternalError: the job failed, this Java stores no classes, or no folder can be written to.
    """
    name, failures = _name_for(java), []
    for folder in wrapper_folders() if folders is None else folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as directory:
                unfinished = Path(directory) / name
                _record(unfinished, Path(directory))
                return unfinished.replace(folder / name)
        except OSError as error:
            failures.append(str(error))
    raise ExternalError(f"the classes could not be stored: {'; '.join(failures)}")


def _record(archive: Path, directory: Path) -> None:
    program = directory / "sample.py"
    program.write_text(_SAMPLE, encoding="utf-8")
    options = f'spark.driver.extraJavaOptions="-XX:ArchiveClassesAtExit={archive}" {_SILENT}'
    with subprocess.Popen(
        [sys.executable, "-m", "tidegate", "run", "-D", options, str(program)],
        env=_environment(directory),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        process_group=0,
    ) as job:
        try:
            # The Java holds the pipe until it has written the archive, some time after the job.
            said, _ = job.communicate()
        except BaseException:
            os.killpg(job.pid, signal.SIGKILL)
            raise
    if job.returncode != 0 or not archive.is_file():
        said = "\n".join(said.splitlines()[-20:])
        raise ExternalError(f"no classes were stored; a small job of Spark said:\n{said}")


def _environment(home: Path) -> dict[str, str]:
    """Keeps the job from being listed among those of the user, and from using their settings."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("TIDEGATE_") and name != "FLINK_CONF_DIR"
    }
    return {**kept, "TIDEGATE_HOME": str(home), "SPARK_LOCAL_DIRS": str(home)}


def _name_for(java: JavaInstallation) -> str:
    package = importlib.util.find_spec("pyspark")
    place = None if package is None else package.origin
    spark = None if package is None else version("pyspark")
    facts = f"{java.home}\n{java.version}\n{place}\n{spark}"
    return f"spark-{hashlib.sha256(facts.encode()).hexdigest()[:12]}.jsa"
