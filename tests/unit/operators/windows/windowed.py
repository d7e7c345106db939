"""Window operators under a harness: records with timestamps, watermarks, snapshots."""

import numpy as np

from tidegate.core.modes import StateBackendType
from tidegate.datastream.functions import ProcessWindowFunction
from tidegate.operators.windows.contents import (
    AggregatedContents,
    EvictedContents,
    ListedContents,
    ReducedContents,
)
from tidegate.operators.windows.merging_operator import window_operator
from tidegate.operators.windows.operator import WindowSettings
from tidegate.state.keys.selection import select_key
from tidegate.stream.batch import Batch
from tidegate.testing.harness import OperatorHarness

BY_FIRST = select_key(0)
BACKENDS = {
    "hashmap": {},
    "rocksdb": {"state.backend.type": StateBackendType.ROCKSDB},
}


class Shown(ProcessWindowFunction):
    """(key, what the window holds, its start and end)."""

    def process(self, key, context, elements):
        window = context.window()
        values = [value for _, value in elements]
        yield key, values, getattr(window, "start", None), getattr(window, "end", None)


def added(one, other):
    return one[0], one[1] + other[1]


def windows(
    assigner,
    *,
    trigger=None,
    lateness=0,
    late_tag=None,
    evictor=None,
    contents=None,
    function=None,
    keys=(BY_FIRST,),
):
    """The operator of a program with these windows; by default it shows what they hold."""
    if contents is None:
        contents, function = ListedContents(None), function or Shown()
    if evictor is not None:
        contents = EvictedContents(evictor, contents)
    settings = WindowSettings(
        assigner, trigger or assigner.get_default_trigger(None), lateness, late_tag
    )
    return window_operator(settings, contents, function, keys)


def reduced(function=added):
    return ReducedContents(function, None)


def aggregated(function):
    return AggregatedContents(function, None)


class WindowHarness(OperatorHarness):
    """With records (key, value, timestamp)."""

    def add(self, *records, input_index=0):
        stamps = np.array([timestamp for *_, timestamp in records], np.int64)
        batch = Batch(records=[tuple(record) for *record, _ in records], timestamps=stamps)
        self.process_batch(batch, input_index)

    def fired(self, watermark):
        """What comes out when the watermark gets there."""
        self.watermark(watermark)
        return self.take_timed()

    def take_timed(self):
        """(record, timestamp) of all that came out since the last call, in order."""
        found = [
            (record, timestamp)
            for batch in self.batches
            for record, timestamp in zip(batch.records, batch.timestamps.tolist(), strict=True)
        ]
        self.batches.clear()
        return sorted(found, key=repr)

    def again(self, **changed):
        """The same operator, restored from what a checkpoint holds now."""
        context = self.context
        return type(self)(
            self._given,
            settings=context.settings,
            clock=self.clock,
            restore_from=[self.snapshot()],
            **changed,
        )
