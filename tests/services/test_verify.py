"""The examples from Kafka to Kafka, PostgreSQL and files, killed at every point of the protocol.

`make verify` does the same with 60 kills for each of them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")

from tests.services.kafka_clients import create_topic, produce
from tests.spark.scripts import environment

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]
EXAMPLES = Path(__file__).parents[2] / "examples"
KILLS = int(os.environ.get("TIDEGATE_VERIFY_KILLS", "0"))
"""How often each of them is killed, over all points; 0: once at each of a few points."""
RECORDS = 30_000 if KILLS else 12_000
PAGES = 40
SLOWLY = [
    *("-D", "tidegate.step.max-records=150"),
    *("-D", "execution.checkpointing.interval=300 ms"),
]


@pytest.fixture(scope="module")
def views(kafka):
    """A topic of views, and the lines of which one knows the words."""
    topic = f"views-{os.getpid()}"
    create_topic(kafka, topic, partitions=2)
    produce(kafka, topic, [json.dumps({"page": f"/{n % PAGES}"}) for n in range(RECORDS)])
    return topic


def verify(tmp_path, example, sink, *arguments, points, options=()):
    """Kill the example, everywhere if it is to be thorough, else once at each of these points."""
    command = [sys.executable, "-m", "tidegate", "verify", "--json", "--sink", sink, *options]
    command += ["--kills", str(KILLS or len(points)), "--directory", str(tmp_path / "runs")]
    for point in () if KILLS else points:
        command += ["--point", point]
    done = subprocess.run(
        [*command, *SLOWLY, str(EXAMPLES / example), *arguments],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert sum(point["kills"] for point in report["points"]) >= (KILLS or len(points))
    assert report["holds"], report


def test_from_kafka_to_kafka(kafka, views, tmp_path):
    verify(
        tmp_path,
        "kafka_to_kafka.py",
        f"kafka://{kafka}/{views}-{{run}}",
        *("--bootstrap-servers", kafka, "--input", views, "--output", f"{views}-{{run}}"),
        points=["acknowledged", "commit"],
    )


def test_from_kafka_to_postgresql(kafka, views, postgres, tmp_path):
    verify(
        tmp_path,
        "kafka_to_postgres.py",
        f"{postgres}#counts_{{run}}",
        *("--bootstrap-servers", kafka, "--input", views),
        *("--dsn", postgres, "--table", "counts_{run}"),
        points=["pre-committed", "commit"],
    )


def test_from_kafka_to_files(kafka, views, tmp_path):
    place = f"{tmp_path}/counts-{{run}}"
    verify(
        tmp_path,
        "kafka_to_files.py",
        place,
        *("--bootstrap-servers", kafka, "--input", views, "--output", place),
        points=["snapshot"],
    )


def test_at_least_once_loses_nothing(kafka, views, tmp_path):
    place = f"{tmp_path}/counts-{{run}}"
    verify(
        tmp_path,
        "kafka_to_files.py",
        place,
        *("--bootstrap-servers", kafka, "--input", views, "--output", place),
        points=["acknowledged"],
        options=("--at-least-once",),
    )
