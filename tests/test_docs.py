"""What the pages say exists: links, commands, programs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate import errors
from tidegate.datastream import StreamExecutionEnvironment
from tidegate.testing.environments import mini_environment

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def code_blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_exist(page):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:`|^)make (?:[A-Z]+=\S+ )?([a-z]+)", page.read_text(), re.MULTILINE))
    assert named <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_programs_compile(page):
    for number, program in enumerate(code_blocks(page, "python")):
        compile(program, f"{page.name}, block {number}", "exec")


PROGRAMS = [
    (page, number)
    for page in ("checkpoints.md", "recovery.md")
    for number in range(len(code_blocks(ROOT / "docs" / page, "python")))
] + [("poison-records.md", 0), ("time.md", -1)]


@pytest.mark.parametrize(("page", "number"), PROGRAMS)
def test_programs_run(monkeypatch, tmp_path, page, number):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        StreamExecutionEnvironment, "get_execution_environment", staticmethod(mini_environment)
    )
    exec(code_blocks(ROOT / "docs" / page, "python")[number], {"__name__": "program"})


def test_keys_of_settings_exist():
    """Also where a page names the beginning of keys, such as `restart-strategy.`."""
    known = (ROOT / "docs" / "configuration.md").read_text()
    pattern = r"`((?:execution|restart-strategy|state|jobmanager|tidegate)\.[a-z.-]+)"
    named = {
        (page.name, key)
        for page in PAGES
        for key in re.findall(pattern, page.read_text())
        if not key.endswith((".py", ".md")) and "-" in key
    }
    assert [(page, key) for page, key in sorted(named) if f"`{key}" not in known] == []


def test_errors_in_the_page_on_recovery_exist():
    page = (ROOT / "docs" / "recovery.md").read_text()
    table = page.partition("## Messages")[2]
    named = re.findall(r"`([A-Z]\w+)`", table)
    assert len(named) > 8
    assert [name for name in named if name not in errors.__all__] == []


@pytest.mark.spark
def test_the_program_of_the_readme_prints_what_the_readme_says(tmp_path):
    program = tmp_path / "revenue.py"
    program.write_text(code_blocks(ROOT / "README.md", "python")[0])
    process = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    said = re.search(r"each city and minute: (.*?)\. Save", (ROOT / "README.md").read_text())
    assert said is not None
    results = sorted(line.partition("> ")[2] for line in process.stdout.splitlines() if line)
    assert results == sorted(re.findall(r"`(.*?)`", said[1]))


def test_the_readme_begins_with_how_to_install_and_compares_honestly():
    page = (ROOT / "README.md").read_text()
    assert code_blocks(ROOT / "README.md", "sh")[0].startswith("pip install tidegate")
    sections = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert re.search(r"^\| Event time[^|]*\|", sections["How it compares"], re.MULTILINE)
    assert len(re.findall(r"^\|---", sections["Speed"], re.MULTILINE)) == 1
