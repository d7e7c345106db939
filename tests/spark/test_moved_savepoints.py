"""A savepoint is copied to another folder, and another process resumes from it."""

import shutil
from pathlib import Path

import pytest

from tests.programs import wait_until
from tests.spark.moved_program import COUNT, KEYS
from tests.spark.scripts import PATIENCE
from tests.spark.shell import Shell

pytestmark = [pytest.mark.spark, pytest.mark.slow]
PROGRAM = Path(__file__).with_name("moved_program.py")
EXPECTED = sorted(f"{number % KEYS},{number // KEYS + 1}" for number in range(COUNT))


@pytest.fixture
def shell(tmp_path):
    shell = Shell(tmp_path)
    yield shell
    shell.cancel_all()


def lines_in(directory):
    return sorted(
        line for file in directory.glob("part-*") for line in file.read_text().splitlines()
    )


def test_a_copy_in_another_folder_does_when_the_original_is_gone(shell, tmp_path):
    results, checkpoints = tmp_path / "results", tmp_path / "checkpoints"
    slowly = shell("run", "--detached", "-p", 2, PROGRAM, 50, results, checkpoints)
    wait_until(lambda: lines_in(results), PATIENCE)
    original = Path(shell("stop", slowly, "-p", "savepoints"))
    before = lines_in(results)
    assert 0 < len(before) < COUNT
    copy = tmp_path / "elsewhere" / "a copy"
    shutil.copytree(original, copy)
    shutil.rmtree(original)
    shutil.rmtree(checkpoints)
    shell("run", "--from", copy, "-p", 3, PROGRAM, 10**6, results, checkpoints)
    assert lines_in(results) == EXPECTED
