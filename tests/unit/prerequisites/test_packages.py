import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement as PipRequirement
from packaging.specifiers import SpecifierSet

from tidegate.prerequisites import Status
from tidegate.prerequisites.packages import (
    EXTRAS,
    NEWEST_PYTHON,
    OLDEST_PYTHON,
    REQUIREMENTS,
    Requirement,
    check_extra,
    check_package,
    check_python,
    check_spark,
)

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
VERSIONS = ("0.1", "0.5", "0.15.1", "1.20", "2", "2.2.3", "3.0", "3.5.0", "4.2.9", "4.3.0", "4.3.7")


@pytest.fixture
def installed(monkeypatch):
    """Make distributions look installed, in these versions and no others."""

    def install(**versions: str) -> None:
        def version(name: str) -> str:
            if name not in versions:
                raise metadata.PackageNotFoundError(name)
            return versions[name]

        monkeypatch.setattr(metadata, "version", version)

    return install


def test_the_packages_are_those_of_the_project():
    declared = {PipRequirement(line).name for line in PROJECT["dependencies"]}
    assert {requirement.name for requirement in REQUIREMENTS} == declared


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda requirement: requirement.name)
@pytest.mark.parametrize("version", [*VERSIONS, "4.4.0", "13", "18.0.0", "100.1"])
def test_versions_are_admitted_as_the_project_declares(requirement, version):
    declared = {line.name: line for line in map(PipRequirement, PROJECT["dependencies"])}
    assert requirement.admits(version) == declared[requirement.name].specifier.contains(version)


def test_the_installation_page_lists_all_extras():
    page = (Path(__file__).parents[3] / "docs" / "install.md").read_text()
    declared = PROJECT["optional-dependencies"]
    missing = [extra for extra in declared if f"| `{extra}` |" not in page]
    assert missing == []


def test_the_extras_are_those_of_the_project():
    declared = PROJECT["optional-dependencies"]
    assert set(EXTRAS) == set(declared)
    for extra, names in EXTRAS.items():
        assert set(names) <= {PipRequirement(line).name for line in declared[extra]}


def test_the_oldest_python_is_that_of_the_project():
    oldest = ".".join(map(str, OLDEST_PYTHON))
    assert SpecifierSet(PROJECT["requires-python"]) == SpecifierSet(f">={oldest}")


def test_a_package_that_is_there_is_reported_with_its_version(installed):
    installed(pyarrow="26.0.1")
    check = check_package(Requirement(name="pyarrow", at_least="18"))
    assert (check.status, check.found, check.advice) == (Status.OK, "26.0.1", None)


def test_an_absent_package_is_missing_with_what_to_install(installed):
    installed()
    check = check_package(Requirement(name="pyspark", at_least="4.3", below="4.4"))
    assert (check.status, check.found) == (Status.MISSING, "not installed")
    assert check.advice == "pip install 'pyspark>=4.3,<4.4'"


def test_another_spark_is_missing_and_another_pandas_a_warning(installed):
    installed(pyspark="3.4.4", pandas="3.0.0")
    checks = {requirement.name: check_package(requirement) for requirement in REQUIREMENTS}
    assert checks["pyspark"].status is Status.MISSING
    assert checks["pandas"].status is Status.WARNING
    assert checks["pandas"].advice == "pip install 'pandas>=2.2,<3'"


def test_a_pre_release_counts_by_its_numbers():
    assert Requirement(name="pyspark", at_least="4.3", below="4.4").admits("4.3.0.dev1")


def test_an_absent_extra_is_no_fault(installed):
    installed(pytest="9.2.0")
    check = check_extra("dev", ("pytest", "mypy"))
    assert check.status is Status.OK
    assert check.found == "not installed (mypy): pip install 'tidegate[dev]' if you need it"


@pytest.mark.parametrize(
    ("version", "status"),
    [((3, 10, 13), Status.MISSING), ((3, 11, 0), Status.OK), ((4, 0, 0), Status.OK)],
)
def test_python_has_to_be_new_enough(version, status):
    check = check_python(version)
    assert check.status is status
    assert check.found.endswith(sys.executable)


@pytest.mark.parametrize(("version", "way"), [("3.5.9", "as Spark jobs"), ("4.3.0", "endless")])
def test_it_is_said_how_steps_travel_on_this_spark(installed, version, way):
    installed(pyspark=version)
    check = check_spark(python=(3, 11))
    assert check.status is Status.OK and way in check.found


def test_a_python_that_is_too_new_for_spark_is_a_warning(installed):
    installed(pyspark="3.5.9")
    check = check_spark(python=(3, 12))
    assert check.status is Status.WARNING
    assert check.advice == "Spark 3.5.9 supports Python up to 3.11: use that, or a newer Spark"


def test_the_installation_page_lists_the_versions_of_spark():
    page = (Path(__file__).parents[3] / "docs" / "install.md").read_text()
    lines = [f"| {spark} | 3.11 to 3.{newest} |" for spark, (_, newest) in NEWEST_PYTHON.items()]
    lines[0] = "| 3.5 | 3.11 |"
    assert [line for line in lines if line not in page] == []
