"""A real HDFS of one node on loopback, from Maven's artifacts."""

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from services.ports import free_ports

HADOOP = "3.4.1"
JACKSON = "2.15.4"
ARTIFACTS = [
    ("org.apache.hadoop", "hadoop-common", HADOOP),
    ("org.apache.hadoop", "hadoop-hdfs", HADOOP),
    ("org.apache.hadoop", "hadoop-hdfs-client", HADOOP),
    ("com.fasterxml.jackson.core", "jackson-core", JACKSON),
    ("com.fasterxml.jackson.core", "jackson-databind", JACKSON),
    ("com.fasterxml.jackson.core", "jackson-annotations", JACKSON),
]
SERVERS = "org.apache.hadoop.hdfs.server"


def lacks() -> str | None:
    """What is missing to run it here."""
    missing = [command for command in ("java", "mvn") if shutil.which(command) is None]
    return f"needs {' and '.join(missing)}" if missing else None


@contextlib.contextmanager
def running() -> Iterator[str]:
    """The URL of its root, from when it takes files until the block is left."""
    with tempfile.TemporaryDirectory(prefix="hdfs-") as parent, contextlib.ExitStack() as stack:
        directory = Path(parent)
        _fetch_jars(directory)
        url = _configure(directory)
        _run(directory, "namenode.NameNode", "-format", "-force").wait(60)
        for server in ("namenode.NameNode", "datanode.DataNode"):
            process = _run(directory, server)
            stack.callback(process.wait)
            stack.callback(process.kill)
        _wait_until_it_takes_files(url, directory)
        yield url


def _fetch_jars(directory: Path) -> None:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, name, version in ARTIFACTS
    )
    (directory / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>tests</groupId><artifactId>hdfs</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
    subprocess.run(
        [
            "mvn",
            "-q",
            "-B",
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            "-DoutputDirectory=libs",
        ],
        cwd=directory,
        check=True,
        capture_output=True,
        timeout=280,
    )


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


def _run(directory: Path, server: str, *arguments: str) -> subprocess.Popen:
    with (directory / f"{server}.log").open("ab") as log:
        return subprocess.Popen(
            ["java", "-Xmx256m", "-cp", "conf:libs/*", f"{SERVERS}.{server}", *arguments],
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
