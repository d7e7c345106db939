"""The contents of a sink as a multiset of records: files, a topic, a table, or a function.

results-{run}                                       files: lines of text, rows of Parquet
kafka://localhost:9092/results-{run}                what a read_committed consumer sees
postgresql://user@localhost/shop#results_{run}      the rows of a table
check.py:read_results                               a function that gets the run's name
"""

from __future__ import annotations

import runpy
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
from pyarrow import fs

from tidegate.core.errors import ConfigError, ExternalError
from tidegate.storage.locations import resolve, shown

RUN = "{run}"
"""Stands for the name of the run, in the address of a sink and in the program's arguments."""

Content = Counter[Hashable]
_SECONDS = 30.0
_WAIT_FOR_MORE_SECONDS = 0.5
"""How long a consumer waits for a batch that is not full."""


def read_content(address: str, run: str) -> Content:
    """Read everything in the sink after a run.

    Raises:
        ConfigError: the address is invalid.
        ExternalError: its target cannot be read.
    """
    return _reader_of(address)(address.replace(RUN, run), run)


def check_address(address: str) -> None:
    """Refuse an address with the same target for every run."""
    reader = _reader_of(address)
    if RUN not in address and reader is not _by_function:
        raise ConfigError("--sink", address, f"put {RUN} into it: each run needs its own target")


def _reader_of(address: str) -> Callable[[str, str], Content]:
    scheme = urlsplit(address).scheme
    if scheme == "kafka":
        return _of_topic
    if scheme in ("postgresql", "postgres"):
        return _of_table
    if ".py:" in address:
        return _by_function
    return _of_files


def _of_files(address: str, run: str) -> Content:
    file_system, root = resolve(address)
    selector = fs.FileSelector(root, recursive=True, allow_not_found=True)
    paths = [info.path for info in file_system.get_file_info(selector) if info.is_file]
    content: Content = Counter()
    headers: Counter[str] = Counter()
    visible = [path for path in paths if PurePosixPath(path).name[0] not in "._"]
    for path in visible:
        with file_system.open_input_file(path) as file:
            if path.endswith(".parquet"):
                content.update(_hashable(row) for row in pq.read_table(file).to_pylist())
                continue
            lines = file.read().decode("utf-8", "surrogateescape").splitlines()
        content.update(lines)
        if path.endswith(".csv") and lines:
            headers[lines[0]] += 1
    if len(headers) == 1:
        # A line at the start of every file is a header: the number of files does not matter.
        header, files = headers.popitem()
        content[header] -= files - 1
    return content


def _of_topic(address: str, run: str) -> Content:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    parts = urlsplit(address)
    topic = parts.path.strip("/")
    if not parts.netloc or not topic:
        raise ConfigError("--sink", address, "give kafka://host:port/topic")
    consumer = Consumer(
        {
            "bootstrap.servers": parts.netloc,
            "group.id": f"tidegate-verify-{run}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    content: Content = Counter()
    try:
        partitions = consumer.list_topics(topic, timeout=_SECONDS).topics[topic].partitions
        unread = set(partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        while unread:
            for message in consumer.consume(10_000, timeout=_WAIT_FOR_MORE_SECONDS):
                error = message.error()
                if error is None:
                    content[message.key(), message.value()] += 1
                elif error.name() == "_PARTITION_EOF":
                    unread.discard(message.partition())
                else:
                    raise KafkaException(error)
    except KafkaException as error:
        raise ExternalError(f"topic {topic!r} of {parts.netloc} cannot be read: {error}") from None
    finally:
        consumer.close()
    return content


def _of_table(address: str, run: str) -> Content:
    import psycopg
    from psycopg import sql

    dsn, _, table = address.partition("#")
    if not table:
        raise ConfigError("--sink", shown(address), "give postgresql://…/database#table")
    name = sql.Identifier(*table.split("."))
    try:
        with psycopg.connect(dsn) as connection:
            rows = connection.execute(sql.SQL("SELECT * FROM {}").format(name)).fetchall()
    except psycopg.Error as error:
        raise ExternalError(f"table {table!r} cannot be read: {error}") from None
    return Counter(_hashable(row) for row in rows)


def _by_function(address: str, run: str) -> Content:
    file, _, name = address.rpartition(":")
    try:
        found = runpy.run_path(file)[name]
    except (OSError, KeyError) as error:
        raise ConfigError("--sink", address, f"no such file or function: {error}") from None
    records: Iterable[Any] = found(run)
    return Counter(map(_hashable, records))


def _hashable(record: Any) -> Hashable:
    match record:
        case dict():
            return tuple((key, _hashable(value)) for key, value in record.items())
        case list() | tuple():
            return tuple(map(_hashable, record))
        case Hashable():
            return record
        case _:
            return repr(record)
