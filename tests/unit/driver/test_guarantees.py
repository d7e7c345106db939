"""What becomes of a record over a failure: exactly once, at least once, at most once."""

from collections import Counter
from typing import ClassVar

import pytest

from tests.jobs import (
    CHECKPOINTS,
    RESTARTS,
    SMALL_STEPS,
    TOLERANT,
    Sums,
    Watched,
    WatchedMap,
    fail_once,
    hold_checkpoints,
    key_of,
)
from tests.programs import apply, collected, keyed, mapped, read, wait_until
from tests.taps import Tap
from tidegate.connectors.source import InputStatus, Poll, Source, SourceReader
from tidegate.connectors.splits import KnownSplits
from tidegate.graph.logical import Upstream
from tidegate.state.keys.selection import select_key
from tidegate.stream.batch import Batch

KEY = "key"


class Ones:
    """As many records as anybody wants, each of which counts one."""

    def __len__(self):
        return 10**9

    def __getitem__(self, part):
        return [(KEY, 1)] * (part.stop - part.start)


def count_over_a_failure(start, watch, mode):
    """Both inputs flow all the time; returns what was counted beyond what was read."""
    taps = [Tap(Ones(), is_open=True), Tap(Ones(), is_open=True)]
    operator = WatchedMap(Sums(watch, "sums"), [select_key(key_of)] * 2)
    inputs = [
        Upstream(up.transformation, up.partitioning, input_index=index)
        for index, up in enumerate(keyed(key_of, read(tap)) for tap in taps)
    ]
    job = start(
        collected(apply(operator, *inputs, is_keyed=True)),
        settings={
            **CHECKPOINTS,
            **RESTARTS,
            **TOLERANT,
            "execution.checkpointing.mode": mode,
        },
        parallelism=1,
    )
    wait_until(lambda: watch.count("sums", "map") > 100)
    job.wait_for_checkpoint()
    hold_checkpoints(job, watch, "sums")
    fail_once(watch, "sums")
    wait_until(lambda: watch.count("sums", "initialize") == 2)
    watch.actions.clear()
    read_once = sum(tap.end() for tap in taps)
    job.result()
    assert sum(tap.reads for tap in taps) > read_once, "some were read again"
    return dict(job.records())[KEY] - read_once


def test_exactly_once_counts_every_record_once(start, watch):
    assert count_over_a_failure(start, watch, "EXACTLY_ONCE") == 0


def test_at_least_once_counts_again_what_came_after_the_barrier_of_a_faster_channel(start, watch):
    # The records of one step behind the barrier of the first input, before that of the second.
    assert 0 < count_over_a_failure(start, watch, "AT_LEAST_ONCE") <= 10


class KeptOutside(Source):
    """A source whose position somebody else keeps, as a consumer group does."""

    position: ClassVar = 0
    count = 100

    def create_enumerator(self):
        return KnownSplits(lambda parallelism: ["the only one"])

    def create_reader(self, context):
        return OutsideReader()


class OutsideReader(SourceReader):
    def add_splits(self, splits):
        pass

    def snapshot(self):
        return []

    def poll(self, max_records):
        first = KeptOutside.position
        KeptOutside.position = min(first + max_records, KeptOutside.count)
        records = list(range(first, KeptOutside.position))
        if not records:
            return Poll(None, InputStatus.END_OF_INPUT)
        return Poll(Batch.of_records(records), InputStatus.MORE_AVAILABLE)


@pytest.fixture
def kept_outside():
    KeptOutside.position = 0
    return KeptOutside()


def test_at_most_once_is_a_restart_from_the_position_outside_that_loses_what_was_on_its_way(
    start, watch, kept_outside
):
    def fail_at(value):
        if value == 45:
            raise ValueError("once")
        return value

    watch.on("watched", "map", fail_at)
    job = start(
        collected(mapped(Watched(watch), read(kept_outside))),
        settings={**RESTARTS, **SMALL_STEPS},
        parallelism=1,
    )
    job.result()
    counts = Counter(job.records())
    assert max(counts.values()) == 1, "none twice"
    assert set(range(100)) - set(counts) == {45, 46, 47, 48, 49}, "the rest of the step is lost"
    assert job.history.counts.triggered == 0
