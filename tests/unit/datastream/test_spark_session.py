import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import pyspark.java_gateway
import pytest
from pyspark import SparkConf
from pyspark.errors import PySparkRuntimeError

from tidegate.core.config import Settings
from tidegate.datastream.execution import spark_session
from tidegate.datastream.execution.spark_session import session_conf, start_java
from tidegate.exchange.pipelined.requirements import FETCH_SETTINGS, session_settings


def test_spark_of_our_own_logs_to_a_file_and_not_to_the_console(tmp_path):
    conf = session_conf(Settings(), "local[2]", 2, tmp_path / "a job.log")
    options = shlex.split(conf["spark.driver.extraJavaOptions"])
    properties = dict(each[2:].split("=", 1) for each in options if each.startswith("-D"))
    assert properties["tidegate.log.file"] == str(tmp_path / "a job.log")
    configuration = Path(unquote(urlsplit(properties["log4j2.configurationFile"]).path))
    assert "Console" not in configuration.read_text()


def test_a_fetch_from_a_lost_executor_is_soon_retried_and_given_up_as_late_as_by_default(tmp_path):
    conf = session_conf(Settings(), "local-cluster[2,1,1024]", 2, tmp_path / "log")
    assert session_settings().items() >= FETCH_SETTINGS.items() <= conf.items()
    # Spark drops fractions of a second: less than one would be no wait at all.
    wait = int(conf["spark.shuffle.io.retryWait"].removesuffix("s"))
    assert 1 <= wait < 5
    assert wait * int(conf["spark.shuffle.io.maxRetries"]) == 3 * 5


def test_options_of_java_are_added_to_ours_unless_the_user_has_some(tmp_path):
    key, log = "spark.driver.extraJavaOptions", tmp_path / "log"
    ours = session_conf(Settings(), "local[2]", 2, log)[key]
    assert session_conf(Settings(), "local[2]", 2, log, "-Xx")[key] == f"{ours} -Xx"
    theirs = Settings.of({key: "-Xy"})
    assert session_conf(theirs, "local[2]", 2, log, "-Xx")[key] == "-Xy"


@pytest.fixture
def launches(monkeypatch):
    """Let PySpark start a script instead of Java; it is up when it has printed a line."""
    started = []

    def set_up(script):
        def launch(conf, popen_kwargs):
            java = subprocess.Popen(
                ["sh", "-c", script],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                **popen_kwargs,
            )
            started.append(java)
            if not java.stdout.readline():
                raise RuntimeError("it ended")
            return java

        monkeypatch.setattr(pyspark.java_gateway, "launch_gateway", launch)

    yield set_up
    for java in started:
        java.communicate()


def test_what_java_prints_while_it_starts_goes_to_the_log_and_the_rest_to_the_console(
    tmp_path, launches, capfd
):
    launches("echo WARNING: modules >&2; echo up; read line; echo a function prints >&2")
    java = start_java(SparkConf(loadDefaults=False), tmp_path / "job.log")
    java.communicate()
    java.sorter.wait()
    assert (tmp_path / "job.log").read_text() == "WARNING: modules\n"
    assert capfd.readouterr().err == "a function prints\n"


def test_a_java_that_does_not_start_says_why_on_the_console(tmp_path, launches, capfd):
    launches("echo Unrecognized option >&2")
    with pytest.raises(RuntimeError):
        start_java(SparkConf(loadDefaults=False), tmp_path / "job.log")
    said = ""
    while not said:
        said = capfd.readouterr().err
    assert said == "Unrecognized option\n"
    assert not (tmp_path / "job.log").exists()


@pytest.fixture
def starts(monkeypatch):
    """What Java is started with; it does not start with some options."""
    starts = SimpleNamespace(fails_with="-XX", options=[], removed=[])

    def play(conf, log):
        starts.options.append(conf.get("spark.driver.extraJavaOptions"))
        if starts.fails_with in starts.options[-1]:
            raise PySparkRuntimeError("it ended")
        return "gateway"

    monkeypatch.setattr(spark_session, "start_java", play)
    monkeypatch.setattr(spark_session, "remove_archive", starts.removed.append)
    monkeypatch.setattr(spark_session, "archive_options", lambda java: "-XX")
    return starts


def start_with(options):
    conf = {"spark.driver.extraJavaOptions": options}
    return spark_session.start_java_with_archive(conf, "java", Path("log"))


def test_an_archive_with_which_java_does_not_start_is_removed(starts):
    assert start_with("-Da -XX") == "gateway"
    assert starts.options == ["-Da -XX", "-Da "]
    assert starts.removed == ["java"]


@pytest.mark.parametrize(("options", "count"), [("-Da -XX", 2), ("-Da", 1)])
def test_an_archive_is_kept_if_java_does_not_start_without_it(starts, options, count):
    starts.fails_with = "-Da"
    with pytest.raises(PySparkRuntimeError):
        start_with(options)
    assert len(starts.options) == count
    assert starts.removed == []


def test_an_archive_with_which_java_starts_is_kept(starts):
    starts.fails_with = "-Xy"
    assert start_with("-Da -XX") == "gateway"
    assert (starts.options, starts.removed) == (["-Da -XX"], [])
