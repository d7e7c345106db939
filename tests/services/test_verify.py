"""The examples from Kafka to Kafka, PostgreSQL and files, killed somewhere in the protocol."""

import json
import os
import time
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")

from tests.effort import times
from tests.services.kafka_clients import create_topic, produce
from tests.verified import some_points, verify

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]
EXAMPLES = Path(__file__).parents[2] / "examples"
KILLS = times(1)
RECORDS = min(30_000, times(6_000))
PAGES = 40
SLOWLY = (
    *("-D", "tidegate.step.max-records=150"),
    *("-D", "execution.checkpointing.interval=300 ms"),
)


@pytest.fixture(scope="module")
def views(kafka):
    """A topic of views, and the lines of which one knows the words."""
    topic = f"views-{os.getpid()}"
    create_topic(kafka, topic, partitions=2)
    start = time.time_ns() // 10**10 * 10_000  # brokers delete what seems to be older than a week
    views = ({"page": f"/{n % PAGES}", "at": start + 100 * n} for n in range(RECORDS))
    produce(kafka, topic, [json.dumps(view) for view in views])
    return topic


def holds(tmp_path, example, *arguments, sink, options=()):
    _, report = verify(
        tmp_path,
        EXAMPLES / example,
        *arguments,
        sink=sink,
        kills=KILLS,
        points=some_points(KILLS),
        options=(*options, *SLOWLY),
    )
    assert report["holds"], report


@pytest.mark.prove
def test_windows_from_kafka_to_kafka(kafka, views, tmp_path):
    holds(
        tmp_path,
        "kafka_windows.py",
        *("--bootstrap-servers", kafka, "--input", views, "--output", f"{views}-windows-{{run}}"),
        sink=f"kafka://{kafka}/{views}-windows-{{run}}",
    )


@pytest.mark.prove
def test_from_kafka_to_kafka(kafka, views, tmp_path):
    holds(
        tmp_path,
        "kafka_to_kafka.py",
        *("--bootstrap-servers", kafka, "--input", views, "--output", f"{views}-{{run}}"),
        sink=f"kafka://{kafka}/{views}-{{run}}",
    )


@pytest.mark.prove
def test_from_kafka_to_postgresql(kafka, views, postgres, tmp_path):
    holds(
        tmp_path,
        "kafka_to_postgres.py",
        *("--bootstrap-servers", kafka, "--input", views),
        *("--dsn", postgres, "--table", "counts_{run}"),
        sink=f"{postgres}#counts_{{run}}",
    )


@pytest.mark.prove
@pytest.mark.parametrize("options", [(), ("--at-least-once",)], ids=["exactly", "at least"])
def test_from_kafka_to_files(kafka, views, tmp_path, options):
    place = f"{tmp_path}/counts-{{run}}"
    holds(
        tmp_path,
        "kafka_to_files.py",
        *("--bootstrap-servers", kafka, "--input", views, "--output", place),
        sink=place,
        options=options,
    )
