"""When timers fire: facts of Flink's timer service as tables."""

import numpy as np
import pytest

from tests.unit.operators.windows.windowed import BACKENDS
from tidegate.core.errors import UserFunctionError
from tidegate.datastream.functions import KeyedProcessFunction
from tidegate.operators.functions import TimeDomain
from tidegate.operators.keyed import KeyedProcessOperator
from tidegate.state.keys.selection import select_key
from tidegate.testing.harness import OperatorHarness


class Obeying(KeyedProcessFunction):
    """A record (key, order, time, ...) registers or deletes timers; some timers set others."""

    def process_element(self, value, ctx):
        _, *orders = value
        for order, time in orders:
            getattr(ctx.timer_service(), order)(time)

    def on_timer(self, timestamp, ctx):
        is_event = ctx.time_domain() is TimeDomain.EVENT_TIME
        yield ctx.get_current_key(), "event" if is_event else "clock", timestamp
        if timestamp == CHAINED and is_event:
            ctx.timer_service().register_event_time_timer(CHAINED - 5)
            ctx.timer_service().register_event_time_timer(CHAINED + 5)


CHAINED = 777
END = 2**63 - 1
EVENT, CLOCK = "register_event_time_timer", "register_processing_time_timer"
NO_EVENT, NO_CLOCK = "delete_event_time_timer", "delete_processing_time_timer"

# Records, then watermarks ("w", t) and the clock ("c", milliseconds): what fires with each.
COURSES = {
    "in the order of their times, keys apart": [
        ("r", ("a", (EVENT, 3), (EVENT, 1)), ("b", (EVENT, 2))),
        ("w", 1, [("a", "event", 1)]),
        ("w", 3, [("b", "event", 2), ("a", "event", 3)]),
        ("w", 9, []),
    ],
    "up to the watermark, its own time included": [
        ("r", ("a", (EVENT, 10), (EVENT, 11))),
        ("w", 9, []),
        ("w", 10, [("a", "event", 10)]),
        ("w", 11, [("a", "event", 11)]),
    ],
    "once, however often it is registered": [
        ("r", ("a", (EVENT, 5), (EVENT, 5)), ("a", (EVENT, 5)), ("b", (EVENT, 5))),
        ("w", 5, [("a", "event", 5), ("b", "event", 5)]),
    ],
    "again, if it is registered after it has fired": [
        ("r", ("a", (EVENT, 5))),
        ("w", 5, [("a", "event", 5)]),
        ("r", ("a", (EVENT, 5))),
        ("w", 6, [("a", "event", 5)]),
    ],
    "not after it was deleted, but that of another key and time": [
        ("r", ("a", (EVENT, 5), (EVENT, 6)), ("b", (EVENT, 5)), ("a", (NO_EVENT, 5))),
        ("w", 9, [("b", "event", 5), ("a", "event", 6)]),
    ],
    "deleting what is not there changes nothing": [
        ("r", ("a", (NO_EVENT, 5), (EVENT, 5), (NO_CLOCK, 5), (NO_EVENT, 4))),
        ("w", 5, [("a", "event", 5)]),
    ],
    "both clocks apart": [
        ("r", ("a", (EVENT, 5), (CLOCK, 5), (CLOCK, 30))),
        ("w", 40, [("a", "event", 5)]),
        ("c", 20, [("a", "clock", 5)]),
        ("c", 30, [("a", "clock", 30)]),
    ],
    "deleted on one clock, not on the other": [
        ("r", ("a", (EVENT, 5), (CLOCK, 5), (NO_CLOCK, 5))),
        ("c", 20, []),
        ("w", 5, [("a", "event", 5)]),
    ],
    "one of the past with the next watermark": [
        ("w", 50, []),
        ("r", ("a", (EVENT, 5))),
        ("w", 51, [("a", "event", 5)]),
    ],
    "an integer of NumPy as well, but none after the end of time": [
        ("r", ("a", (EVENT, np.int64(5)), (CLOCK, END + 1), (EVENT, END + 1), (EVENT, END))),
        ("r", ("a", (NO_EVENT, END + 1), (NO_CLOCK, np.int64(5)))),
        ("w", 5, [("a", "event", 5)]),
        ("w", END, [("a", "event", END)]),
    ],
    "timers of timers in the same go, if they are due": [
        ("r", ("a", (EVENT, CHAINED)), ("b", (EVENT, CHAINED + 1))),
        (
            "w",
            CHAINED + 4,
            [("a", "event", CHAINED), ("a", "event", CHAINED - 5), ("b", "event", CHAINED + 1)],
        ),
        ("w", CHAINED + 5, [("a", "event", CHAINED + 5)]),
    ],
}


@pytest.mark.parametrize("is_restored", [False, True])
@pytest.mark.parametrize("backend", sorted(BACKENDS))
@pytest.mark.parametrize("name", COURSES)
def test_timers_fire(name, backend, is_restored):
    """The same if the operator is restored, as one of two subtasks each, before every watermark."""
    operator = KeyedProcessOperator(Obeying(), [select_key(0)])
    tested = [OperatorHarness(operator, settings=BACKENDS[backend], max_parallelism=4)]
    for what, *event in COURSES[name]:
        if what == "r":
            for each in tested:
                own = [r for r in event if _is_of(each, r[0])]
                if own:
                    each.process(own)
            continue
        if is_restored:
            tested = _rescaled(tested, 1 + len(tested) % 2)
        time, expected = event
        found = []
        for each in tested:
            if what == "w":
                each.watermark(time)
            else:
                each.advance(time / 1000 - each.clock.time())
            found.append(list(each.output))
            each.output.clear()
            each.batches.clear()
        if len(tested) == 1:
            assert found == [expected]
        else:
            assert sorted(found[0] + found[1]) == sorted(expected)
            for part in found:
                assert [e for e in expected if e in part] == part
    for each in tested:
        each.close()


@pytest.mark.parametrize(
    ("order", "time"), [(EVENT, 1.5), (CLOCK, 2.0), (NO_EVENT, None), (NO_CLOCK, "3")]
)
def test_the_time_of_a_timer_is_a_whole_number(order, time):
    harness = OperatorHarness(KeyedProcessOperator(Obeying(), [select_key(0)]))
    refused = pytest.raises(UserFunctionError, match="give whole milliseconds since the epoch")
    with harness, refused:
        harness.process([("a", (order, time))])


def _is_of(harness, key):
    from tidegate.state.keys.stable_hash import stable_hash

    return stable_hash(key) % 4 in harness.context.key_groups


def _rescaled(old, parallelism):
    snapshots = [each.snapshot() for each in old]
    clock = old[0].clock
    new = [
        OperatorHarness(
            old[0]._given,
            settings=old[0].context.settings,
            max_parallelism=4,
            parallelism=parallelism,
            subtask=subtask,
            restore_from=snapshots,
            clock=clock,
        )
        for subtask in range(parallelism)
    ]
    for each in old:
        each.close()
    return new
