"""The programs of the page about sources and sinks do what it says."""

import re
from pathlib import Path

import pytest

from tests.unit.connectors.reading import read_all, reader_of

PAGE = Path(__file__).parents[3] / "docs" / "sources-and-sinks.md"


def program_with(name):
    """What the program of the page that mentions a name defines."""
    programs = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (program,) = [program for program in programs if name in program]
    defined = {"__name__": "page"}
    exec(compile(program, PAGE.name, "exec"), defined)
    return defined


LOG = {"orders": ["o1", "o2", "o3"], "users": [], "items": ["i1", "i2"]}


@pytest.fixture
def source():
    return program_with("class LogSource")["LogSource"](LOG)


def test_the_source_of_the_page_reads_every_entry_once(source):
    shares = [read_all(reader_of(source, subtask=i, parallelism=2), 2) for i in range(2)]
    assert shares == [["o1", "o2", "o3", "i1", "i2"], []]


@pytest.mark.parametrize("polls", range(7))
def test_the_source_of_the_page_continues_where_its_snapshot_was_taken(source, polls):
    reader = reader_of(source)
    batches = [reader.poll(1).batch for _ in range(polls)]
    before = [record for batch in batches if batch is not None for record in batch.records]
    rest = read_all(reader_of(source, splits=reader.snapshot()))
    assert before + rest == ["o1", "o2", "o3", "i1", "i2"]


def test_the_enumerator_of_the_page_deals_again_what_came_back(source):
    enumerator = source.create_enumerator()
    (first, *_) = enumerator.next_splits(1)[0]
    assert enumerator.is_exhausted()
    enumerator.add_back([first])
    restored = source.create_enumerator()
    restored.restore(enumerator.snapshot())
    assert restored.next_splits(1) == {0: [first]}


def test_the_generator_of_the_page_makes_orders():
    orders = program_with("DataGeneratorSource(")["orders"]
    assert orders.produced_type() is not None


def test_the_file_sources_of_the_page_have_rows():
    defined = program_with("watch_every")
    assert defined["arriving"].produced_type() == defined["POINT"]


def test_the_harness_of_the_page_runs():
    assert "flaky" in program_with("OperatorHarness")
