import re
from pathlib import Path
from urllib.parse import urlsplit

from tidegate.core.config import Settings
from tidegate.datastream.execution.spark_session import session_conf


def test_the_logging_configuration_of_spark_is_a_file_that_exists():
    options = session_conf(Settings(), "local[2]", 2)["spark.driver.extraJavaOptions"]
    (url,) = re.findall(r"-Dlog4j2.configurationFile=(\S+)", options)
    assert Path(urlsplit(url).path).is_file()
