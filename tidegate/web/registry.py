"""The jobs of this user on this machine: a file each, which its driver writes and locks.

The kernel releases the lock of a dead driver, so a file that says "running" but is not locked
belongs to a lost driver, even if its process id is in use again. Imports little besides the
standard library, so that commands start quickly.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
import socket
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tidegate.storage.conformity import check_types

_log = logging.getLogger("tidegate.registry")
HOME_VARIABLE = "TIDEGATE_HOME"
LAUNCH_VARIABLE = "TIDEGATE_LAUNCH"
"""Set by a process that starts a driver, to recognize its job."""
COMMAND_VARIABLE = "TIDEGATE_COMMAND"
"""Set by `tidegate run` to its command line, as JSON."""
LOG_VARIABLE = "TIDEGATE_LOG"
"""Set to the file with the driver's output."""
LOST = "LOST"
"""The state of a job whose driver died without recording how the job ended."""
_UNREADABLE = (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError)
"""Errors when reading a file that no driver has written."""
_KEPT = 20
"""How many ended jobs are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job, as recorded by its driver."""

    job_id: str
    name: str
    pid: int
    started_at: float
    application_id: str | None = None
    """The id of the Spark application."""
    url: str | None = None
    """The URL of the REST API; None: it is not served."""
    token: str | None = None
    """The token of the job's owner."""
    log: str | None = None
    launch: str | None = None
    checkpoint_directory: str | None = None
    """The job's own directory; None: it writes no checkpoints to files."""
    savepoint_directory: str | None = None
    """The default directory for savepoints."""
    command: Mapping[str, Any] | None = None
    """How `tidegate run` was called: program, arguments, settings, directory; without secrets."""
    host: str = field(default_factory=socket.gethostname)
    state: str | None = None
    """How the job ended; None while its driver runs it."""
    ended_at: float | None = None
    failure: str | None = None
    operations: Mapping[str, Any] = field(default_factory=dict)
    """The outcomes of requested savepoints, by trigger id."""

    @property
    def is_running(self) -> bool:
        return self.state is None


def home() -> Path:
    """The user's directory for files that outlive a session, such as logs."""
    chosen = os.environ.get(HOME_VARIABLE)
    return Path(chosen) if chosen else Path.home() / ".tidegate"


def directories() -> list[Path]:
    """Where jobs are recorded; the first is for new ones.

    Some sessions have a runtime directory and others do not, so the others are read as well.
    """
    if os.environ.get(HOME_VARIABLE):
        return [home() / "jobs"]
    found = [home() / "jobs"]
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    if os.access(runtime, os.W_OK):
        found.insert(0, Path(runtime, "tidegate", "jobs"))
    return found


def token_file() -> Path:
    """The file with the token that authenticates this user."""
    return directories()[0] / "token"


def owner_token() -> str:
    """The token of this user, created on first use.

    Raises:
        OSError: it cannot be stored privately.
    """
    path = token_file()
    _make_private(path.parent)
    draft = path.with_name(f".token-{secrets.token_hex(4)}")
    file = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(file, "w") as writer:
            writer.write(secrets.token_urlsafe(24))
        if not _is_private(path):
            draft.replace(path)
        return path.read_text()
    finally:
        draft.unlink(missing_ok=True)


def _make_private(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)


def _is_private(path: Path) -> bool:
    """Whether the file exists and only we could access it."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid()
    return is_ours and not found.st_mode & 0o077 and found.st_size > 0


class Registration:
    """The file of a job of this process."""

    def __init__(self, record: JobRecord) -> None:
        self.record = record
        directory = directories()[0]
        _make_private(directory)
        self._path = directory / f"{record.job_id}.json"
        self._file = self._write(record)
        _forget_old_ones(directory)

    def end(self, record: JobRecord) -> None:
        """Record the end of the job, unless another driver has taken it over.

        The file is kept for a while.
        """
        if not self._is_replaced():
            os.close(self._write(record))
        os.close(self._file)
        self.record = record

    def _is_replaced(self) -> bool:
        """Whether another driver has taken over the job, and registered it."""
        try:
            return not os.path.samestat(self._path.stat(), os.fstat(self._file))
        except FileNotFoundError:
            return False

    def _write(self, record: JobRecord) -> int:
        """Replace the file with a complete and locked one; returns the descriptor that locks it."""
        draft = self._path.with_name(f".{self._path.stem}-{secrets.token_hex(4)}")
        file = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            _lock(file)
            os.write(file, json.dumps(asdict(record)).encode())
            draft.rename(self._path)
        except BaseException:
            os.close(file)
            draft.unlink(missing_ok=True)
            raise
        return file


def known_jobs() -> list[JobRecord]:
    """All running and recently ended jobs of this machine, latest first."""
    found = [record for directory in directories() for _, record in _records(directory)]
    return sorted(found, key=lambda record: -record.started_at)


def running_jobs() -> list[JobRecord]:
    """The jobs whose driver is running."""
    return [record for record in known_jobs() if record.is_running]


def namesake_warning(name: str, other: JobRecord) -> str:
    """What a second job of this name means for the user, as a sentence."""
    return (
        f"another job named {name!r} already runs, with id {other.job_id}: commands need the id, "
        "and `latest` cannot tell the two apart; rename one of them"
    )


def _records(directory: Path) -> Iterator[tuple[Path, JobRecord]]:
    for path in directory.glob("*.json"):
        try:
            with path.open("rb") as file:
                record = _decoded(json.load(file))
                if record.is_running and not _is_owned(file.fileno(), record.pid):
                    record = replace(
                        record, state=LOST, ended_at=os.fstat(file.fileno()).st_mtime, token=None
                    )
        except _UNREADABLE as error:
            _log.debug("%s is skipped: %s", path, error)
            continue
        if record.host == socket.gethostname():
            yield path, record


def _decoded(document: dict[str, Any]) -> JobRecord:
    """Decode a record; fields of newer versions are ignored."""
    known = {each.name for each in fields(JobRecord)}
    record = JobRecord(**{key: value for key, value in document.items() if key in known})
    check_types(record)
    return record


def _lock(file: int) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        _log.debug("this file system does not support locks: %s", error)


def _is_owned(file: int, pid: int) -> bool:
    """Whether the driver that wrote the file is alive."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _forget_old_ones(directory: Path) -> None:
    ended = [(path, record) for path, record in _records(directory) if not record.is_running]
    ended.sort(key=lambda each: -(each[1].ended_at or 0.0))
    for path, _ in ended[_KEPT:]:
        path.unlink(missing_ok=True)
