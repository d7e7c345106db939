"""The log of a durable source in a bucket."""

from collections import deque

import pytest

from tests.programs import wait_until
from tests.unit.connectors.durable.test_source import Fleeting, Reading, step
from tidegate.connectors.durable.log import DurableLog, Segment
from tidegate.core.errors import CorruptCheckpoint, StorageError
from tidegate.stream.batch import Batch

pytestmark = pytest.mark.slow


def test_the_log_is_read_again_and_cut(s3_url):
    source, log = Fleeting(), DurableLog(s3_url)
    reading = Reading(s3_url, source, retained_checkpoints=2)
    kept = deque(maxlen=2)
    for number, record in enumerate("abcd", 1):
        kept.append(step(reading, source, record, number))
    source.pushed += "ef"
    assert reading.take(2) == ["e", "f"]
    wait_until(lambda: min(log.numbers()) == kept[0][0].segment)
    reading.crash()
    source.pushed += "g"
    again = Reading(s3_url, source, restored=kept[0], fresh=())
    assert again.take(4) == ["d", "e", "f", "g"]
    again.crash()


def test_a_segment_is_written_once(s3_url):
    log = DurableLog(s3_url)
    log.append(0, Segment.of([Batch.of_records(["first"])], (), ()))
    with pytest.raises(StorageError, match="another attempt of the job has written it"):
        log.append(0, Segment.of([Batch.of_records(["second"])], (), ()))
    assert log.read(0).records == ["first"]
    with pytest.raises(CorruptCheckpoint, match="segments 0 to 1"):
        log.numbers_from(0, 1)


def test_nothing_is_lost_without_a_checkpoint(s3_url):
    source = Fleeting("abcdefgh")
    first = Reading(s3_url, source)
    first.take(5)
    first.crash()
    source.pushed += "i"
    again = Reading(s3_url, source)
    assert again.take(9) == list("abcdefghi")
    again.crash()
