"""A real Kafka broker of one node on loopback, in KRaft mode, from Maven's artifacts."""

import json
import shutil
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from services import detached, maven
from services.maven import Artifact
from services.ports import free_ports

KAFKA = "4.1.0"
LOG4J = "2.24.3"
ARTIFACTS = (
    Artifact("org.apache.kafka", "kafka_2.13", KAFKA),
    Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J),
    Artifact("org.apache.logging.log4j", "log4j-core", LOG4J),
)
USER = "tidegate"
PASSWORD = "tidegate-secret"
_START_TIMEOUT_SECONDS = 180


@dataclass(frozen=True)
class Ports:
    plain: int
    secured: int
    controller: int

    @property
    def free(self) -> bool:
        return not any(map(detached.listens, asdict(self).values()))


def lacks() -> str | None:
    """What is missing to run it here, and how to get it."""
    return maven.lacks()


def start(home: Path) -> str:
    """Start it if it does not run yet; returns its bootstrap servers once it answers."""
    home = home.resolve()
    with detached.alone(home):
        if (known := address(home)) is not None:
            return known
        libs = maven.fetch(ARTIFACTS, home)
        ports = _configure(home)
        _format(home, libs)
        detached.spawn(_java(home, libs, "-Xmx512m", "kafka.Kafka", "server.properties"), home)
        _wait_until_it_answers(home, ports.plain)
        return f"127.0.0.1:{ports.plain}"


def stop(home: Path) -> None:
    home = home.resolve()
    with detached.alone(home):
        detached.end(home)


def address(home: Path) -> str | None:
    """Its bootstrap servers, None if it does not run."""
    return _listener(home.resolve(), "plain")


def secured_address(home: Path) -> str | None:
    """Its listener that wants SASL/PLAIN with ``USER`` and ``PASSWORD``; None if not running."""
    return _listener(home.resolve(), "secured")


def _listener(home: Path, name: str) -> str | None:
    ports = _ports(home)
    if ports is None or detached.running(home) is None or not detached.listens(ports.plain):
        return None
    return f"127.0.0.1:{asdict(ports)[name]}"


def _ports(home: Path) -> Ports | None:
    try:
        return Ports(**json.loads((home / "ports.json").read_text()))
    except OSError:
        return None


def _configure(home: Path) -> Ports:
    ports = _ports(home)
    if ports is None or not ports.free:
        ports = Ports(*free_ports(3))
        (home / "ports.json").write_text(json.dumps(asdict(ports)))
    (home / "log4j2.properties").write_text(_LOGGING)
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{ports.plain},SECURED://127.0.0.1:{ports.secured},"
        f"CONTROLLER://127.0.0.1:{ports.controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{ports.plain},"
        f"SECURED://127.0.0.1:{ports.secured}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURED:SASL_PLAINTEXT,"
        "CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{ports.controller}",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secured.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'user_{USER}="{PASSWORD}";'
        ),
        "log.dirs": str(home / "data"),
        "num.network.threads": "2",
        "num.io.threads": "2",
        "log.cleaner.dedupe.buffer.size": "8388608",
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        # Transactions that time out are aborted at once, not some ten seconds later.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    }
    lines = (f"{key}={value}\n" for key, value in settings.items())
    (home / "server.properties").write_text("".join(lines))
    return ports


def _format(home: Path, libs: Path) -> None:
    if (home / "data" / "meta.properties").exists():
        return
    shutil.rmtree(home / "data", ignore_errors=True)
    tool = "kafka.tools.StorageTool"
    asked = _java(home, libs, tool, "random-uuid")
    cluster = subprocess.run(asked, cwd=home, check=True, capture_output=True, text=True).stdout
    subprocess.run(
        _java(home, libs, tool, "format", "-t", cluster.strip(), "-c", "server.properties"),
        cwd=home,
        check=True,
        capture_output=True,
    )


def _java(home: Path, libs: Path, *arguments: str) -> list[str]:
    logging = f"-Dlog4j2.configurationFile={home / 'log4j2.properties'}"
    return [maven.java(), logging, "-cp", f"{libs}/*", *arguments]


def _wait_until_it_answers(home: Path, port: int) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_SECONDS
    while not (detached.listens(port) and "Kafka Server started" in _log(home)):
        has_ended = detached.running(home) is None
        if has_ended or time.monotonic() > deadline:
            detached.end(home)
            what = "ended" if has_ended else f"does not answer after {_START_TIMEOUT_SECONDS} s"
            raise RuntimeError(f"the broker {what}:\n{_log(home)[-4000:]}")
        time.sleep(0.2)


def _log(home: Path) -> str:
    return (home / "log").read_text(errors="replace")


_LOGGING = """\
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %m (%c{1})%n%throwable{10}
rootLogger.level = WARN
rootLogger.appenderRef.console.ref = console
logger.server.name = kafka.server.KafkaRaftServer
logger.server.level = INFO
"""
