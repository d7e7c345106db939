"""Watermarks of several splits in one subtask: facts of Flink's multiplexer and of alignment."""

from enum import StrEnum

import pytest

from tidegate.common import Duration, WatermarkGenerator, WatermarkStrategy
from tidegate.operators.event_time.assigning import AssignTimestampsOperator
from tidegate.stream.batch import Batch
from tidegate.stream.elements import WatermarkStatus
from tidegate.testing.harness import OperatorHarness

IDLE, ACTIVE = WatermarkStatus.IDLE, WatermarkStatus.ACTIVE


class AsTold(WatermarkGenerator):
    """Each record is a watermark, or says that the split is idle."""

    def on_event(self, event, event_timestamp, output):
        if event == "idle":
            output.mark_idle()
        else:
            output.emit_watermark(event)

    def on_periodic_emit(self, output):
        pass


# What happens to which split, and what the subtask emits then.
COURSES = {
    "one split": [("+a", []), ("a", 5, [5]), ("a", 3, []), ("a", 8, [8])],
    "all must have spoken": [("+a", []), ("+b", []), ("a", 5, []), ("b", 3, [3]), ("b", 9, [5])],
    "the lowest decides": [
        *[("+a", []), ("+b", []), ("a", 10, []), ("b", 20, [10])],
        *[("a", 15, [15]), ("a", 30, [20]), ("b", 25, [25])],
    ],
    "an idle split holds nothing back": [
        *[("+a", []), ("+b", []), ("a", 10, []), ("b", "idle", [10])],
        *[("a", 20, [20]), ("b", 15, []), ("a", 30, []), ("b", 25, [25])],
    ],
    "all idle make the subtask idle": [
        *[("+a", []), ("+b", []), ("a", 10, []), ("b", 20, [10])],
        *[("a", "idle", [20]), ("b", "idle", [IDLE]), ("a", 40, [ACTIVE, 40])],
    ],
    "all idle: the one furthest ahead decides, in whichever order they fell silent": [
        *[("+a", []), ("+b", []), ("a", 10, []), ("b", 20, [10])],
        *[("b", "idle", []), ("a", "idle", [20, IDLE]), ("a", 40, [ACTIVE, 40])],
    ],
    "a split that is released leaves event time to those that are idle": [
        *[("+a", []), ("+b", []), ("a", 10, []), ("b", 20, [10])],
        *[("b", "idle", []), ("-a", [20, IDLE]), ("b", 30, [ACTIVE, 30])],
    ],
    "a new split holds back, but time never goes back": [
        *[("+a", []), ("a", 10, [10]), ("+b", []), ("a", 20, [])],
        *[("b", 5, []), ("b", 15, [15]), ("b", 30, [20])],
    ],
    "a split that is released holds nothing back": [
        *[("+a", []), ("+b", []), ("a", 10, []), ("b", 5, [5])],
        *[("-b", [10]), ("a", 12, [12])],
    ],
    "a released split that was ahead changes nothing": [
        *[("+a", []), ("+b", []), ("a", 10, []), ("b", 50, [10])],
        *[("-b", []), ("a", 12, [12])],
    ],
    "a released split does not count as idle": [
        *[("+a", []), ("+b", []), ("a", 10, []), ("b", "idle", [10])],
        *[("-a", [IDLE]), ("b", 11, [ACTIVE, 11])],
    ],
    "the last split that goes leaves event time where it is": [
        *[("+a", []), ("a", 10, [10]), ("-a", []), ("+b", []), ("b", 5, []), ("b", 12, [12])],
    ],
}


class Subtask(OperatorHarness):
    """Writes down watermarks and statuses in one order."""

    def __init__(self, strategy):
        self.told = []
        super().__init__(AssignTimestampsOperator(strategy))
        self.time = self.operator._time

    def emit_watermark(self, watermark):
        self.told.append(watermark.timestamp)

    def emit_watermark_status(self, status):
        self.told.append(status)

    def taken(self):
        told, self.told = self.told, []
        return told


@pytest.mark.parametrize("name", COURSES)
def test_a_subtask_emits(name):
    strategy = WatermarkStrategy.for_generator(AsTold).with_timestamp_assigner(lambda *_: 0)
    with Subtask(strategy) as subtask:
        for what, *event, expected in COURSES[name]:
            if what.startswith("+"):
                subtask.time.add(what[1:])
            elif what.startswith("-"):
                subtask.time.release(what[1:])
            else:
                subtask.time.process(Batch.of_records(event), what)
            assert subtask.taken() == expected, (what, *event)


# What the splits of a restored subtask did last, what happens first, and what it emits then.
RESUMED = {
    "all were idle, and nothing comes": (["idle", "idle"], "time passes", [IDLE]),
    "all were idle, and a record comes": (["idle", "idle"], 40, [ACTIVE, 40]),
    "all were idle, and a split is added": (["idle", "idle"], "+c", [ACTIVE]),
    "one was active": (["idle", 20], 40, [20]),
}


