"""A real PostgreSQL server on loopback, of the Debian package."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from services import detached
from services.ports import free_ports
from services.unavailable import Unavailable

SUPERUSER = "tidegate"
_SERVER_USER = "postgres"
"""Who runs the server where we are root: it refuses to run as root."""
_INSTALLATIONS = Path("/usr/lib/postgresql")
_NO_CLUSTER = Path("/etc/postgresql-common/createcluster.conf")
_ADVICE = "apt-get install postgresql"


def lacks() -> str | None:
    """What is missing to run it here, and how to get it."""
    can_install = os.geteuid() == 0 and shutil.which("apt-get") is not None
    return None if _binaries() is not None or can_install else f"needs PostgreSQL: {_ADVICE}"


def start(home: Path, *, max_prepared_transactions: int = 50) -> str:
    """Start it if it does not run yet; returns a DSN of its superuser once it answers."""
    home = home.resolve()
    with detached.alone(home):
        if (known := address(home)) is not None:
            return known
        if _binaries() is None:
            _install()
        _initialise(home)
        port = _port(home)
        if port is None or detached.listens(port):
            (port,) = free_ports(1)
            (home / "port").write_text(str(port))
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": _socket_directory(home),
            "max_prepared_transactions": max_prepared_transactions,
            "fsync": "off",
            "full_page_writes": "off",
        }
        lines = (f"{key} = '{value}'\n" for key, value in settings.items())
        (home / "data" / "postgresql.auto.conf").write_text("".join(lines))
        log = home / "data" / "server.log"
        _run(home, "pg_ctl", "-w", "-t", "60", "-l", str(log), "start", shows=log)
        return _dsn(port)


def stop(home: Path, *, mode: str = "fast") -> None:
    """Stop it; ``immediate`` is as if it crashed."""
    home = home.resolve()
    with detached.alone(home):
        if _runs(home):
            _run(home, "pg_ctl", "-w", "-m", mode, "stop")


def address(home: Path) -> str | None:
    """A DSN of its superuser, None if it does not run."""
    home = home.resolve()
    port = _port(home)
    return None if port is None or not _runs(home) else _dsn(port)


def _dsn(port: int) -> str:
    return f"postgresql://{SUPERUSER}@127.0.0.1:{port}/postgres"


def _port(home: Path) -> int | None:
    try:
        return int((home / "port").read_text())
    except (OSError, ValueError):
        return None


def _runs(home: Path) -> bool:
    port = _port(home)
    return port is not None and (home / "data" / "postmaster.pid").exists() and _answers(port)


def _answers(port: int) -> bool:
    binaries = _binaries()
    if binaries is None:
        return False
    asked = [binaries / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port), "-t", "5"]
    return subprocess.run(asked, check=False).returncode == 0


def _binaries() -> Path | None:
    found = [path.parent for path in _INSTALLATIONS.glob("*/bin/initdb")]
    return max(found, key=lambda path: float(path.parent.name), default=None)


def _install() -> None:
    """Install the package, but let it make and start no server of its own."""
    if not _NO_CLUSTER.exists():
        _NO_CLUSTER.parent.mkdir(parents=True, exist_ok=True)
        _NO_CLUSTER.write_text("create_main_cluster = false\n")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    keep = "Dpkg::Options::=--force-confold"
    for command in (
        ["apt-get", "-qq", "update"],
        ["apt-get", "-qq", "install", "-y", "--no-install-recommends", "-o", keep, "postgresql"],
    ):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if _binaries() is None:
        raise Unavailable(f"{_ADVICE} failed: {done.stderr.strip()[-500:]}")


def _initialise(home: Path) -> None:
    if (home / "data" / "PG_VERSION").exists():
        return
    data = home / "data"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir()
    if (user := _user()) is not None:
        shutil.chown(data, user, user)
        home.chmod(0o755)
    _run(home, "initdb", "-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")


def _socket_directory(home: Path) -> Path:
    """Where its socket is; the path of a socket may not have more than some 100 bytes."""
    if len(str(home)) < 80:
        return home / "data"
    directory = Path(tempfile.mkdtemp(prefix="postgres-"))
    if (user := _user()) is not None:
        shutil.chown(directory, user, user)
    return directory


def _user() -> str | None:
    """Another user to run as, None to run as oneself."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(_SERVER_USER).pw_name
    except KeyError:
        raise Unavailable(
            f"PostgreSQL refuses root, and there is no user {_SERVER_USER!r}: {_ADVICE}"
        ) from None


def _run(home: Path, program: str, *arguments: str, shows: Path | None = None) -> None:
    binaries = _binaries()
    assert binaries is not None
    _call([str(binaries / program), "-D", str(home / "data"), *arguments], shows)


def _call(command: Sequence[str], shows: Path | None) -> None:
    user = _user()
    identity = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    # Output to a pipe would be held open by the server.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            command,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            check=False,
            **identity,
        )
        output.seek(0)
        said = output.read().decode(errors="replace")
    if done.returncode != 0:
        if shows is not None and shows.exists():
            said += shows.read_text(errors="replace")[-4000:]
        raise RuntimeError(f"{command[0]} failed:\n{said}")
