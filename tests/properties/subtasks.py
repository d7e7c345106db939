"""All subtasks of an operator, restored with another parallelism in between."""

from dataclasses import replace

import numpy as np

from tidegate.state.columnar.keyed_rows import FrozenRows
from tidegate.testing.harness import OperatorHarness

MAX_PARALLELISM = 8


class Subtasks:
    def __init__(self, operator, settings, inputs=1):
        self._operator, self._settings, self._inputs = operator, settings, inputs
        self.harnesses = []
        self.start(1)

    def start(self, count, settings=None):
        old, snapshots = self.harnesses, self.snapshots()
        self.harnesses = [
            OperatorHarness(
                self._operator,
                parallelism=count,
                subtask=subtask,
                max_parallelism=MAX_PARALLELISM,
                settings=settings or self._settings,
                restore_from=snapshots,
                inputs=self._inputs,
            )
            for subtask in range(count)
        ]
        for harness in old:
            harness.close()

    def snapshots(self):
        return [_written(harness.snapshot()) for harness in self.harnesses]

    def process(self, batch, key, side=0):
        """Give each subtask the records of its keys."""
        groups = key.hashes(batch) % MAX_PARALLELISM
        for harness in self.harnesses:
            own = [place for place, g in enumerate(groups) if int(g) in harness.context.key_groups]
            if own:
                harness.process_batch(batch.take(np.array(own)), side)

    def watermark(self, timestamp):
        for harness in self.harnesses:
            for side in range(self._inputs):
                harness.watermark(timestamp, input_index=side)

    def take(self):
        """(record, timestamp) of all that was emitted since the last call."""
        found = []
        for harness in self.harnesses:
            found += harness.timed_output
            harness.batches.clear()
        return found

    def take_side(self, tag):
        found = []
        for harness in self.harnesses:
            found += harness.side_output(tag)
            harness.side_batches.pop(tag, None)
        return found

    def close(self):
        for harness in self.harnesses:
            harness.close()


class WrittenRows:
    """Rows as a file has them."""

    def __init__(self, frozen):
        self.metadata, self.key_groups = frozen.metadata, frozen.key_groups
        self.max_parallelism = frozen.max_parallelism
        self._chunks = list(frozen.chunks())

    def chunks(self, key_groups=None):
        return iter(self._chunks)


def _written(snapshot):
    if isinstance(snapshot.keyed, FrozenRows):
        return replace(snapshot, keyed=WrittenRows(snapshot.keyed))
    return snapshot
