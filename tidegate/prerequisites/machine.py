"""What the machine provides: cores, memory, a temporary directory, local connections."""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tidegate.prerequisites.check import Check, missing, ok, warning

GIGABYTE = 10**9
_ADVISED_MEMORY = 2 * GIGABYTE
_ADVISED_DISK = 1 * GIGABYTE
_CGROUP = Path("/sys/fs/cgroup")
_PROC = Path("/proc")


def check_cores() -> Check:
    cores = usable_cores()
    if cores < 2:
        advice = "one slot and its steps share the core: expect it to be slow"
        return warning("cores", str(cores), advice)
    return ok("cores", str(cores))


def check_memory(cgroup: Path = _CGROUP) -> Check:
    """Report the memory of the machine, or of the container if that is less."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for group in (cgroup, cgroup / "memory"):
        memory = min(memory, _cgroup_memory_limit(group) or memory)
    found = f"{memory / GIGABYTE:.1f} GB"
    if memory < _ADVISED_MEMORY:
        return warning("memory", found, "Spark's driver alone takes about 1 GB: give it 2 GB")
    return ok("memory", found)


def check_temporary_directory() -> Check:
    name = "temporary files"
    try:
        with tempfile.NamedTemporaryFile(prefix="tidegate-") as file:
            file.write(b"tidegate")
            file.flush()
        directory = tempfile.gettempdir()
        free = shutil.disk_usage(directory).free
    except OSError as error:
        return missing(name, str(error), "set TMPDIR to a directory that you may write to")
    found = f"{directory}, {free / GIGABYTE:.1f} GB free"
    if free < _ADVISED_DISK:
        advice = "Spark's shuffle writes there: free some space or set TMPDIR elsewhere"
        return warning(name, found, advice)
    return ok(name, found)


def check_loopback(host: str = "127.0.0.1") -> Check:
    """Connect to this machine, as driver, Spark and slots of a local master do."""
    try:
        with socket.create_server((host, 0)) as server:
            address = server.getsockname()
            with socket.create_connection(address, timeout=5), server.accept()[0]:
                return ok("loopback", f"connected to {host}")
    except OSError as error:
        advice = "allow local connections: bring up the loopback interface, check the firewall"
        return missing("loopback", f"{host}: {error}", advice)


def check_host_name(host_name: str | None = None) -> Check:
    """Look up this machine's name, as Spark's driver does when it starts."""
    if host_name is None:
        host_name = socket.gethostname()
    if local_ip := os.environ.get("SPARK_LOCAL_IP"):
        return ok("host name", f"SPARK_LOCAL_IP is {local_ip}")
    try:
        return ok("host name", f"{host_name} is {socket.gethostbyname(host_name)}")
    except OSError as error:
        advice = "set SPARK_LOCAL_IP=127.0.0.1, or add the name to /etc/hosts"
        return warning("host name", f"{host_name}: {error}", advice)


def check_unix_sockets(directory: Path | None = None) -> Check:
    """Bind a socket where slots would: paths have a limit of about 100 bytes."""
    name = "Unix sockets"
    advice = "TCP is used instead, which is slower; a short TMPDIR (like /tmp) may help"
    if not hasattr(socket, "AF_UNIX"):
        return warning(name, "not supported by this system", advice)
    try:
        with tempfile.TemporaryDirectory(prefix="tidegate-", dir=directory) as folder:
            path = Path(folder) / "slot-0.socket"
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
                server.bind(str(path))
    except OSError as error:
        return warning(name, str(error), advice)
    return ok(name, f"usable in {path.parent.parent}")


def usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory(proc: Path = _PROC, cgroup: Path = _CGROUP) -> int | None:
    """The bytes that a new process can use without others being ended; None: unknown."""
    try:
        available = 1024 * _fields(proc / "meminfo")["MemAvailable:"]
        for each in _cgroups(proc, cgroup):
            limit = _cgroup_memory_limit(each)
            if limit is not None:
                available = min(available, limit - _cgroup_memory_use(each))
    except (OSError, KeyError, ValueError):
        return None
    return available


def _cgroups(proc: Path, root: Path) -> Iterator[Path]:
    """The groups of this process, in both versions of groups, and all groups around them."""
    for line in (proc / "self" / "cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" or "memory" in controllers.split(","):
            top = root if number == "0" else root / "memory"
            group = Path(path.lstrip("/"))
            yield from (top / group, *(top / parent for parent in group.parents))


def _cgroup_memory_limit(cgroup: Path) -> int | None:
    for name in ("memory.max", "memory.limit_in_bytes"):
        with suppress(OSError):
            text = (cgroup / name).read_text().strip()
            return int(text) if text.isdigit() else None
    return None


def _cgroup_memory_use(cgroup: Path) -> int:
    """Without what Linux has only cached of files, and frees when memory is short."""
    stat = _fields(cgroup / "memory.stat")
    if (current := cgroup / "memory.current").exists():
        return int(current.read_text()) - stat["inactive_file"]
    return int((cgroup / "memory.usage_in_bytes").read_text()) - stat["total_inactive_file"]


def _fields(file: Path) -> dict[str, int]:
    """A file of lines that begin with a name and a number."""
    lines = (line.split() for line in file.read_text().splitlines())
    return {name: int(number) for name, number, *_ in lines}
