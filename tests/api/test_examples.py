"""The examples run and print what their text promises."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def run_example(spark, capsys, monkeypatch):
    """Run an example as the main module on the Spark that is there; returns what it printed."""

    def run(name):
        monkeypatch.setattr(type(spark), "stop", lambda session: None)
        monkeypatch.setattr(sys, "argv", [name])
        capsys.readouterr()
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return run


def printed_by(name):
    """Run an example as a user does; returns what it prints and what it logs."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / name], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


def test_the_demo_fails_recovers_and_says_that_its_counts_are_right():
    (_, *lines, closing), log = printed_by("word_count.py")
    assert lines == [
        *["(a,1)", "(b,1)", "(a,2)", "(a,3)", "(c,1)"],
        *["(a,3)", "(c,1)", "(ERROR,1)", "(b,2)", "(a,4)"],
    ]
    for told in ("Triggering checkpoint", "Completed checkpoint", "failed", "Restoring", "seeks"):
        assert told in log
    assert closing == (
        "RIGHT: every word counts once (a 4, b 2, c 1, ERROR 1); "
        "2 results came again after a failure."
    )


def test_poison_records_are_skipped():
    (*_, counts, letter, error), _ = printed_by("poison_records.py")
    assert counts == "The counts: a 4, b 2, c 1"
    assert letter == (
        "Left out by Parse, before Partition(topic='word', offset=31): "
        """'{"word": "ERROR", "frequency": 1}'"""
    )
    assert error == "RuntimeError: custom error flag, restart application"


def test_what_was_acknowledged_is_counted_once(run_example):
    *_, closing = run_example("durable_callback.py")
    assert closing == "100 numbers, their sum is 5050; it should be 5050"


def test_dataframes_go_in_and_come_out(run_example):
    assert run_example("dataframes.py") == ["Berlin: 11 km", "Rome: 9 km"]


def test_a_job_continues_with_state_from_a_table(run_example):
    assert run_example("state_as_data.py") == [
        "from a table: [('ada', 1025), ('bob', 507), ('cleo', 1)]",
        "without ada: [('ada', 25), ('bob', 507), ('cleo', 1)]",
    ]


def test_a_stream_of_sparks_goes_into_a_table_of_sparks(run_example):
    assert run_example("spark_table.py") == ["it: enzo 22", "uk: ada 15", "uk: mary 7"]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("keyed_average.py", ["average> (1,4)", "average> (1,5)", "average> (2,30)"]),
        (
            "count_between_ones.py",
            ["4     2 3 4 5", "5     3 4 5 6 7", "6     4 5 3 9 9 2"],
        ),
        (
            "csv_report.py",
            [
                '"Berlin",15.5',
                '"Berlin",18',
                '"Berlin",7.5',
                '"Paris",21',
                '"Paris",3',
                '"Rome",10',
                '"city","revenue"',
            ],
        ),
        (
            "side_outputs.py",
            [
                "reading> (north,21.5)",
                "reading> (south,19.0)",
                'unreadable> {"sensor": "south"}: KeyError',
                "unreadable> {sensor: north}: JSONDecodeError",
            ],
        ),
    ],
)
def test_an_example_prints_its_results(run_example, name, lines):
    found = sorted(without_subtask(line) for line in run_example(name))
    assert found == sorted(lines)


def without_subtask(line):
    """Which subtask printed a line is left open."""
    before, separator, behind = line.partition("> ")
    return f"{before.partition(':')[0]}{separator}{behind}" if separator else line


def test_every_example_is_run():
    tested = "".join(file.read_text() for file in Path(__file__).parents[1].rglob("test_*.py"))
    assert [file.stem for file in EXAMPLES.glob("*.py") if file.stem not in tested] == []