@pytest.mark.parametrize("name", RESUMED)
def test_receivers_learn_whether_a_restored_subtask_is_idle(name):
    last, first, expected = RESUMED[name]
    strategy = WatermarkStrategy.for_generator(AsTold)
    before, after = Subtask(strategy), Subtask(strategy)
    for split, event in zip("ab", last, strict=True):
        before.time.add(split)
        before.time.process(Batch.of_records([event]), split)
    for split in "ab":
        after.time.resume(before.time.state_of(split), split)
    assert after.taken() == []
    if first == "+c":
        after.time.add("c")
    elif first == "time passes":
        assert after.time.next_timer() is not None
        after.time.fire(after.time.next_timer())
    else:
        after.time.process(Batch.of_records([first]), "a")
    assert after.taken() == expected


# Its own watermark, the lowest of the group, the drift: whether the source reads on.
ALIGNED = [
    (None, None, 10, True),
    (None, 0, 10, True),
    (5, None, 10, True),
    (10, 0, 10, True),
    (11, 0, 10, False),
    (11, 1, 10, True),
    (500, 499, 0, False),
    (500, 500, 0, True),
]


@pytest.mark.parametrize(("own", "lowest", "drift", "reads_on"), ALIGNED)
def test_a_source_waits_that_is_more_than_the_drift_ahead(own, lowest, drift, reads_on):
    strategy = WatermarkStrategy.for_generator(AsTold).with_timestamp_assigner(lambda *_: 0)
    strategy = strategy.with_watermark_alignment(
        "group", Duration.of_millis(drift), Duration.of_seconds(2)
    )
    with Subtask(strategy) as subtask:
        time = subtask.time
        if own is not None:
            time.process(Batch.of_records([own]), "a")
        groups = {"other group": -1} if lowest is None else {"group": lowest, "other group": -1}
        assert time.align(groups) is reads_on
        if own is not None:
            assert time.aligned() == ("group", own)


class Group(StrEnum):
    ORDERS = "orders"


def test_a_group_is_named_by_plain_text_which_every_slot_can_read():
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    alignment = strategy.with_watermark_alignment(Group.ORDERS, Duration.of_millis(1)).alignment
    assert (type(alignment.group), alignment.group) == (str, "orders")


# The watermarks of splits, the lowest of the group, the drift: which splits wait, and whether the
# subtask reads on.
ALIGNED_SPLITS = [
    ({"a": 5, "b": 5}, 5, 0, "", True),
    ({"a": 4, "b": 5}, 4, 0, "b", True),
    ({"a": 4, "b": 5}, 4, 1, "", True),
    ({"a": 4, "b": 5}, 3, 0, "ab", False),
    ({"a": 4, "b": 5, "c": 6}, 4, 1, "c", True),
    ({"a": 4, "b": 5}, None, 0, "", True),
    ({"a": "idle", "b": 5}, 5, 0, "", True),
    ({"a": 9, "b": "idle", "c": 4}, 4, 2, "a", True),
]


@pytest.mark.parametrize(("splits", "lowest", "drift", "waiting", "reads_on"), ALIGNED_SPLITS)
def test_splits_wait_that_are_more_than_the_drift_ahead(splits, lowest, drift, waiting, reads_on):
    strategy = WatermarkStrategy.for_generator(AsTold).with_timestamp_assigner(lambda *_: 0)
    strategy = strategy.with_watermark_alignment("group", Duration.of_millis(drift))
    with Subtask(strategy) as subtask:
        time = subtask.time
        for split in splits:
            time.add(split)
        for split, watermark in splits.items():
            time.process(Batch.of_records([watermark]), split)
        assert time.align({} if lowest is None else {"group": lowest}) is reads_on
        assert time.ahead == set(waiting)
        assert not waiting or time.next_timer() is not None


def test_a_split_that_waits_does_not_become_idle():
    strategy = WatermarkStrategy.for_generator(AsTold).with_timestamp_assigner(lambda *_: 0)
    strategy = strategy.with_watermark_alignment("group", Duration.of_millis(0))
    with Subtask(strategy.with_idleness(Duration.of_seconds(10))) as subtask:
        time = subtask.time
        for split, watermark in (("a", 4), ("b", 5)):
            time.process(Batch.of_records([watermark]), split)
        subtask.clock.advance(9)
        time.align({"group": 4})
        subtask.clock.advance(2)
        time.fire(subtask.clock.time())
        assert {split for split, track in time._tracks.items() if track.is_idle} == {"a"}


def test_an_idle_source_has_no_say_in_its_group():
    strategy = WatermarkStrategy.for_generator(AsTold).with_timestamp_assigner(lambda *_: 0)
    strategy = strategy.with_watermark_alignment("group", Duration.of_millis(1))
    with Subtask(strategy) as subtask:
        subtask.time.process(Batch.of_records([5, "idle"]), "a")
        assert subtask.time.aligned() is None
        subtask.time.process(Batch.of_records([7]), "a")
        assert subtask.time.aligned() == ("group", 7)
