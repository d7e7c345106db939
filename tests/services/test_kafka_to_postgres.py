"""The example that joins two servers."""

import runpy
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("psycopg")

import psycopg

from tests.services.kafka_clients import produce
from tidegate.datastream import StreamExecutionEnvironment
from tidegate.testing.environments import mini_environment

EXAMPLE = Path(__file__).parents[2] / "examples" / "kafka_to_postgres.py"


def test_the_words_of_a_topic_are_counted_into_a_table(kafka, new_topic, postgres, monkeypatch):
    topic = new_topic(partitions=3)
    lines = ["To be or not", "to be", "that is the question"] * 20
    produce(kafka, topic, lines)
    arguments = ["--bootstrap-servers", kafka, "--input", topic, "--dsn", postgres]
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *arguments, "--table", "counts"])
    monkeypatch.setattr(
        StreamExecutionEnvironment, "get_execution_environment", staticmethod(mini_environment)
    )
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    totals = Counter(word.lower() for line in lines for word in line.split())
    with psycopg.connect(postgres) as database:
        found = database.execute("SELECT word, count FROM counts").fetchall()
    assert sorted(found) == sorted((word, n + 1) for word in totals for n in range(totals[word]))
