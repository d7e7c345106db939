import subprocess

import pytest

from scripts import class_archive
from tidegate.prerequisites import find_java


def test_a_jvm_that_cannot_use_an_archive_starts_without_a_word(tmp_path):
    java = find_java()
    if java is None:
        pytest.skip("there is no Java here")
    archive = tmp_path / "other.jsa"
    archive.write_bytes(b"not an archive")
    options = [f"-XX:SharedArchiveFile={archive}", class_archive.SILENT]
    done = subprocess.run(
        [java.home / "bin" / "java", *options, "-version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_an_archive_is_stored_once(tmp_path, monkeypatch, capsys):
    (tmp_path / "spark.jsa").touch()
    monkeypatch.setattr(class_archive, "ARCHIVE", tmp_path / "spark.jsa")
    monkeypatch.setattr(subprocess, "run", None)
    assert class_archive.main() == 0
    assert capsys.readouterr().out == ""
