"""Interval joins against a naive interpreter, whatever is late, restarted or rescaled."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tests.unit.operators.windows.windowed import BACKENDS
from tidegate.operators.joins.functions import ProcessJoinFunction
from tidegate.operators.joins.interval_join import IntervalJoinOperator, IntervalSettings
from tidegate.state.keys.hash_columns import hash_values
from tidegate.state.keys.key_groups import key_groups_of, subtasks_of
from tidegate.state.keys.selection import select_key
from tidegate.stream.batch import Batch
from tidegate.testing.harness import OperatorHarness

GROUPS = 4
BY_KEY = select_key(0)


class Pairs(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield left, right, ctx.get_timestamp()


class Job:
    """The operator in several subtasks, with records partitioned by key."""

    def __init__(self, settings, backend):
        self.operator = IntervalJoinOperator(settings, Pairs(), [BY_KEY, BY_KEY])
        self.backend = backend
        self.parts = []
        self.found = []
        self.start(1)

    def start(self, parallelism):
        old, snapshots = self.parts, [part.snapshot() for part in self.parts]
        self.parts = [
            OperatorHarness(
                self.operator,
                settings=self.backend,
                max_parallelism=GROUPS,
                parallelism=parallelism,
                subtask=subtask,
                restore_from=snapshots,
                inputs=2,
            )
            for subtask in range(parallelism)
        ]
        for part in old:
            self.found += part.output
            part.close()

    def add(self, records, side):
        groups = key_groups_of(hash_values([key for key, _, _ in records]), GROUPS)
        owners = subtasks_of(groups, len(self.parts), GROUPS).tolist()
        for number, part in enumerate(self.parts):
            own = [r for r, owner in zip(records, owners, strict=True) if owner == number]
            if own:
                stamps = np.array([time for *_, time in own], np.int64)
                part.process_batch(Batch(records=own, timestamps=stamps), side)

    def watermark(self, time):
        for part in self.parts:
            for side in (0, 1):
                part.watermark(time, input_index=side)

    def close(self):
        for part in self.parts:
            self.found += part.output
            assert not part.operator.backend.event_timers.timers()
            assert not any(any(buffer.values) for buffer in part.operator._buffers)
            part.close()


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
    job = Job(IntervalSettings(lower, upper), BACKENDS[backend])
    watermark, sides, expected = -(2**63), ([], []), []
    for step in [*steps, 10**6]:
        match step:
            case int():
                watermark = max(watermark, 0) + step
                job.watermark(watermark)
            case "rescale":
                job.start(1 + len(job.parts) % 3)
            case side, records:
                job.add(records, side)
                for record in records:
                    if record[2] < watermark:
                        continue
                    sides[side].append(record)
                    for other in sides[1 - side]:
                        left, right = (record, other) if side == 0 else (other, record)
                        if left[0] == right[0] and lower <= right[2] - left[2] <= upper:
                            expected.append((left, right, max(left[2], right[2])))
    job.close()
    assert sorted(job.found) == sorted(expected)
