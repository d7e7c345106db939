"""The subjects of Flink's own DataStream examples, as PyFlink programs that run without Spark."""

import runpy
import sys
from pathlib import Path

import pytest

from tidegate.datastream.execution.hosting import Hosting, hosted
from tidegate.testing.environments import MiniExecutor

PROGRAMS = Path(__file__).parent / "pyflink_programs"


@pytest.fixture
def run_ported(tmp_path, monkeypatch, capsys):
    """Run a program as the main module on a mini cluster; returns what it printed."""

    def run(name, *arguments):
        path = tmp_path / f"{name}.py"
        path.write_text((PROGRAMS / path.name).read_text().replace("pyflink", "tidegate"))
        monkeypatch.setattr(sys, "argv", [str(path), *arguments])
        capsys.readouterr()
        quiet = {"tidegate.console.live-line": "off"}
        with hosted(Hosting(settings=quiet, executor=MiniExecutor(1))):
            runpy.run_path(str(path), run_name="__main__")
        return [line for line in capsys.readouterr().out.splitlines() if line]

    return run


def test_event_time_timers(run_ported):
    """The input is one batch, so the watermark comes after all its records, as in PyFlink."""
    assert run_ported("event_time_timer") == ["(a,7,11000)", "(b,30,11500)"]


@pytest.mark.parametrize(
    ("assigner", "expected"),
    [
        ("tumbling", ["(hi,0,5,4)", "(hi,5,10,2)", "(hi,15,20,1)"]),
        ("session", ["(hi,1,14,6)", "(hi,15,20,1)"]),
        ("count", ["(hi,6)", "(hi,21)"]),
    ],
)
def test_windows(run_ported, assigner, expected):
    assert run_ported("windows", assigner) == expected


def test_sliding_windows(run_ported):
    windows = [line.strip("()").split(",") for line in run_ported("windows", "sliding")]
    hits = (1, 2, 3, 4, 8, 9, 15)
    starts = sorted({hit - hit % 2 - 2 * k for hit in hits for k in range(3)})
    expected = [
        ["hi", str(start), str(start + 5), str(sum(start <= hit < start + 5 for hit in hits))]
        for start in starts
        if any(start <= hit < start + 5 for hit in hits)
    ]
    assert windows == expected


def test_basic_operations_with_json_and_state(run_ported):
    printed = run_ported("basic_operations")
    assert [line for line in printed if line.startswith("filter")] == [
        "filter> hello",
        "filter> PyFlink",
    ]
    assert [line for line in printed if line.startswith("reduce")] == [
        "reduce> (Germany,123)",
        "reduce> (China,135)",
        "reduce> (USA,124)",
        "reduce> (China,167)",
    ]
    assert "state> (China,2)" in printed


def test_async_lookups_with_retries(run_ported):
    assert run_ported("async_lookup") == ["10", "20", "30", "40"]
