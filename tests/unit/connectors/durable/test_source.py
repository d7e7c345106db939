"""A log before a source that cannot replay: what is in it comes exactly once, in order."""

import math
import threading
from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_digest

from tests.effort import examples
from tests.programs import wait_until
from tests.unit.connectors.reading import reader_of
from tidegate.connectors.callback import CallbackSource
from tidegate.connectors.durable import intake as durable_intake
from tidegate.connectors.durable.log import DurableLog, LogSplit, Segment
from tidegate.connectors.durable.source import DurableSource, FreshSplit
from tidegate.connectors.source import InputStatus, Poll, ReaderContext, Source, SourceReader
from tidegate.connectors.splits import KnownSplits
from tidegate.core.clock import SystemClock
from tidegate.core.errors import ConfigError, CorruptCheckpoint, NotAccepted, StorageError
from tidegate.stream.batch import NO_TIMESTAMP, Batch
from tidegate.types.arrow import arrow_format
from tidegate.types.typeinfo import Types


class Fleeting(Source):
    """Gives out what a test pushes into it, once; shared by all its readers."""

    def __init__(self, records=(), type_info=None):
        self.pushed = deque(records)
        self.type_info = type_info
        self.is_over = False
        self.failure = None
        self.opened = []

    def create_enumerator(self):
        return KnownSplits(lambda parallelism: ["line"])

    def create_reader(self, context):
        return FleetingReader(self, context)

    def produced_type(self):
        return self.type_info


class FleetingReader(SourceReader):
    def __init__(self, source, context):
        self.source, self.context = source, context
        self.splits = []

    def add_splits(self, splits):
        self.splits += splits
        self.source.opened += splits

    def poll(self, max_records):
        pushed = self.source.pushed
        taken = [pushed.popleft() for _ in range(min(3, max_records, len(pushed)))]
        if not taken and self.source.failure is not None:
            raise self.source.failure
        batch = Batch.of_records(taken, self.context.format) if taken else None
        if pushed:
            return Poll(batch, InputStatus.MORE_AVAILABLE)
        over = self.source.is_over or not self.splits
        status = InputStatus.END_OF_INPUT if over else InputStatus.NOTHING_AVAILABLE
        return Poll(batch, status)

    def snapshot(self):
        return [] if self.source.is_over and not self.source.pushed else list(self.splits)


def context_of(directory, source, **more):
    type_info = source.produced_type()
    return ReaderContext(
        subtask=0,
        parallelism=1,
        clock=SystemClock(),
        format=None if type_info is None else arrow_format(type_info),
        directory=None if directory is None else str(directory),
        **more,
    )


class Reading:
    """A reader of a durable source, as a source operator drives it."""

    def __init__(self, directory, source, *, restored=(), fresh=("line",), **more):
        self.reader = DurableSource(source).create_reader(context_of(directory, source, **more))
        self.reader.open()
        if restored:
            self.reader.add_splits(restored)
        self.reader.add_splits([FreshSplit(split) for split in fresh])
        self.reader.no_more_splits()
        self.reader.poll(0)  # nothing is taken in before somebody wants it
        self.status = None

    def take(self, count, max_records=100):
        records = []

        def enough():
            poll = self.reader.poll(min(max_records, count - len(records)) or 1)
            records.extend(() if poll.batch is None else poll.batch.records)
            self.status = poll.status
            return len(records) >= count

        wait_until(enough)
        return records

    def to_the_end(self):
        records = []

        def over():
            poll = self.reader.poll(100)
            records.extend(() if poll.batch is None else poll.batch.records)
            return poll.status is InputStatus.END_OF_INPUT

        wait_until(over)
        return records

    def wait_for_push(self, source):
        wait_until(lambda: not source.pushed and self.reader.pending_records())

    def crash(self):
        self.reader.close()


@pytest.fixture
def log(tmp_path):
    return DurableLog(str(tmp_path))


def test_records_are_in_the_log_before_they_are_given_out(tmp_path, log):
    reading = Reading(tmp_path, Fleeting("abcdefg"))
    first = reading.take(2)
    assert first == ["a", "b"]
    logged = [record for n in log.numbers() for record in log.read(n).records]
    assert logged == list("abcdefg")
    reading.crash()


def test_without_a_checkpoint_the_whole_log_comes_again_and_then_the_source(tmp_path):
    source = Fleeting("abcd")
    first = Reading(tmp_path, source)
    first.take(3)
    first.crash()
    source.pushed += "ef"
    again = Reading(tmp_path, source)
    assert again.take(6) == list("abcdef")
    again.crash()


