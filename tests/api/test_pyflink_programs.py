"""Programs for PyFlink run after `pyflink` was replaced by `tidegate` in their text."""

import runpy
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "pyflink_programs"

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def run_ported(spark, tmp_path, monkeypatch, capsys):
    """Run a program as the main module on the Spark that is there; returns what it printed."""

    def run(name, *arguments):
        path = tmp_path / f"{name}.py"
        text = (PROGRAMS / path.name).read_text()
        assert "pyflink" in text
        path.write_text(text.replace("pyflink", "tidegate"))
        monkeypatch.setattr(sys, "argv", [str(path), *arguments])
        capsys.readouterr()
        runpy.run_path(str(path), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return run


def test_fields_of_json(run_ported):
    assert run_ported("json_fields") == [
        """(2, '{"customer": {"country": "NL"}, "amount": 26}')""",
        "sum> ('PT', 10)",
        "sum> ('NL', 25)",
        "sum> ('PT', 15)",
    ]


def test_a_word_count_in_batch_mode_from_file_to_file(run_ported, tmp_path):
    (tmp_path / "in.txt").write_text("to be or\nnot to be\n")
    run_ported("word_count_batch", str(tmp_path / "in.txt"), str(tmp_path / "out"))
    (part,) = (tmp_path / "out").rglob("counts-*")
    assert part.name.startswith("counts-")
    assert part.name.endswith(".txt")
    assert sorted(part.read_text().splitlines()) == [
        "('be', 2)",
        "('not', 1)",
        "('or', 1)",
        "('to', 2)",
    ]


def test_state_and_side_outputs(run_ported):
    assert sorted(run_ported("spending_limit")) == [
        "(Ada,40.0)",
        "(Ada,90.0)",
        "(Bob,90.5)",
        "(Bob,95.5)",
        "Ada cannot pay 70.0",
    ]


def test_a_restart_strategy_with_the_settings_of_checkpoints(run_ported):
    lines = run_ported("restarting_word_count")
    assert lines[-5:] == ["(a,1)", "(b,1)", "(a,2)", "(ERROR,1)", "(c,1)"]
    assert lines == ["(a,1)", "(b,1)", "(a,2)"] * 2 + lines[-5:]


def test_windows_with_functions_triggers_and_late_data(run_ported):
    assert sorted(run_ported("sensor_windows")) == [
        "average> (t1,0,10000,21.0)",
        "average> (t1,10000,20000,30.0)",
        "average> (t2,0,10000,5.0)",
        "each> (t1,20.0,1000)",
        "each> (t1,22.0,4000)",
        "each> (t1,30.0,11000)",
        "each> (t2,5.0,2000)",
        "session> (t1,1000,2)",
        "session> (t1,11000,1)",
        "session> (t2,2000,1)",
    ]
