"""`tidegate run` and `tidegate explain`: programs as the command line runs them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidegate.cli.main import app
from tidegate.datastream.execution.hosting import Hosting, hosted
from tidegate.testing.environments import mini_environment

PROGRAM = """
import sys
from tidegate import StreamExecutionEnvironment, Types
from tidegate.datastream.connectors.file_system import CsvEncoding, FileSink

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(3)
{settings}
words = env.from_collection(["a", "b"]).name("Words")
counts = words.map(lambda word: (word, 1), Types.TUPLE([Types.STRING(), Types.LONG()])).name("Pair")
totals = counts.key_by(lambda pair: pair[0]).sum(1).name("Count")
totals.sink_to(FileSink(sys.argv[1], CsvEncoding()))
env.execute("words")
"""


@pytest.fixture
def program(tmp_path):
    def write(settings=""):
        file = tmp_path / "job.py"
        file.write_text(PROGRAM.format(settings=settings))
        return str(file)

    return write


def invoke(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_explain_shows_the_graph_and_the_guarantee_of_every_sink(program):
    done = invoke("explain", program("env.enable_checkpointing('1 s')"), "/tmp/results")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == [
        "Job 'words': 3 slots",
        "",
        "  [0] Words  (1 subtask)",
        "       └─ rebalance ─▶ [1]",
        "  [1] Pair  (3 subtasks)",
        "       └─ by key ─▶ [2]",
        "  [2] Count -> FileSink  (3 subtasks)",
        "",
        (
            "Checkpoints: every 1 s, exactly once, in the memory of the driver; "
            "state backend hashmap"
        ),
        (
            "Sink 'FileSink': exactly once, end to end: source 'Words' replays from its positions; "
            "barriers align, with checkpoints in the memory of the driver; "
            "the sink commits with the checkpoint"
        ),
    ]


def test_explain_can_be_read_by_machines(program):
    done = invoke("explain", "--json", program(), "/tmp/results")
    found = json.loads(done.output)
    assert [vertex["name"] for vertex in found["vertices"]] == [
        "Words",
        "Pair",
        "Count -> FileSink",
    ]
    assert found["checkpoints"] == "disabled"
    assert [each["guarantee"] for each in found["guarantees"]] == ["none"]


def test_settings_of_the_command_line_win(program):
    file = program("env.enable_checkpointing('1 s')")
    options = ("-D", "parallelism.default=2", "-D", "execution.checkpointing.mode=AT_LEAST_ONCE")
    found = json.loads(invoke("explain", "--json", *options, file, "/tmp/results").output)
    assert found["slots"] == 2
    assert [each["guarantee"] for each in found["guarantees"]] == ["at-least-once"]


def test_options_after_the_program_are_its_own(program):
    done = invoke("explain", program(), "--json")
    assert done.exit_code == 0
    assert done.output.startswith("Job 'words'")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-D", "parallelism.default"), "give key=value"),
        (("-D", "parallelism.defautl=2"), "did you mean parallelism.default?"),
        (("-D", "parallelism.default=none"), "parallelism.default"),
    ],
)
def test_a_setting_that_makes_no_sense_is_explained(program, options, message):
    done = invoke("explain", *options, program(), "/tmp/results")
    assert done.exit_code == 1
    assert message in done.output
    assert "Traceback" not in done.output


def test_a_program_without_a_job_says_so(tmp_path):
    (tmp_path / "job.py").write_text("print('nothing')\n")
    done = invoke("explain", str(tmp_path / "job.py"))
    assert done.exit_code == 1
    assert "without starting a job" in done.output


def test_what_is_fixed_from_outside_cannot_be_set_or_unset_by_the_program():
    with hosted(
        Hosting(settings={"restart-strategy": "none"}, defaults={"pipeline.name": "given"})
    ):
        env = mini_environment(parallelism=1)
    env.configure({"restart-strategy.type": "fixed-delay"})
    settings = env._configuration.settings()
    assert settings.restart.strategy.value == "none"
    assert settings.pipeline.name == "given"
    env.configure({"pipeline.name": "own"})
    assert env._configuration.settings().pipeline.name == "own"


def test_run_runs_the_program_with_its_arguments(tmp_path):
    (tmp_path / "beside.py").write_text("WORD = 'found'\n")
    (tmp_path / "job.py").write_text(
        "import sys\nfrom beside import WORD\nprint(__name__, sys.argv[1:], WORD)\n"
    )
    done = invoke("run", str(tmp_path / "job.py"), "--rate", "3")
    assert done.output == "__main__ ['--rate', '3'] found\n"
    assert done.exit_code == 0


def test_the_exit_code_of_the_program_is_that_of_the_command(tmp_path):
    (tmp_path / "job.py").write_text("raise SystemExit(7)\n")
    assert invoke("run", str(tmp_path / "job.py")).exit_code == 7


def test_a_program_that_never_executes_what_it_built_is_an_error(program, tmp_path):
    file = program()
    text = (tmp_path / "job.py").read_text()
    (tmp_path / "job.py").write_text(text.replace('env.execute("words")', ""))
    done = invoke("run", file, str(tmp_path / "results"))
    assert done.exit_code == 1, done.output
    assert "ended without running its pipeline: call env.execute() at its end" in done.output


def test_a_program_that_builds_nothing_is_none(tmp_path):
    (tmp_path / "job.py").write_text("print('nothing to do')")
    done = invoke("run", str(tmp_path / "job.py"))
    assert (done.exit_code, done.output) == (0, "nothing to do\n")


MISTAKES = {
    "x = (1\nprint(x)\n": "SyntaxError: '(' was never closed",
    "x = 1\0\n": "SyntaxError: source code string cannot contain null bytes",
    "import no_such_module\n": "ModuleNotFoundError: No module named 'no_such_module'",
    "def f():\n    raise KeyError('mine')\nf()\n": "KeyError: 'mine'",
    "env = 1\nenw\n": "NameError: name 'enw' is not defined. Did you mean: 'env'?",
}


@pytest.mark.parametrize("command", ["run", "explain"])
@pytest.mark.parametrize("text", MISTAKES, ids=["syntax", "null", "import", "own", "name"])
def test_a_program_that_fails_by_itself_shows_what_python_would_show(tmp_path, command, text):
    file = tmp_path / "job.py"
    file.write_text(text)
    done = invoke(command, str(file))
    assert done.exit_code == 1
    assert done.output.rstrip().endswith(MISTAKES[text])
    files = set(re.findall(r'File "(.*?)"', done.output))
    assert files == {str(file)}, "no frames of those that run it"


def test_the_traceback_of_a_program_shows_no_secret(tmp_path):
    file = tmp_path / "job.py"
    file.write_text("connect = None\nconnect(password='planted')\n")
    done = invoke("run", str(file))
    assert "TypeError" in done.output
    assert "planted" not in done.output


@pytest.mark.parametrize(("end", "is_warned"), [("", True), ("1 / 0", False)])
def test_a_script_that_never_executes_what_it_built_says_so(program, tmp_path, end, is_warned):
    """As a process of its own: the warning comes when Python exits."""
    text = Path(program()).read_text().replace('env.execute("words")', end)
    (tmp_path / "job.py").write_text(text)
    done = subprocess.run(
        [sys.executable, tmp_path / "job.py", "results"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ("ended without running its pipeline" in done.stderr) is is_warned