def test_a_restored_position_continues_in_the_middle_of_a_segment(tmp_path):
    source = Fleeting("abcde")
    first = Reading(tmp_path, source)
    assert first.take(2) == ["a", "b"]
    [position] = first.reader.snapshot()
    assert first.take(2) == ["c", "d"]
    first.crash()
    source.pushed += "fg"
    again = Reading(tmp_path, source, restored=[position], fresh=())
    assert again.take(5) == list("cdefg")
    again.crash()


@pytest.mark.parametrize("index", range(1, 6))
def test_a_restored_position_continues_in_a_segment_of_more_than_one_batch(tmp_path, log, index):
    texts = arrow_format(Types.STRING())
    batches = [Batch(columns=texts.encode(part), format=texts) for part in (["a", "b"], ["c", "d"])]
    more = [Batch(columns=texts.encode(["e", "f"]), format=texts)]
    log.append(0, Segment.of([*batches, *more], (), ("line",)))
    source = Fleeting(type_info=Types.STRING())
    source.is_over = True
    position = LogSplit(0, index, as_of=0, assigned=("line",))
    reading = Reading(tmp_path, source, restored=[position], fresh=())
    assert reading.take(6 - index, max_records=1) == list("abcdef")[index:]
    assert reading.reader.snapshot()[0].segment == 1
    reading.crash()


def test_a_job_takes_over_the_rest_of_a_segment_of_more_than_one_batch(tmp_path):
    texts = arrow_format(Types.STRING())
    batches = [Batch(columns=texts.encode(part), format=texts) for part in (["a", "b"], ["c", "d"])]
    DurableLog(str(tmp_path / "one")).append(0, Segment.of(batches, (), ("line",)))
    source = Fleeting(type_info=Types.STRING())
    source.is_over = True
    position = LogSplit(0, 3, as_of=0, assigned=("line",))
    origin = str(tmp_path / "one")
    reading = Reading(tmp_path / "two", source, restored=[position], fresh=(), origin=origin)
    assert reading.to_the_end() == ["d"]
    reading.crash()


def test_a_split_is_read_live_once_though_it_is_assigned_again(tmp_path):
    source = Fleeting("ab")
    first = Reading(tmp_path, source)
    first.take(2)
    first.crash()
    source.opened.clear()
    again = Reading(tmp_path, source)
    again.take(2)
    wait_until(lambda: source.opened)
    assert source.opened == ["line"]
    again.crash()


def test_a_split_that_waits_for_the_end_of_the_log_is_part_of_the_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(durable_intake, "_QUEUED_RECORDS", 1)
    source = Fleeting("ab")
    first = Reading(tmp_path, source)
    first.take(2)
    source.pushed += "cd"
    first.take(2)
    first.crash()
    source.opened.clear()
    reading = Reading(tmp_path, source, fresh=("line", "other"))
    assert reading.take(1) == ["a"]
    [position] = reading.reader.snapshot()
    assert position.fresh == ("line", "other")
    reading.crash()
    again = Reading(tmp_path, source, restored=[position], fresh=())
    assert again.take(3) == ["b", "c", "d"]
    wait_until(lambda: len(source.opened) == 2)
    assert source.opened == ["line", "other"]
    again.crash()


def test_a_source_that_has_ended_stays_ended(tmp_path):
    source = Fleeting("abc")
    source.is_over = True
    first = Reading(tmp_path, source)
    assert first.take(1) == ["a"]
    [position] = first.reader.snapshot()
    assert first.to_the_end() == ["b", "c"]
    first.crash()
    source.opened.clear()
    assert Reading(tmp_path, source, restored=[position], fresh=()).to_the_end() == ["b", "c"]
    assert Reading(tmp_path, source).to_the_end() == ["a", "b", "c"]
    assert source.opened == []


def test_what_came_before_the_source_failed_is_given_out_first(tmp_path):
    source = Fleeting("abc")
    source.failure = OSError("the line is down")
    reading = Reading(tmp_path, source)
    assert reading.take(3) == ["a", "b", "c"]
    wait_until(reading.reader.is_available)
    with pytest.raises(OSError, match="the line is down"):
        wait_until(lambda: reading.reader.poll(1).status is None)
    reading.crash()


def test_typed_records_and_timestamps_come_back_as_they_were():
    pairs = arrow_format(Types.TUPLE([Types.STRING(), Types.LONG()]))
    stamps = np.array([5, 7], np.int64)
    for batch in (
        Batch(records=[("a", 1), ("b", None)], format=pairs, timestamps=stamps),
        Batch(records=[object, {"a": {1}}], timestamps=None),
    ):
        (found,) = Segment.of([batch], ("live",), ("live",)).batches(batch.format)
        assert found.records == batch.records
        assert found.format is batch.format
        if batch.timestamps is None:
            assert found.timestamps is None
        else:
            assert found.timestamps.tolist() == [5, 7]


