"""A real HDFS of one node on loopback, from Maven's artifacts."""

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from services import maven
from services.maven import Artifact
from services.ports import free_ports

HADOOP = "3.4.1"
JACKSON = "2.15.4"
ARTIFACTS = (
    Artifact("org.apache.hadoop", "hadoop-common", HADOOP),
    Artifact("org.apache.hadoop", "hadoop-hdfs", HADOOP),
    Artifact("org.apache.hadoop", "hadoop-hdfs-client", HADOOP),
    Artifact("com.fasterxml.jackson.core", "jackson-core", JACKSON),
    Artifact("com.fasterxml.jackson.core", "jackson-databind", JACKSON),
    Artifact("com.fasterxml.jackson.core", "jackson-annotations", JACKSON),
)
SERVERS = "org.apache.hadoop.hdfs.server"


def lacks() -> str | None:
    """What is missing to run it here."""
    return maven.lacks()


@contextlib.contextmanager
def running(home: Path) -> Iterator[str]:
    """The URL of its root, from when it takes files until the block is left.

    Its jars are kept in ``home``, its files are not.
    """
    libs = maven.fetch(ARTIFACTS, home.resolve())
    with tempfile.TemporaryDirectory(prefix="hdfs-") as parent, contextlib.ExitStack() as stack:
        directory = Path(parent)
        url = _configure(directory)
        _run(directory, libs, "namenode.NameNode", "-format", "-force").wait(60)
        for server in ("namenode.NameNode", "datanode.DataNode"):
            process = _run(directory, libs, server)
            stack.callback(process.wait)
            stack.callback(process.kill)
        _wait_until_it_takes_files(url, directory)
        yield url


def _configure(directory: Path) -> str:
    rpc, http, data, data_http, data_ipc = free_ports(5)
    conf = directory / "conf"
    for page in ("hdfs", "datanode", "static"):
        (conf / "webapps" / page).mkdir(parents=True)  # the servers want pages, if only empty ones
    _write_settings(
        conf / "core-site.xml",
        {"fs.defaultFS": f"hdfs://127.0.0.1:{rpc}", "hadoop.tmp.dir": str(directory / "data")},
    )
    _write_settings(
        conf / "hdfs-site.xml",
        {
            "dfs.replication": "1",
            "dfs.namenode.rpc-address": f"127.0.0.1:{rpc}",
            "dfs.namenode.http-address": f"127.0.0.1:{http}",
            "dfs.namenode.safemode.extension": "0",
            "dfs.datanode.address": f"127.0.0.1:{data}",
            "dfs.datanode.http.address": f"127.0.0.1:{data_http}",
            "dfs.datanode.ipc.address": f"127.0.0.1:{data_ipc}",
        },
    )
    return f"hdfs://127.0.0.1:{rpc}"


def _write_settings(file: Path, settings: dict[str, str]) -> None:
    properties = "".join(
        f"<property><name>{key}</name><value>{value}</value></property>"
        for key, value in settings.items()
    )
    file.write_text(f"<configuration>{properties}</configuration>")


def _run(directory: Path, libs: Path, server: str, *arguments: str) -> subprocess.Popen:
    with (directory / f"{server}.log").open("ab") as log:
        return subprocess.Popen(
            [maven.java(), "-Xmx256m", "-cp", f"conf:{libs}/*", f"{SERVERS}.{server}", *arguments],
            cwd=directory,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _wait_until_it_takes_files(url: str, directory: Path) -> None:
    from hdfs_native import Client

    client = Client(url)
    deadline = time.monotonic() + 60
    while True:
        try:
            with client.create("/ready") as file:
                file.write(b"ready")
        except Exception:
            if time.monotonic() > deadline:
                logs = [
                    file.read_text(errors="replace")[-2000:] for file in directory.glob("*.log")
                ]
                raise RuntimeError("\n".join(logs)) from None
            with contextlib.suppress(Exception):
                client.delete("/ready", False)
            time.sleep(0.3)
        else:
            return
