"""Kafka and PostgreSQL for the campaign alone: others must not see them die."""

from __future__ import annotations

import os
import signal
from pathlib import Path

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
        self.brokers = kafka.start(self._kafka)
        self.database = postgres.start(self._postgres)

    def stop(self) -> None:
        kafka.stop(self._kafka)
        postgres.stop(self._postgres, mode="immediate")

    def kill_broker(self) -> None:
        pid = detached.running(self._kafka.resolve())
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: detached.running(self._kafka.resolve()) != pid)
        assert kafka.start(self._kafka) == self.brokers

    def kill_database(self) -> None:
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

    def create_table(self, name: str) -> None:
        with psycopg.connect(self.database) as connection:
            connection.execute(f"CREATE TABLE {name} (key bigint, count bigint, record bigint)")

    def drop_table(self, name: str) -> int:
        """Returns how many transactions were left prepared, by whomever."""
        with psycopg.connect(self.database, autocommit=True) as connection:
            left = connection.execute("SELECT gid FROM pg_prepared_xacts").fetchall()
            for (transaction,) in left:
                connection.execute(f"ROLLBACK PREPARED '{transaction}'")
            connection.execute(f"DROP TABLE {name}")
        return len(left)
