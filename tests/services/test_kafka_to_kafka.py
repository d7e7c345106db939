"""The example from topic to topic."""

import json
import runpy
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("kafka")

from tests.programs import wait_until
from tests.services.kafka_clients import produce
from tests.services.kafka_messages import messages
from tidegate.datastream import StreamExecutionEnvironment
from tidegate.testing.environments import mini_environment

EXAMPLE = Path(__file__).parents[2] / "examples" / "kafka_to_kafka.py"
PAGES = ["/", "/cart", "/", "/search", "/cart", "/"] * 30


def counts_in(kafka, topic):
    found = [json.loads(message.value()) for message in messages(kafka, topic)]
    return sorted((count["page"], count["views"]) for count in found)


def test_the_views_of_a_topic_are_counted_into_another_one(kafka, new_topic, monkeypatch):
    views = new_topic(partitions=3)
    produce(kafka, views, [json.dumps({"page": page}) for page in PAGES])
    counts = f"{views}-counts"
    arguments = ["--bootstrap-servers", kafka, "--input", views, "--output", counts]
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *arguments])
    monkeypatch.setattr(
        StreamExecutionEnvironment, "get_execution_environment", staticmethod(mini_environment)
    )
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    totals = Counter(PAGES)
    expected = sorted((page, n + 1) for page in totals for n in range(totals[page]))
    wait_until(lambda: counts_in(kafka, counts) == expected)
    keys = {
        (message.key(), json.loads(message.value())["page"]) for message in messages(kafka, counts)
    }
    assert keys == {(page.encode(), page) for page in totals}