# --- truncation ---------------------------------------------------------------------------------


def step(reading, source, record, number):
    """A record of its own segment, and a completed checkpoint behind it."""
    source.pushed += record
    assert reading.take(1) == [record]
    splits = reading.reader.snapshot()
    reading.reader.notify_complete(number, splits)
    return splits


@pytest.mark.parametrize("retained", [1, 3])
def test_segments_stay_as_long_as_a_kept_checkpoint_needs_them(tmp_path, log, retained):
    source = Fleeting()
    reading = Reading(tmp_path, source, retained_checkpoints=retained)
    kept = deque(maxlen=retained)
    for number, record in enumerate("abcdef", 1):
        kept.append(step(reading, source, record, number))
    oldest = kept[0][0]
    wait_until(lambda: min(log.numbers(), default=6) == oldest.segment)
    reading.crash()
    source.pushed += "g"
    for number, splits in enumerate(kept):
        again = Reading(tmp_path, source, restored=splits, fresh=())
        assert again.take(retained - number) == list("abcdefg")[6 - retained + 1 + number :]
        again.crash()


def test_a_new_attempt_deletes_nothing_that_an_older_checkpoint_may_need(tmp_path, log):
    source = Fleeting()
    first = Reading(tmp_path, source, retained_checkpoints=3)
    for number, record in enumerate("abc", 1):
        splits = step(first, source, record, number)
    first.crash()
    before = log.numbers()
    again = Reading(tmp_path, source, restored=splits, fresh=(), retained_checkpoints=3)
    for number, record in enumerate("de", 4):
        step(again, source, record, number)
    source.pushed += "x"
    again.take(1)
    assert set(before) <= set(log.numbers())
    step(again, source, "f", 6)
    wait_until(lambda: min(log.numbers()) > max(before))
    again.crash()


def test_a_log_that_was_deleted_to_its_end_continues_with_the_next_number(tmp_path, log):
    source = Fleeting()
    reading = Reading(tmp_path, source)
    splits = step(reading, source, "a", 1)
    wait_until(lambda: not log.numbers())
    reading.crash()
    again = Reading(tmp_path, source, restored=splits, fresh=())
    source.pushed += "b"
    assert again.take(1) == ["b"]
    assert log.numbers() == [1]
    again.crash()


# --- what can be wrong --------------------------------------------------------------------------


def test_without_files_for_checkpoints_there_is_no_log():
    reader = DurableSource(Fleeting()).create_reader(context_of(None, Fleeting()))
    with pytest.raises(ConfigError, match=r"execution.checkpointing.dir = None: durable\(\) keeps"):
        reader.open()


def test_a_damaged_segment_is_refused(tmp_path, log):
    log.append(0, Segment.of([Batch.of_records(["a"])], (), ()))
    file = next((tmp_path / "log").iterdir())
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    with pytest.raises(CorruptCheckpoint, match=r"segment \d+ with its checksum"):
        log.read(0)

    def read():
        reading = Reading(tmp_path, Fleeting())
        wait_until(lambda: reading.reader.poll(1).status is None)

    with pytest.raises(CorruptCheckpoint):
        read()


def test_a_segment_in_the_place_of_another_is_refused(tmp_path, log):
    for number in (0, 1):
        log.append(number, Segment.of([Batch.of_records([number])], (), ()))
    first, second = sorted((tmp_path / "log").iterdir())
    second.write_bytes(first.read_bytes())
    with pytest.raises(CorruptCheckpoint, match="segment 1 with its checksum"):
        log.read(1)


def test_a_segment_of_an_earlier_version_is_read(tmp_path, log):
    log.append(3, Segment.of([Batch.of_records(["a"])], (), ()))
    (file,) = (tmp_path / "log").iterdir()
    body = file.read_bytes()[14:]
    file.write_bytes(b"TGLOG1" + xxh3_64_digest(body) + body)
    assert log.read(3).records == ["a"]


def test_a_missing_segment_is_refused(log):
    for number in (3, 5):
        log.append(number, Segment.of([], (), ()))
    with pytest.raises(CorruptCheckpoint, match=r"segments 3 to 5 of a log.*1 of them missing"):
        log.numbers_from(3, None)
    with pytest.raises(CorruptCheckpoint, match="segments 5 to 7"):
        log.numbers_from(5, 7)


