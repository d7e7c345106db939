import logging
import os
import subprocess
import sys

from tidegate.core.clock import ManualClock
from tidegate.core.foreign_logs import FOREIGN_LOG_VARIABLE, RateLimit


def passed(limit, *lines):
    records = [logging.LogRecord("x", logging.ERROR, "", 0, line, (), None) for line in lines]
    return [record.getMessage() for record in records if limit.filter(record)]


def test_so_many_lines_pass_in_every_interval_and_the_rest_is_counted():
    clock = ManualClock()
    limit = RateLimit(2, 10.0, clock.monotonic)
    assert passed(limit, "a", "b", "c", "d") == ["a", "b"]
    clock.advance(9.9)
    assert passed(limit, "e") == []
    clock.advance(0.1)
    assert passed(limit, "f", "g", "h") == ["(3 lines dropped before this one) f", "g"]


PROGRAM = """
import logging
from tidegate.core.foreign_logs import foreign_logger
logging.basicConfig(level=logging.INFO)
for number in range(5000):
    foreign_logger("librdkafka").error("FAIL %d", number)
"""


def test_the_lines_of_a_library_go_to_the_file_and_not_to_the_console(tmp_path):
    log = tmp_path / "job.log"
    environment = {**os.environ, FOREIGN_LOG_VARIABLE: str(log)}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == ""
    lines = log.read_text().splitlines()
    assert lines[0].endswith("ERROR librdkafka: FAIL 0")
    assert len(lines) < 100


def test_a_library_does_not_bury_the_messages_on_a_console():
    """In a Spark session of the user, which passes no file to its slots."""
    environment = {key: value for key, value in os.environ.items() if key != FOREIGN_LOG_VARIABLE}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[0].endswith("ERROR librdkafka: FAIL 0")
    assert len(done.stderr.splitlines()) < 10
