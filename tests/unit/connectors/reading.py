"""Drives readers by hand, as a source operator would."""

from tests.programs import wait_until
from tidegate.connectors.source import InputStatus, ReaderContext, refuse
from tidegate.core.clock import ManualClock
from tidegate.types.arrow import arrow_format


def reader_of(
    source,
    *,
    splits=None,
    subtask=0,
    parallelism=1,
    clock=None,
    typed=True,
    attempt=1,
    no_more=True,
    undecodable=refuse,
):
    """An open reader that has its splits of the source, or the given ones."""
    type_info = source.produced_type() if typed else None
    context = ReaderContext(
        subtask=subtask,
        parallelism=parallelism,
        clock=clock or ManualClock(),
        format=None if type_info is None else arrow_format(type_info),
        attempt=attempt,
        undecodable=undecodable,
    )
    reader = source.create_reader(context)
    reader.open()
    if splits is None:
        enumerator = source.create_enumerator()
        splits = first_splits(enumerator, parallelism).get(subtask, [])
        enumerator.close()
    reader.add_splits(splits)
    if no_more:
        reader.no_more_splits()
    return reader


def first_splits(enumerator, parallelism):
    """What there is to read, by subtask; an enumerator may look for it in the background."""
    found = {}

    def is_ready():
        found.update(enumerator.next_splits(parallelism))
        return enumerator.is_ready()

    wait_until(is_ready)
    return found


def read_all(reader, max_records=1000):
    """The records up to the end; a reader that has nothing now is an error."""
    records = []
    while True:
        poll = reader.poll(max_records)
        if poll.batch is not None:
            assert 0 < len(poll.batch) <= max_records
            records += poll.batch.records
        if poll.status is InputStatus.END_OF_INPUT:
            reader.close()
            return records
        assert poll.status is InputStatus.MORE_AVAILABLE


def records_of(source, parallelism=1, **settings):
    """The records of each reader."""
    return [
        read_all(reader_of(source, subtask=subtask, parallelism=parallelism, **settings))
        for subtask in range(parallelism)
    ]