def test_an_attempt_that_is_not_alone_fails_and_nothing_is_overwritten(tmp_path, log):
    source = Fleeting("a")
    reading = Reading(tmp_path, source)
    reading.take(1)
    log.append(1, Segment.of([Batch.of_records(["of another attempt"])], ("line",), ("line",)))
    source.pushed += "b"
    with pytest.raises(StorageError, match="another attempt of the job has written it"):
        wait_until(lambda: reading.reader.poll(1).status is None)
    reading.crash()
    again = Reading(tmp_path, source)
    assert again.take(2) == ["a", "of another attempt"]
    again.crash()


# --- another job --------------------------------------------------------------------------------


def test_a_job_that_begins_with_anothers_checkpoint_takes_over_the_rest_of_its_log(tmp_path):
    source = Fleeting("abcde")
    first = Reading(tmp_path / "one", source)
    first.take(2)
    [position] = first.reader.snapshot()
    first.take(1)
    first.crash()
    settings = {"restored": [position], "fresh": (), "origin": str(tmp_path / "one")}
    for _attempt in range(2):
        other = Reading(tmp_path / "two", source, **settings)
        assert other.take(3) == ["c", "d", "e"]
        [own] = other.reader.snapshot()
        other.crash()
    before = DurableLog(str(tmp_path / "one")).numbers()
    source.pushed += "f"
    again = Reading(tmp_path / "two", source, restored=[own], fresh=())
    assert again.take(1) == ["f"]
    again.crash()
    assert DurableLog(str(tmp_path / "one")).numbers() == before


# --- any story ----------------------------------------------------------------------------------


@examples(25)
@given(
    story=st.lists(
        st.sampled_from(["push", "push", "take", "checkpoint", "complete", "crash"]), max_size=25
    ),
    retained=st.integers(1, 3),
)
def test_whatever_happens_each_record_comes_once_and_in_order(tmp_path_factory, story, retained):
    directory = tmp_path_factory.mktemp("log")
    source = Fleeting()
    pushed, done = [], []
    pending, completed = [], None
    reading = Reading(directory, source, retained_checkpoints=retained)
    for number, event in enumerate(story, 1):
        match event:
            case "push":
                source.pushed.append(number)
                pushed.append(number)
                reading.wait_for_push(source)
            case "take":
                room = min(2, len(pushed) - len(done))
                done += reading.take(room) if room else []
            case "checkpoint":
                pending.append((number, reading.reader.snapshot(), len(done)))
            case "complete" if pending:
                completed = pending.pop(0)
                reading.reader.notify_complete(completed[0], completed[1])
            case "crash":
                reading.crash()
                pending = []
                restored = [] if completed is None else completed[1]
                done = done[: 0 if completed is None else completed[2]]
                fresh = ("line",) if completed is None else ()
                reading = Reading(
                    directory,
                    source,
                    restored=restored,
                    fresh=fresh,
                    retained_checkpoints=retained,
                )
        assert done == pushed[: len(done)]
    assert done + reading.take(len(pushed) - len(done)) == pushed
    reading.crash()


# --- pushing ------------------------------------------------------------------------------------


class Office:
    """Where a job subscribes, in this process."""

    def __init__(self):
        self.emit = None
        self.is_closed = False

    def subscribe(self, emit):
        self.emit = emit

        def unsubscribe():
            self.is_closed = True

        return unsubscribe


def test_a_push_returns_when_the_record_is_in_the_log(tmp_path, log):
    office = Office()
    reading = Reading(tmp_path, CallbackSource(office.subscribe), fresh=("subscription",))
    wait_until(lambda: office.emit)
    for letter in "abc":
        office.emit(letter)
        assert log.read(log.numbers()[-1]).records == [letter]
    assert reading.take(3) == ["a", "b", "c"]
    reading.crash()
    assert office.is_closed
    with pytest.raises(NotAccepted, match="send it again later"):
        office.emit("d")


def test_the_log_is_asleep_until_a_push_a_stop_or_its_end(tmp_path, log, monkeypatch):
    monkeypatch.setattr(durable_intake, "_LONGEST_SLEEP", 3600.0)
    real, sleeps = durable_intake.Intake._quiet_seconds, []

    def quiet_seconds(intake):
        sleeps.append(real(intake))
        return sleeps[-1]

    monkeypatch.setattr(durable_intake.Intake, "_quiet_seconds", quiet_seconds)
    office = Office()
    reading = Reading(tmp_path, CallbackSource(office.subscribe), fresh=("subscription",))
    wait_until(lambda: office.emit)

    def push(record):
        wait_until(lambda: sleeps and sleeps.pop() == 3600.0)
        pushing = threading.Thread(target=office.emit, args=(record,), daemon=True)
        pushing.start()
        return pushing

    push("a").join(20)
    assert log.numbers() == [0]
    reading.reader.halt()
    waiting = push("b")
    wait_until(lambda: sleeps)
    reading.reader.go_on()
    waiting.join(20)
    assert log.numbers() == [0, 1]
    reading.crash()
    assert not reading.reader._intake._thread.is_alive()


