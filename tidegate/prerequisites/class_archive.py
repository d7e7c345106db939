"""Archives of Spark's classes, from which a Java loads them in a fraction of the time.

An archive fits one Java and one PySpark. A Java checks that itself, and starts without an archive
that does not fit. But it crashes if the archive is truncated: its size is part of its name.
"""

import fcntl
import hashlib
import importlib.util
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import distributions
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
    archive = _find(java, folders)
    return "" if archive is None else f"{_use_of(archive)} {_SILENT}"


def remove_archive(java: JavaInstallation, folders: Iterable[Path] | None = None) -> None:
    """Remove the archive for this Java, if there is one and this user may."""
    archive = _find(java, folders)
    if archive is not None:
        with suppress(OSError):
            archive.unlink()


def store_classes(java: JavaInstallation, folders: Iterable[Path] | None = None) -> Path:
    """Run a small job to see which classes it needs, and store them in the first writable folder.

    Raises:
        ExternalError: the job failed, this Java stores no classes, no folder can be written to, or
            another process is storing them.
    """
    failures = []
    for folder in wrapper_folders() if folders is None else folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not _is_protected(folder):
                failures.append(f"{folder}: other users can write to it")
                continue
            with (folder / "storing.lock").open("a") as lock:
                _lock(lock.fileno(), folder)
                return _store(_name_for(java), folder, lock.fileno())
        except OSError as error:
            failures.append(str(error))
    raise ExternalError(f"the classes could not be stored: {'; '.join(failures)}")


def _lock(file: int, folder: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ExternalError(
            f"another process is storing the classes in {folder}; wait for it to finish"
        ) from None


def _find(java: JavaInstallation, folders: Iterable[Path] | None) -> Path | None:
    pattern = f"{_name_for(java)}-*.jsa"
    for folder in wrapper_folders() if folders is None else folders:
        with suppress(OSError):
            if _is_protected(folder):
                for archive in filter(_is_usable, folder.glob(pattern)):
                    return archive
    return None


def _is_protected(folder: Path) -> bool:
    """Whether no other user can put an archive there: a Java runs what is in it."""
    found = folder.stat()
    return found.st_uid in _trusted_users() and not found.st_mode & stat.S_IWOTH


def _is_usable(archive: Path) -> bool:
    found = archive.lstat()
    return (
        stat.S_ISREG(found.st_mode)
        and found.st_uid in _trusted_users()
        and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        and archive.stem.endswith(f"-{found.st_size}")
        and os.access(archive, os.R_OK)
    )


def _trusted_users() -> set[int]:
    return {0, os.getuid(), Path(sys.prefix).stat().st_uid}


def _store(name: str, folder: Path, lock: int) -> Path:
    """Store an archive that a Java has used, and remove older ones and what killed processes left.

    The caller and the job hold the lock.
    """
    for abandoned in folder.glob("tmp*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as directory:
        unfinished = Path(directory) / "spark.jsa"
        _run_sample(f'"-XX:ArchiveClassesAtExit={unfinished}"', unfinished, lock)
        # Its Java may have been killed while it wrote.
        verify = f"{_use_of(unfinished)} -Xshare:on -XX:+VerifySharedSpaces"
        _run_sample(verify, unfinished, lock)
        unfinished.chmod(0o644)
        with unfinished.open("rb") as file:
            os.fsync(file)
            size = os.fstat(file.fileno()).st_size
        archive = unfinished.replace(folder / f"{name}-{size}.jsa")
    for other in set(folder.glob(f"{name}-*.jsa")) - {archive}:
        other.unlink(missing_ok=True)
    return archive


def _use_of(archive: Path) -> str:
    return f'"-XX:SharedArchiveFile={archive}"'


def _run_sample(java_options: str, archive: Path, lock: int) -> None:
    """Run the sample, after which there has to be an archive."""
    directory = archive.parent
    program = directory / "sample.py"
    program.write_text(_SAMPLE, encoding="utf-8")
    options = f"spark.driver.extraJavaOptions={java_options} {_SILENT}"
    with subprocess.Popen(
        [sys.executable, "-m", "tidegate", "run", "-D", options, str(program)],
        env=_environment(directory),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        process_group=0,
        pass_fds=[lock],
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
        if not name.startswith("TIDEGATE_") and name not in ("FLINK_CONF_DIR", "SPARK_CONF_DIR")
    }
    return {**kept, "TIDEGATE_HOME": str(home), "SPARK_LOCAL_DIRS": str(home)}


def _name_for(java: JavaInstallation) -> str:
    package = importlib.util.find_spec("pyspark")
    place = None if package is None else package.origin
    versions = [each.version for each in distributions(name="pyspark")]
    facts = (java.home, java.version, place, versions, os.environ.get("SPARK_HOME"))
    return f"spark-{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}"
