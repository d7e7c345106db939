"""Interval joins against a naive interpreter, whatever is late, restarted or rescaled."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tests.properties.subtasks import Subtasks
from tests.unit.operators.windows.windowed import BACKENDS
from tidegate.operators.joins.functions import ProcessJoinFunction
from tidegate.operators.joins.interval_join import IntervalJoinOperator, IntervalSettings
from tidegate.state.keys.selection import select_key
from tidegate.stream.batch import Batch

BY_KEY = select_key(0)


class Pairs(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield left, right, ctx.get_timestamp()


RECORDS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 40)),
    min_size=1,
    max_size=6,
)
STEPS = st.lists(
    st.tuples(st.sampled_from([0, 1]), RECORDS) | st.integers(0, 15) | st.just("rescale"),
    max_size=14,
)


@examples(40)
@given(
    bounds=st.tuples(st.integers(-8, 8), st.integers(-8, 8)).map(sorted),
    steps=STEPS,
    backend=st.sampled_from(sorted(BACKENDS)),
)
def test_pairs_are_those_of_a_naive_interpreter(bounds, steps, backend):
    lower, upper = bounds
    operator = IntervalJoinOperator(IntervalSettings(lower, upper), Pairs(), [BY_KEY, BY_KEY])
    job = Subtasks(operator, BACKENDS[backend], 2)
    watermark, sides, expected, found = -(2**63), ([], []), [], []
    for step in [*steps, 10**6]:
        match step:
            case int():
                watermark = max(watermark, 0) + step
                job.watermark(watermark)
            case "rescale":
                job.start(1 + len(job.harnesses) % 3)
            case side, records:
                stamps = np.array([time for *_, time in records], np.int64)
                job.process(Batch(records=records, timestamps=stamps), BY_KEY, side)
                for record in records:
                    if record[2] < watermark:
                        continue
                    sides[side].append(record)
                    for other in sides[1 - side]:
                        left, right = (record, other) if side == 0 else (other, record)
                        if left[0] == right[0] and lower <= right[2] - left[2] <= upper:
                            expected.append((left, right, max(left[2], right[2])))
        found += [pair for pair, _ in job.take()]
    for harness in job.harnesses:
        assert not harness.operator.backend.event_timers.timers()
        assert not any(any(buffer.values) for buffer in harness.operator._buffers)
    job.close()
    assert sorted(found) == sorted(expected)