def test_pushes_of_many_threads_share_segments(tmp_path, log):
    office = Office()
    reading = Reading(tmp_path, CallbackSource(office.subscribe), fresh=("subscription",))
    wait_until(lambda: office.emit)
    threads = [threading.Thread(target=office.emit, args=(n,)) for n in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(reading.take(200)) == list(range(200))
    assert len(log.numbers()) < 200
    reading.crash()


def test_a_push_that_could_not_be_logged_is_not_acknowledged(tmp_path, log):
    office = Office()
    reading = Reading(tmp_path, CallbackSource(office.subscribe), fresh=("subscription",))
    wait_until(lambda: office.emit)
    log.append(0, Segment.of([], (), ()))
    failures = []

    def push():
        try:
            office.emit("a")
        except NotAccepted as failure:
            failures.append(failure)

    thread = threading.Thread(target=push)
    thread.start()
    with pytest.raises(StorageError):
        wait_until(lambda: reading.reader.poll(1).status is None)
    reading.crash()
    thread.join(120)
    assert len(failures) == 1


def test_without_a_log_a_push_returns_when_the_record_is_queued():
    office = Office()
    reader = reader_of(CallbackSource(office.subscribe, Types.LONG()), clock=SystemClock())
    wait_until(lambda: office.emit)
    office.emit(1, timestamp=7)
    office.emit(2)
    office.emit.end()
    poll = reader.poll(10)
    assert (poll.batch.records, poll.batch.timestamps.tolist()) == ([1, 2], [7, NO_TIMESTAMP])
    assert reader.poll(10).status is InputStatus.END_OF_INPUT
    assert reader.snapshot() == []
    reader.close()


class Bell:
    """What a reader had to offer when it called `wake`."""

    def __init__(self):
        self.reader = None
        self.rings = []

    def ring(self):
        self.rings.append(self.reader is not None and self.reader.is_available())


def test_a_push_the_end_and_a_failure_wake_the_slot():
    office, bell = Office(), Bell()
    context = context_of(None, source := CallbackSource(office.subscribe), wake=bell.ring)
    bell.reader = reader = source.create_reader(context)
    reader.add_splits(["subscription"])
    wait_until(lambda: office.emit)
    assert (reader.available_in(), bell.rings) == (math.inf, [])
    office.emit("a")
    assert bell.rings == [True]
    reader.poll(10)
    office.emit.end()
    assert bell.rings == [True, True]

    def fail(emit):
        raise OSError("no such office")

    bell.reader = CallbackSource(fail).create_reader(context)
    bell.reader.add_splits(["subscription"])
    wait_until(lambda: bell.rings == [True] * 3)


def test_what_was_logged_the_end_and_a_failure_wake_the_slot(tmp_path):
    source, bell = Fleeting(), Bell()
    reading = Reading(tmp_path / "1", source, wake=bell.ring)
    bell.reader = reading.reader
    assert reading.reader.available_in() == math.inf
    source.pushed.append("a")
    wait_until(lambda: bell.rings[-1:] == [True])
    assert reading.take(1) == ["a"]
    bell.rings.clear()
    source.is_over = True
    wait_until(lambda: bell.rings[-1:] == [True])
    reading.crash()

    source, bell = Fleeting(), Bell()
    reading = Reading(tmp_path / "2", source, wake=bell.ring)
    bell.reader = reading.reader
    source.failure = OSError("unplugged")
    wait_until(lambda: bell.rings[-1:] == [True])
    reading.crash()


def test_a_subscription_that_fails_fails_the_reader():
    def subscribe(emit):
        emit("a")
        raise OSError("no such office")

    reader = reader_of(CallbackSource(subscribe), clock=SystemClock())
    first = wait_until(lambda: reader.poll(1).batch)
    assert first.records == ["a"]
    with pytest.raises(OSError, match="no such office"):
        wait_until(lambda: reader.poll(1).batch)
    reader.close()


def test_what_replays_and_what_does_not():
    assert not CallbackSource(print).replay().is_possible
    assert CallbackSource(print).durable().replay().is_possible
    assert DurableSource(Fleeting()).durable().max_readers() == 1
    assert replace(LogSplit(3, 4), live=("x",)).__repr__() == "segment 3, record 4 of its log"
