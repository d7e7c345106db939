import re

from typer.testing import CliRunner

from tidegate import __version__
from tidegate.cli.main import app


def test_the_version_is_printed():
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"tidegate {__version__}\n")


def test_help_lists_the_commands():
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert "doctor" in result.output


def test_an_unknown_command_is_refused():
    result = CliRunner().invoke(app, ["docter"])
    assert result.exit_code == 2
    assert "docter" in result.output


def test_help_fills_its_paragraphs():
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["run", "--help"])
    assert "first \n step. With --supervise, it runs" in re.sub(" +", " ", result.output)
