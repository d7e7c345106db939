import shlex
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tidegate.core.config import Settings
from tidegate.datastream.execution.spark_session import session_conf


def test_spark_of_our_own_logs_to_a_file_and_not_to_the_console(tmp_path):
    conf = session_conf(Settings(), "local[2]", 2, tmp_path / "a job.log")
    options = shlex.split(conf["spark.driver.extraJavaOptions"])
    properties = dict(each.removeprefix("-D").split("=", 1) for each in options)
    assert properties["tidegate.log.file"] == str(tmp_path / "a job.log")
    configuration = Path(unquote(urlsplit(properties["log4j2.configurationFile"]).path))
    assert "Console" not in configuration.read_text()
