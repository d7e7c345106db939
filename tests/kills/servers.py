"""Separate Kafka and PostgreSQL servers, because the campaign kills them."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from services import detached, kafka, postgres
from tests.kills.programs import SPLITS
from tests.programs import wait_until

_SECONDS = 120


class Servers:
    def __init__(self, home: Path) -> None:
        self._kafka, self._postgres = home / "kafka", home / "postgres"
        self._lock = threading.Lock()
        self.brokers = kafka.start(self._kafka)
        self.database = postgres.start(self._postgres)

    def stop(self) -> None:
        kafka.stop(self._kafka)
        postgres.stop(self._postgres, mode="immediate")

    def kill_broker(self) -> None:
        with self._lock:
            pid = detached.running(self._kafka.resolve())
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: detached.running(self._kafka.resolve()) != pid)
            ports = json.loads((self._kafka / "ports.json").read_text()).values()
            # Otherwise, it would choose other ports.
            wait_until(lambda: not any(map(detached.listens, ports)))
            assert kafka.start(self._kafka) == self.brokers

    def kill_database(self) -> None:
        with self._lock:
            postgres.stop(self._postgres, mode="immediate")
            assert postgres.start(self._postgres) == self.database

    def create_topics(self, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.brokers})
        names = [name, f"{name}-results"]
        for done in admin.create_topics([NewTopic(each, SPLITS) for each in names]).values():
            done.result(_SECONDS)
        wait_until(lambda: set(names) <= admin.list_topics(timeout=_SECONDS).topics.keys())

    def delete_topics(self, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.brokers})
        for done in admin.delete_topics([name, f"{name}-results"]).values():
            done.result(_SECONDS)

    def producer(self) -> Producer:
        """Writes each message once, whatever happens to the broker."""
        return Producer({"bootstrap.servers": self.brokers, "enable.idempotence": True})

    def create_database(self, name: str) -> None:
        """Create a database with a table, both of this name."""
        with self._connected(self.database) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        with self._connected(self.database_of(name)) as connection:
            connection.execute(f"CREATE TABLE {name} (key bigint, count bigint, record bigint)")

    def database_of(self, name: str) -> str:
        """The address of a separate database, in which nobody else prepares transactions."""
        return f"{self.database.rpartition('/')[0]}/{name}"

    def drop_database(self, name: str) -> int:
        """Drop a database; returns how many transactions were left prepared."""
        with self._connected(self.database_of(name)) as connection:
            left = connection.execute(
                "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
            ).fetchall()
            for (transaction,) in left:
                connection.execute(f"ROLLBACK PREPARED '{transaction}'")
        with self._connected(self.database) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
        return len(left)

    @contextmanager
    def _connected(self, address: str) -> Iterator[psycopg.Connection[Any]]:
        """A connection, during which nobody kills the server."""
        with self._lock, psycopg.connect(address, autocommit=True) as connection:
            yield connection
