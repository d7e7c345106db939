"""A real S3 server on loopback: SeaweedFS."""

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from services.ports import free_ports

ACCESS_KEY = "tidegate"
SECRET_KEY = "tidegate-secret"


@dataclass(frozen=True)
class S3Server:
    port: int

    def client(self):
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{self.port}",
            region_name="us-east-1",
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
        )

    def url(self, path: str) -> str:
        return (
            f"s3://{ACCESS_KEY}:{SECRET_KEY}@{path}"
            f"?endpoint_override=127.0.0.1:{self.port}&scheme=http&region=us-east-1"
        )


def executable() -> str | None:
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


@contextlib.contextmanager
def running() -> Iterator[S3Server]:
    """The server, from when it answers until the block is left."""
    weed = executable()
    assert weed is not None
    with tempfile.TemporaryDirectory(prefix="seaweed-") as parent:
        master, volume, filer, s3 = free_ports(4)
        directory = Path(parent)
        (directory / "s3.json").write_text(json.dumps(_IDENTITIES))
        (directory / "data").mkdir()
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(
                [
                    weed,
                    "server",
                    f"-dir={directory / 'data'}",
                    "-ip=127.0.0.1",
                    "-ip.bind=127.0.0.1",
                    f"-master.port={master}",
                    f"-volume.port={volume}",
                    "-filer",
                    f"-filer.port={filer}",
                    "-s3",
                    f"-s3.port={s3}",
                    f"-s3.config={directory / 's3.json'}",
                    "-s3.port.iceberg=0",
                    "-s3.port.lance=0",
                    "-volume.max=20",
                    "-master.volumeSizeLimitMB=256",
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=directory,
            )
        try:
            server = S3Server(s3)
            _wait_until_it_answers(server, process, directory / "log")
            yield server
        finally:
            process.kill()  # asked to end, it takes its time; its data is thrown away anyway
            process.wait()


_IDENTITIES = {
    "identities": [
        {
            "name": "tidegate",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "List", "Tagging", "Write"],
        },
        {
            "name": "reader",
            "credentials": [{"accessKey": "reader", "secretKey": "reader-secret"}],
            "actions": ["Read", "List"],
        },
    ]
}


def _wait_until_it_answers(server: S3Server, process: subprocess.Popen, log: Path) -> None:
    client = server.client()
    deadline = time.monotonic() + 60
    while True:
        try:
            client.create_bucket(Bucket="ready")
            client.put_object(Bucket="ready", Key="ready", Body=b"")
        except Exception:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(log.read_text(errors="replace")[-4000:]) from None
            time.sleep(0.2)
        else:
            return
